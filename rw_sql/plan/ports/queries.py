"""Defines the port for Spark's analysis of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.errors import ErrorCode
    from rw_sql.model.relations import Relation

STREAM, UPSERT, WHOLE = "stream", "upsert", "whole"
"""The values of :attr:`AnalyzedQuery.form`. The docstring of :class:`AnalyzedQuery` describes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzedQuery:
    """The parameters of :meth:`QueryPort.analyze`, as one value.

    ``form`` is ``STREAM`` or ``UPSERT`` for a query whose result Spark itself keeps up to date, and ``WHOLE`` for a
    batch query. ``UPSERT`` is the form of an unfiltered aggregation with known keys. If ``closes_windows`` is True, the
    query returns the row of each window only once, when the watermark passes the window's end (EMIT ON WINDOW CLOSE).
    ``same_as`` is the text of a second query; the analysis tests whether it is equivalent to the first.
    """

    query: str
    relations: tuple[Relation, ...]
    closes_windows: bool = False
    form: str = STREAM
    same_as: str = ""


TABLESAMPLE = "TABLESAMPLE"
"""The value of ``QueryAnalysis.varies`` for a query that draws a sample of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnalysis:
    """The result of an analysis. If the query is accepted, ``schema`` is its schema as Spark's JSON, and ``keys`` are
    its key columns (empty if rows are only appended). Otherwise, ``refusal`` states why the query is refused. If the
    only reason is a type that a table cannot store, the result also contains the schema.

    ``hint`` and ``kind`` are the hint and the kind of the error for the refusal. ``word`` is the word of the query to
    which Spark points, and ``relation`` is the relation that does not exist. ``kind`` is None if Spark accepts the
    query but the result cannot be kept up to date. ``operators`` are Spark's names for the steps of a ``WHOLE`` query,
    from the last step back to the first aggregation. ``aggregates`` are Spark's names for the aggregate functions of an
    ``UPSERT`` query. ``varies`` is the non-deterministic part of the query, if there is one; ``TABLESAMPLE`` stands for
    a sample of rows. ``varies_in`` is the step that contains this part; None if the part is only a projected column.
    ``is_same`` is True if the query in ``same_as`` is equivalent.
    """

    schema: str = ""
    keys: tuple[str, ...] = ()
    refusal: str | None = None
    hint: str | None = None
    kind: ErrorCode | None = None
    word: str = ""
    relation: str = ""
    operators: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    varies: str | None = None
    varies_in: str | None = None
    is_same: bool = True


class QueryPort(Protocol):
    """The port for Spark's analysis of queries."""

    def analyze(
        self,
        query: str,
        relations: tuple[Relation, ...],
        *,
        closes_windows: bool = False,
        form: str = STREAM,
        same_as: str = "",
    ) -> QueryAnalysis:
        """Analyzes a query that reads ``relations``. The docstring of :class:`AnalyzedQuery` describes the parameters.

        Does not run the query.
        """
        ...
