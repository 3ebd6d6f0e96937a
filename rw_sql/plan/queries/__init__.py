"""The queries of views and sinks: their inputs, the maintenance of their tables, and the offsets that they filter by.

The room ``analysis`` finds wrong names, functions and groups in a query without Spark.

Imports: ``checks``, ``ports``, ``model``, and ``syntax.query``, which reads the queries' trees.
Imported by: ``statements``, ``runtime``.
Begin with ``view_query``.
"""
