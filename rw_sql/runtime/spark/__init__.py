"""Code that uses Spark. It includes the sessions of jobs, result frames, the analysis of queries, interrupts, and the
cache of jars.

The module ``query_analysis`` analyzes a query, and ``time_dependence`` finds the parts of a plan that depend on the
current time.

Imports: ``support``. Begin with ``sessions``.
"""
