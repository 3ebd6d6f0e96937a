"""Access to Spark: sessions of jobs, result frames, analysis of queries, interrupts, the cache of jars.

Imports: ``support``. Begin with ``sessions``.
"""
