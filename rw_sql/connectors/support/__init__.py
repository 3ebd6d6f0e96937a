"""Code shared by several connector families: streams of ranges, readers of records, values of sinks, files with
secrets.

Imports: ``base``, ``sink``, ``spec``. Begin with ``range_stream``.
"""
