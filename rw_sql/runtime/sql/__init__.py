"""Makes the warehouse accessible in plain Spark SQL. Creates Spark views of the catalog's objects, and supports SELECT
from a source.

From ``runtime``, this package imports only ``jobs``, ``decoding``, ``delta``, ``spark`` and ``support``.
Begin with ``catalog_views``.
"""
