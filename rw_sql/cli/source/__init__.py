"""Implements ``rw-sql source``, which shows sources and moves their positions without Spark. The warehouse's owner
applies a move.

Imports: ``plan``, ``runtime``, ``session``, ``terminal``, ``interface``. Begin with ``command``. The module
``statements`` makes the SQL statement of each command, and ``running`` runs this statement.
"""
