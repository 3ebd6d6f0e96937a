"""Access to Spark: sessions of jobs, result frames, analysis of queries, interrupts, the cache of jars.

Imports: ``support``. Imported by: every room above, and ``session``. Begin with ``sessions``.
"""
