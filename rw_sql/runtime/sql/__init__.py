"""Makes the warehouse accessible in plain Spark SQL: the catalog's views, and SELECT from a source.

Imports: ``jobs``, ``decoding``, ``delta``, ``spark``. Begin with ``catalog_views``.
"""
