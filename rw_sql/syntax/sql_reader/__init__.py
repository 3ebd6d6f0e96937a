"""Reads queries and expressions. The reader finds their ends, and checks that they are valid SQL.

The reader only recognizes SQL and does not build a tree. The reader accepts RisingWave's SQL (which follows PostgreSQL)
and Spark's SQL. The reader is stricter than both dialects where leniency would hide mistakes. For example, reserved
words are not names, and a join requires a condition.

From ``syntax``, this package imports only ``lexing``. Begin with ``queries``, ``tables`` (FROM) and ``expressions``.
"""

from __future__ import annotations

from rw_sql.syntax.sql_reader.queries import QueryReader

__all__ = ["QueryReader"]
