"""Delta tables outside the warehouse: a source of appended rows, and a sink that merges into a table.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. An offset is a version of the
table.
"""
