"""Reads, rewrites and restores checkpoints of Structured Streaming queries that were made without rw_sql.

Works on files only, through fsspec: no Spark, no Java, no catalog.

Imports: ``errors``. Begin with ``checkpoint``, then ``rewriting``.
"""
