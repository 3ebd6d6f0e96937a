"""Where in a statement stands what Spark names of a query: the query that Spark reads may be a translation of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_QUERY, UNDEFINED_OBJECT, Span, SqlError, near_names
from rw_sql.model.names import RELATION_KINDS
from rw_sql.syntax.parsing.script import span_of, without_strings

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.requests.queries import QueryAnalysis
    from rw_sql.syntax.statements import Query


def occurrences(text: str, word: str) -> list[int]:
    """Where a text of Spark's SQL has a word, outside of strings and comments."""
    if not word:
        return []
    pattern = re.compile(rf"(?<![\w$]){re.escape(word)}(?![\w$])", re.IGNORECASE)
    return [found.start() for found in pattern.finditer(without_strings(text))]


def place_of(query: Query, word: str, nth: int = 0) -> Span:
    """The ``nth`` (from 0) place in the statement where its query has a word; where it has none, the whole query."""
    found = occurrences(query.text, word)
    if not found:
        return query.span
    start = found[nth] if nth < len(found) else found[0]
    inner = span_of(query.text, start, start + len(word))
    column = inner.column + query.span.column - 1 if inner.line == 1 else inner.column
    return Span(inner.start + query.span.start, inner.end + query.span.start, inner.line + query.span.line - 1, column)


def refused_query(snapshot: Snapshot, query: Query, found: QueryAnalysis) -> SqlError:
    """The error for a query that Spark refuses."""
    if found.kind is UNDEFINED_OBJECT and found.relation:
        return missing_relation(snapshot, query, found.relation, found.nth)
    span = place_of(query, found.word, found.nth) if found.word else query.span
    return SqlError(found.kind or INVALID_QUERY, found.refusal or "", hint=found.hint, span=span)


def missing_relation(snapshot: Snapshot, query: Query, written: str, nth: int = 0) -> SqlError:
    """The error for a relation that is none of the catalog's and none of Spark's."""
    parts = re.findall(r"`((?:[^`]|``)+)`|([^`.\s]+)", written)
    names = [(quoted or bare).replace("``", "`") for quoted, bare in parts] or [written]
    known = {record.name for kind in RELATION_KINDS for record in snapshot.all(kind)}
    near = near_names(names[-1].lower(), known, most=1)
    return SqlError(
        UNDEFINED_OBJECT,
        f'relation "{".".join(names)}" does not exist',
        span=place_of(query, names[-1], nth),
        hint=f'did you mean "{near[0]}"?' if near else "SHOW SOURCES lists what can be read",
    )
