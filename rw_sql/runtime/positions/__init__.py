"""Determines the positions of readers, and the ranges of offsets that a log contains. The positions and the ranges are
read from the commits of logs and from checkpoints. ``flush_position`` stores the position that a FLUSH waits for.

Imports: ``jobs``, ``delta``, ``decoding``, ``support``. Begin with ``shared`` (the position of a shared source) and
``progress`` (how far a query has come).
"""
