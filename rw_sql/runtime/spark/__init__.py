"""Contains the code that accesses Spark: the sessions of jobs, result frames, the analysis of queries, the handling of
Ctrl-C, and the cache of jars.

The module ``query_analysis`` analyzes a query, and ``time_dependence`` finds the parts of a plan that depend on the
current time.

From ``runtime``, this package may import only ``support``. Begin with ``sessions``.
"""
