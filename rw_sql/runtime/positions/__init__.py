"""Where readers are: positions from commits of logs and from checkpoints, and which ranges a log holds.


Imports: ``jobs``, ``delta``, ``decoding``, ``support``. Imported by: nearly every room above.
Begin with ``shared`` (the position of a shared source) and ``progress`` (how far a query has come).
"""
