"""Checks Spark statements. The module finds changes to rw_sql's objects, wrong columns in a SELECT from these objects,
and rw_sql statements in a Spark block ``BEGIN … END``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_IN_A_BLOCK, UNDEFINED_COLUMN, Span, SqlError
from rw_sql.metastore.location import SCHEMA_NAME
from rw_sql.model.object_lookup import is_schema
from rw_sql.plan.checks.spark_changes import (
    catalog_refusal,
    change_refusal,
    companion_owner,
    companion_refusal,
    found_object,
    schema_refusal,
)
from rw_sql.plan.offline.queries import read_query
from rw_sql.syntax.dialect.spark_changes import DROP_DATABASE, changed_names
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.lexing.tokens import span_of
from rw_sql.syntax.routing import ours_in_block
from rw_sql.syntax.statements import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.syntax.dialect.spark_changes import Changed

_HIDDEN = "_rw_"
_SELECT = re.compile(rf"{BLANK}*+(?:\({BLANK}*+)*+(?:SELECT|WITH)\b", re.IGNORECASE)


def refused_changes(
    text: str, snapshot: Snapshot, *, search_path: Sequence[str], of_spark: Collection[str]
) -> list[SqlError]:
    """The errors that a session would raise because the statement would change rw_sql's objects.

    ``of_spark`` are the tables and views that earlier statements created in Spark. These tables and views hide rw_sql's
    objects of the same name.
    """
    refusals = (_refusal(change, snapshot, search_path, of_spark) for change in changed_names(text))
    return [refusal for refusal in refusals if refusal is not None]


def _refusal(
    change: Changed, snapshot: Snapshot, search_path: Sequence[str], of_spark: Collection[str]
) -> SqlError | None:
    if change.is_path:
        return None
    *front, name = (part.casefold() for part in change.parts)
    database = front[-1] if front else ""
    if change.verb == DROP_DATABASE:
        if name == SCHEMA_NAME:
            return catalog_refusal(change, name)
        return schema_refusal(change, name) if is_schema(snapshot, name) else None
    if database == SCHEMA_NAME:
        return catalog_refusal(change, f"{database}.{name}")
    if name in of_spark or len(front) > 1 or database not in ("", "default", *_schemas(snapshot)):
        return None
    schemas = [database] if database else search_path
    for schema in schemas:
        key = name if schema in ("default", PUBLIC) else f"{schema}.{name}"
        record = found_object(snapshot, key)
        if record is not None:
            return change_refusal(change, record)
        owner = companion_owner(snapshot, key)
        if owner is not None:
            return companion_refusal(change, key, owner)
    return None


def _schemas(snapshot: Snapshot) -> list[str]:
    return [PUBLIC, *(record.name for record in snapshot.all("schema"))]


def refused_in_block(text: str) -> Iterator[SqlError]:
    """The errors for rw_sql statements in a Spark block ``BEGIN … END``."""
    for start, end in ours_in_block(text):
        words = re.sub(rf"{BLANK}++", " ", text[start:end]).upper()
        words += " VIEW" if words.endswith(" MATERIALIZED") else ""
        yield SqlError(
            NOT_IN_A_BLOCK,
            f"{words} cannot run inside a BEGIN … END block of Spark",
            span=span_of(text, start, end),
            hint="write the statement before or after the block",
        )


def wrong_columns(
    text: str,
    snapshot: Snapshot,
    *,
    unknown: Collection[int],
    of_spark: Collection[str],
    functions: Collection[str],
) -> tuple[list[SqlError], bool]:
    """Returns two results: the errors of a SELECT from rw_sql's objects, and whether the SELECT could be checked
    completely.

    A relation that is not an object of rw_sql may be a Spark table or view, whose columns are not known.
    """
    if not _SELECT.match(text):
        return [], False
    query = Query(text=text, span=Span(0, len(text), 1, 1))
    reading = read_query(
        query,
        snapshot,
        dialect="spark",
        unknown=unknown,
        of_spark=of_spark,
        functions=functions,
        names_columns=False,
        may_read_spark=True,
    )
    found = [error for error in reading.errors if not _is_about_position(error, text)]
    return found, reading.columns is not None and not reading.errors and not reading.calls_own


def _is_about_position(error: SqlError, text: str) -> bool:
    """True if an error is about a hidden column such as ``_rw_offset``. The caller ignores such an error, because a
    SELECT from a source can use these columns."""
    return error.kind is UNDEFINED_COLUMN and error.span is not None and text.startswith(_HIDDEN, error.span.start)
