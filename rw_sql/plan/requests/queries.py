"""What lowering asks of Spark: what it makes of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator

    from rw_sql.errors import ErrorCode
    from rw_sql.model.relations import Relation

STREAM, UPSERT, WHOLE = "stream", "upsert", "whole"
"""What a query is analyzed as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeQuery:
    """What Spark makes of a query over ``relations``.

    As ``STREAM``, which Spark keeps up to date by itself; as ``UPSERT``, the same for one whose keys are known and
    whose aggregation nothing filters; as ``WHOLE``, over tables that stand still. ``closes_windows``: a window's row
    comes once, when the watermark has passed its end (EMIT ON WINDOW CLOSE). ``same_as`` is a text that should mean the
    same.
    """

    query: str
    relations: tuple[Relation, ...]
    closes_windows: bool = False
    form: str = STREAM
    same_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnalysis:
    """The answer: the result's schema as Spark's JSON, the columns a row is replaced by (none: appended), or a refusal.

    To ``refusal`` belong its ``hint``, its ``kind`` (None: the query cannot be kept up to date), the ``word`` of the
    query that it is about and which of these words it is (``nth``, from 0), and the ``relation`` that is missing.
    Of a WHOLE query ``operators`` are the names that Spark has for the steps of it.
    ``varies`` is what in a query gives another result each time, if anything does, and ``varies_in`` the step that it
    is in where that is more than a column of a projection. ``is_same``: the other text means the same.
    """

    schema: str = ""
    keys: tuple[str, ...] = ()
    refusal: str | None = None
    hint: str | None = None
    kind: ErrorCode | None = None
    word: str = ""
    nth: int = 0
    relation: str = ""
    operators: frozenset[str] = frozenset()
    varies: str | None = None
    varies_in: str | None = None
    is_same: bool = True


def analysis(
    query: str, relations: tuple[Relation, ...], *, closes_windows: bool = False, form: str = STREAM, same_as: str = ""
) -> Generator[AnalyzeQuery, object, QueryAnalysis]:
    """Asks what Spark makes of a query."""
    request = AnalyzeQuery(query=query, relations=relations, closes_windows=closes_windows, form=form, same_as=same_as)
    return ask(request, QueryAnalysis)
