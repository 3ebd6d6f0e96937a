"""Code that several connector families use: streams of ranges, readers of records, conversions of a sink's values,
files with secrets.

Imports: ``base``, ``sink``, ``spec``. Begin with ``range_stream``.
"""
