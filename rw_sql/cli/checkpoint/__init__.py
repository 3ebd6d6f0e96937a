"""Implements ``rw-sql checkpoint``, which shows and moves the positions of a streaming query that rw_sql did not
create.

This package imports mainly ``checkpoints``, ``plan``, ``runtime``, ``session``, ``terminal`` and ``interface``. Begin
with ``command``. The module ``running`` plans and executes the SQL statement of each command.
"""
