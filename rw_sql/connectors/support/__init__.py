"""Code that several connector families use: records and their readers (``records``), conversions of a sink's values,
files with secrets.

Imports: ``base``, ``formats``, ``sink``, ``spec``, ``object_stores``, ``packages``. Begin with ``typed_records``.
"""
