"""Access to Spark: sessions of jobs, result frames, analysis of queries, interrupts, the cache of jars.

``query_analysis`` analyzes a query, and ``time_dependence`` finds the parts of a plan that depend on the current time.

Imports: ``support``. Begin with ``sessions``.
"""
