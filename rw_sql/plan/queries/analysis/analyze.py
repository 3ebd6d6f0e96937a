"""Defines the entry point of the analysis: :func:`analyze` analyzes one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.queries.analysis.data_types import ddl_of
from rw_sql.plan.queries.analysis.findings import Analysis, Column, Finding, Report
from rw_sql.plan.queries.analysis.names import Known
from rw_sql.plan.queries.analysis.other_dialects import refuse_other_dialects
from rw_sql.plan.queries.analysis.quotes import refuse_quoted_columns
from rw_sql.plan.queries.analysis.reading import Text
from rw_sql.plan.queries.analysis.selects import QueryChecker
from rw_sql.plan.queries.analysis.storing import called_as_in_risingwave, require_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def analyze(
    query: str,
    inputs: Mapping[str, Sequence[Column] | None],
    *,
    is_relation: Callable[[str], bool] | None = None,
    is_function: Callable[[str], bool] | None = None,
    is_stored: bool = False,
    has_strict_quotes: bool = False,
    dialect: str = "spark",
) -> Analysis:
    """Finds a query's output columns and errors, as far as they can be determined with certainty without Spark.

    ``inputs`` maps the name of each relation that the query may read to the relation's columns, or to None if the
    columns are not known. Names are not case-sensitive. The query may also name relations that are not in ``inputs``.
    For each of these names, as it is written in the query, ``is_relation`` returns True if Spark has the relation. If
    ``is_relation`` is None, each of these names is a finding if it has no schema or the schema ``public``.
    ``is_function`` returns True if a user-defined function with the given lower-case name may exist. If ``is_stored``
    is True, a table stores the columns, so each column needs a unique name. If ``has_strict_quotes`` is True, a string
    literal in double quotes is a finding if its text is the name of a column, and if only a column makes sense at its
    place. If ``dialect`` is ``"risingwave"``, the analysis does not check functions.

    If sqlglot cannot parse a query, the result has no columns and is not complete. In this case, the findings are only
    about operators and types that Spark does not have.
    """
    report = Report()
    text = Text(query, dialect)
    if dialect == "spark":
        refuse_other_dialects(text, report)
    if text.tree is None:
        return Analysis(findings=_sorted(report), is_complete=False)
    known = Known(
        relations={name.lower(): columns for name, columns in inputs.items()},
        is_relation=is_relation,
        is_function=is_function,
        has_functions=dialect == "spark",
    )
    checker = QueryChecker(text, known, report)
    try:
        output = checker.query(text.tree, None)
        if dialect == "risingwave":
            output = called_as_in_risingwave(text.tree, output)
        if has_strict_quotes:
            refuse_quoted_columns(text.tree, checker.texts, text, report)
        if is_stored:
            require_storable(text.tree, output, text, report)
    except RecursionError:
        return Analysis(is_complete=False)
    columns = None
    if not output.is_open:
        columns = tuple(Column(column.name, ddl_of(column.data_type)) for column in output.columns)
    return Analysis(findings=_sorted(report), columns=columns, is_complete=report.is_complete)


def _sorted(report: Report) -> tuple[Finding, ...]:
    return tuple(sorted(report.findings.values(), key=lambda finding: finding.offset))
