"""Reads, rewrites and restores checkpoints of Structured Streaming queries that were made without rw_sql.

The package only reads and writes files, through fsspec. It needs neither Spark nor Java nor a catalog.

Imports: ``errors``. Begin with ``checkpoint`` and ``rewriting``.
"""
