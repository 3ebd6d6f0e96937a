"""Makes the warehouse accessible in plain Spark SQL: the catalog's views, and SELECT from a source.

Imports: ``jobs``, ``decoding``, ``delta``, ``spark``. Imported by: ``session``. Begin with ``catalog_views``.
"""
