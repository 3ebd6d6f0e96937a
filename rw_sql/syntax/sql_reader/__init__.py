"""Reads queries and expressions: finds their ends, and checks that they are valid SQL.

It is a recognizer that builds no tree. It accepts the union of RisingWave's (PostgreSQL's) and Spark's SQL, and is
stricter than both where leniency would hide mistakes: reserved words are not names, a join requires its condition.

Imports: ``lexing``. Imported by: ``parsing``. Begin with ``queries``.
"""

from __future__ import annotations

from rw_sql.syntax.sql_reader.queries import QueryReader

__all__ = ["QueryReader"]
