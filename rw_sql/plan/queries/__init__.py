"""Plans the queries of views and sinks. The package finds the inputs of a query, chooses how the query's result is kept
up to date, and derives the offsets to which the query's predicates limit a read.

The package ``analysis`` finds wrong names, functions and groups in a query without Spark.

Imports: ``checks``, ``ports``, ``model``, and ``syntax.query``, which reads the queries' trees. Begin with
``view_query``.
"""
