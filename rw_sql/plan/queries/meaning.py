"""Compares the queries and expressions of two definitions, which may be in different SQL dialects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord
from rw_sql.model.definitions import sink_definition
from rw_sql.model.object_lookup import spark_query
from rw_sql.syntax.dialect.to_spark import to_spark
from rw_sql.syntax.query.canonical_query import canonical_query
from rw_sql.syntax.statements import Query

if TYPE_CHECKING:
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.statements import Expression


def meaning(query: Query, dialect: str) -> str:
    """Returns the canonical form of a query, in Spark's SQL. ``dialect`` is the dialect in which the query is written.
    Two queries with the same form have the same meaning, even if their dialects differ.

    If a query cannot be translated to Spark's SQL, its form differs from the form of every query in Spark's SQL.
    """
    if dialect == "spark":
        return canonical_query(query.text)
    try:
        return canonical_query(to_spark(query).text)
    except SqlError:
        return f"{dialect}: {canonical_query(query.text, dialect)}"


def expression_meaning(expression: Expression, dialect: str) -> str:
    """Returns the canonical form of an expression, in Spark's SQL; see :func:`meaning`."""
    return meaning(Query(text=f"SELECT {expression.text} AS x", span=expression.span), dialect)


def dialect_of(record: ObjectRecord) -> str:
    """The dialect of the query or the expressions in an object's definition: 'spark' or 'risingwave'.

    The record of a sink does not contain the dialect. The dialect of a sink is therefore the dialect in which the
    definition's query has the same meaning as the stored query.
    """
    if isinstance(record, MaterializedViewRecord):
        return record.dialect
    if isinstance(record, SinkRecord) and record.query:
        query = sink_definition(record.definition).query
        runs = canonical_query(record.query)
        if query is not None and _as_stored(query, "spark", record) != runs == _as_stored(query, "risingwave", record):
            return "risingwave"
    return "spark"


def _as_stored(query: Query, dialect: str, record: SinkRecord) -> str | None:
    """Reads a sink's query in the given dialect, and returns its canonical form with the input names of the stored
    query. Returns None if the query cannot be translated."""
    try:
        text = query.text if dialect == "spark" else to_spark(query).text
    except SqlError:
        return None
    return canonical_query(spark_query(text, re.findall(r"`([^`]+\.[^`]+)`", record.query or "")))
