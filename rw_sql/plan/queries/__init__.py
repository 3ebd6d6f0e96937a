"""The queries of views and sinks: their inputs, how their tables are kept up to date, and the offsets by which they
filter.

The room ``analysis`` finds wrong names, functions and groups in a query without Spark.

Imports: ``checks``, ``ports``, ``model``, and ``syntax.query``, which reads the queries' trees. Begin with
``view_query``.
"""
