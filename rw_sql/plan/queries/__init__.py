"""Plans the queries of views and sinks. For each query, the package finds the inputs and chooses how the result is kept
up to date. It also derives, from a query's predicates, the range of offsets that must be read.

The subpackage ``analysis`` finds wrong names, functions and groupings in a query without Spark.

This package may import only ``checks``, ``ports``, ``model``, and the layers below ``model``. One of these is
``syntax.query``, which parses queries. Begin with ``view_query``.
"""
