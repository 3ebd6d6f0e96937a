"""Checks that a table can store the columns of a query: each column must have a name, and no two names may be equal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import DUPLICATE_OBJECT, INVALID_QUERY
from rw_sql.plan.queries.analysis.frames import Output
from rw_sql.plan.queries.analysis.functions import CASTS, GENERATOR, TIME_WINDOWS, builtins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.plan.queries.analysis.findings import Report
    from rw_sql.plan.queries.analysis.reading import Text

_UNNAMED = (
    exp.Add, exp.And, exp.Case, exp.DPipe, exp.Div, exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Mod, exp.Mul, exp.NEQ,
    exp.Neg, exp.Not, exp.Or, exp.Sub,
)  # fmt: skip
"""Kinds of expressions for which Spark generates a column name with brackets or spaces, because the name of a column
without an alias is the text of its expression."""

_MOST_WORDS = 3
"""The maximum number of words that a suggested column name takes from the expression."""

_WIDEST = 40
"""The maximum length of an expression that a hint quotes."""


def require_storable(query: exp.Expr, output: Output, text: Text, report: Report) -> None:
    """Reports columns that a table cannot store: columns without a name, and columns with the same name."""
    select = _first_select(query)
    if select is None or output.is_open:
        return
    seen: set[str] = set()
    for item, name in _named_items(select, output):
        if name.lower() in seen:
            report.add(
                text.place(item.args["alias"] if isinstance(item, exp.Alias) else None) or _last_place(item, text),
                DUPLICATE_OBJECT,
                f'column "{name}" occurs more than once',
                f"give one of the two another name: {_short(item)} AS {suggested_name(name)}_2",
            )
        elif name:
            seen.add(name.lower())
        elif _is_surely_unnamed(item):
            written = item.sql(dialect="spark", normalize_functions=False)
            place = text.first_place(item)
            if place is not None and text.query.startswith(written, place[0]):
                place = (place[0], place[0] + len(written))
            shown = written if len(written) <= _WIDEST else "…"
            hint = f"name the column: {shown} AS {suggested_name(written)}"
            report.add(place, INVALID_QUERY, f'column "{written}" needs a name', hint)


def _short(item: exp.Expr) -> str:
    written = (item.this if isinstance(item, exp.Alias) else item).sql(dialect="spark", normalize_functions=False)
    return written if len(written) <= _WIDEST else "…"


def called_as_in_risingwave(query: exp.Expr, output: Output) -> Output:
    """Returns the columns with RisingWave's names for calls without an alias, such as ``count`` for ``count(*)``."""
    select = _first_select(query)
    if select is None or output.is_open or len(select.expressions) != len(output.columns):
        return output
    named = [
        column if column.name else column.moved(name=_called(item))
        for item, column in zip(select.expressions, output.columns, strict=True)
    ]
    return Output(named)


def _called(item: exp.Expr) -> str:
    while isinstance(item, exp.Cast | exp.Filter | exp.Window):
        item = item.this
    return item.name.lower() if isinstance(item, exp.Anonymous | exp.Column) else ""


def _first_select(query: exp.Expr) -> exp.Select | None:
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    return query if isinstance(query, exp.Select) else None


def _last_place(item: exp.Expr, text: Text) -> tuple[int, int] | None:
    """The position of a column's name in the text. The position does not include the qualifier."""
    return text.place(item.this) if isinstance(item, exp.Column) else text.first_place(item)


def _named_items(select: exp.Select, output: Output) -> Iterator[tuple[exp.Expr, str]]:
    """Returns one pair for each output column: the item of the SELECT list, and the name of the column. A star yields
    one pair for each column to which it expands."""
    stars = [i for i, item in enumerate(select.expressions) if isinstance(item, exp.Aliases) or item.is_star]
    many = len(output.columns) - (len(select.expressions) - len(stars))
    if not stars:
        for item, column in zip(select.expressions, output.columns, strict=False):
            yield item, column.name
        return
    if len(stars) == 1:
        before = stars[0]
        for i, column in enumerate(output.columns):
            at = i if i < before else (before if i < before + many else i - many + 1)
            yield select.expressions[at], column.name
        return
    for column in output.columns:
        yield select.expressions[stars[-1]], column.name or "?"


def _is_surely_unnamed(item: exp.Expr) -> bool:
    """True if the name that Spark generates for an item contains brackets or spaces, which a table does not accept."""
    if isinstance(item, exp.Anonymous):
        known = builtins().get(item.name.lower())
        return known is not None and known.kind != GENERATOR and known.name not in (*CASTS, *TIME_WINDOWS)
    return isinstance(item, _UNNAMED)


def suggested_name(written: str) -> str:
    """Suggests a name for an unnamed column: ``sum_amount`` for ``sum(amount)``."""
    name = "_".join(re.findall(r"[a-z0-9]+", written.lower())[:_MOST_WORDS]) or "a_name"
    return f"n_{name}" if name[0].isdigit() else name
