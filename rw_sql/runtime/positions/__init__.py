"""Determines the positions of readers, and the ranges of offsets that a log contains. The positions and the ranges are
read from the commits of logs and from checkpoints. The module ``flush_position`` stores the position for which a FLUSH
waits.

From ``runtime``, this package may import only ``jobs`` and those below it, such as ``delta``,
``decoding`` and ``support``. Begin with ``shared`` (the position of a shared source) and ``progress`` (the progress of
a query).
"""
