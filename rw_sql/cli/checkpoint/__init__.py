"""Implements ``rw-sql checkpoint``, which shows and moves the positions of a streaming query that rw_sql did not
create.

Imports: ``checkpoints``, ``plan``, ``runtime``, ``session``, ``terminal``, ``interface``. Begin with ``command``. The
module ``running`` plans and executes the SQL statement of each command.
"""
