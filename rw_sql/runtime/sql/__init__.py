"""What plain Spark SQL sees of the warehouse: the catalog's views, and scans of a source by SELECT.


Imports: ``jobs``, ``decoding``, ``delta``, ``spark``. Imported by: ``session``.
Begin with ``catalog_views``.
"""
