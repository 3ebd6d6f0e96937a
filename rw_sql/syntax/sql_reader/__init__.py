"""Reads queries and expressions. The reader finds their ends, and checks that they are valid SQL.

The reader is a recognizer and does not build a tree. The reader accepts the union of RisingWave's (PostgreSQL's) and
Spark's SQL. It is stricter than both languages in cases in which leniency would hide mistakes. For example, reserved
words are not names, and a join requires a condition.

Imports: ``lexing``. Begin with ``queries``, ``tables`` (FROM) and ``expressions``.
"""

from __future__ import annotations

from rw_sql.syntax.sql_reader.queries import QueryReader

__all__ = ["QueryReader"]
