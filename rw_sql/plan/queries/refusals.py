"""The errors of queries that cannot be run: at the word that is wrong, where the analysis finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_QUERY, Span, SqlError
from rw_sql.model.relations import relation_of
from rw_sql.plan.queries.analysis.analyze import analyze
from rw_sql.plan.queries.analysis.findings import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.queries.analysis.findings import Finding
    from rw_sql.syntax.statements import Query


def refused_query(
    query: Query, records: Sequence[ObjectRecord], dialect: str, refusal: str, hint: str | None
) -> SqlError:
    """The error for a query that is refused with these words, which stand where the analysis finds nothing.

    Only Spark's analyzer, whose words begin with the condition in brackets, refuses names. A relation that is not in
    the catalog may be Spark's, and a function the user's own.
    """
    if not refusal.startswith("["):
        return SqlError(INVALID_QUERY, refusal, hint=hint, span=query.span)
    is_function = None if "ROUTINE" in refusal else lambda _: True
    inputs = {record.name: [Column(*column) for column in relation_of(record).columns] for record in records}
    found = analyze(query.text, inputs, is_relation=lambda _: True, is_function=is_function, dialect=dialect).findings
    if not found:
        return SqlError(INVALID_QUERY, refusal, hint=hint, span=query.span)
    return SqlError(INVALID_QUERY, found[0].message, hint=found[0].hint, span=place_in_query(query, found[0]))


def query_without_inputs(query: Query, names: Sequence[str], dialect: str, what: str) -> SqlError:
    """The error for the query of ``what`` that reads nothing which can be followed; ``names`` are what could be."""
    found = analyze(query.text, dict.fromkeys(names), dialect=dialect).findings
    unknown = next((finding for finding in found if finding.message.startswith("relation ")), None)
    return SqlError(
        INVALID_QUERY,
        f"the query of {what} reads no source, table or materialized view, and no Delta table",
        span=place_in_query(query, unknown) if unknown is not None else query.span,
        hint=(unknown.hint if unknown is not None else None) or "SHOW SOURCES lists what can be read",
    )


def place_in_query(query: Query, finding: Finding) -> Span:
    """Where a finding stands in the text of the query's statement."""
    whole, before = query.span, query.text[: finding.offset]
    line = whole.line + before.count("\n")
    column = finding.offset - before.rfind("\n") if "\n" in before else whole.column + finding.offset
    start = whole.start + finding.offset
    return Span(start=start, end=start + finding.length, line=line, column=column)
