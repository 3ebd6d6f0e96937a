"""Implements ``rw-sql source``, which shows sources and moves their positions without Spark. The warehouse's owner
applies a move.

This package imports mainly ``syntax``, ``plan``, ``session``, ``terminal`` and ``interface``. Begin with ``command``.
The module ``statements`` makes the SQL statement of each command, and ``running`` runs this statement.
"""
