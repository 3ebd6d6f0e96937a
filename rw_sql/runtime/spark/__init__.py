"""Spark itself: the sessions of jobs, frames of results, analysis of queries, interrupts, the cache of jars.


Imports: ``support``. Imported by: every room above, and ``session``.
Begin with ``sessions``.
"""
