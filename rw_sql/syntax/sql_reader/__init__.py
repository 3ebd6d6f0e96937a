"""Reads queries and expressions: where they end, and whether they are SQL.

A recogniser and no parser: it builds no tree. It takes the union of RisingWave's (PostgreSQL's) and Spark's SQL, and is
stricter than both where leniency would let slips pass: reserved words are no names, a join needs its condition.

Imports: ``lexing``. Imported by: ``parsing``.
Begin with ``queries``.
"""

from __future__ import annotations

from rw_sql.syntax.sql_reader.queries import QueryReader

__all__ = ["QueryReader"]
