"""What several families use: streams of ranges, readers of records, values of sinks, files that hold secrets.


Imports: ``base``, ``sink``, ``spec``. Imported by: the families.
Begin with ``range_stream``.
"""
