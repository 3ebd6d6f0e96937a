"""Determines the positions of readers, from the commits of logs and from checkpoints, and the ranges of offsets that
a log contains.

Imports: ``jobs``, ``delta``, ``decoding``, ``support``. Begin with ``shared`` (the position of a shared source) and
``progress`` (how far a query has come).
"""
