"""``rw-sql source``: shows sources and moves their positions, without Spark; the warehouse's owner applies a move.

Imports: ``plan``, ``runtime``, ``session``, ``terminal``, ``interface``. Begin with ``command``: ``statements`` makes
the SQL statement of each command, and ``running`` runs it.
"""
