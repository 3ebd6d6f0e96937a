"""Delta tables outside of the warehouse: the rows appended to one as a source, and the sink that merges into one.


Imports: the public modules of ``connectors`` and ``support``.
Begin with ``source``; an offset is a version of the table.
"""
