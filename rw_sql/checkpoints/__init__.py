"""Reads, rewrites and restores checkpoints of Structured Streaming queries that were made without rw_sql.

The package accesses a checkpoint only through its files, which it reads and writes with fsspec. The package needs no
Spark, no Java and no catalog.

Of the packages of ``rw_sql``, this package may import only ``errors`` and ``object_stores``. Begin with the modules
``checkpoint`` and ``rewriting``.
"""
