"""Makes the warehouse accessible in plain Spark SQL, through views of the catalog's objects and SELECT from a source.

Imports: ``jobs``, ``decoding``, ``delta``, ``spark``. Begin with ``catalog_views``.
"""
