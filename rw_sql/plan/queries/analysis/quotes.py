"""Finds strings in double quotes that were probably meant as columns.

In RisingWave and PostgreSQL, ``"check"`` is a column. In Spark's SQL, ``"check"`` is the string ``'check'``, so Spark
reports no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import INVALID_QUERY
from rw_sql.plan.queries.analysis.functions import AGGREGATE, WINDOW, builtins
from rw_sql.syntax.lexing.identifiers import literal, quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.plan.queries.analysis.findings import Report
    from rw_sql.plan.queries.analysis.reading import Text

_AROUND = (exp.Alias, exp.Cast, exp.Distinct, exp.Paren)
_KEYS = (exp.Cube, exp.Group, exp.GroupingSets, exp.Ordered, exp.Rollup)
_ARITHMETIC = (exp.Add, exp.Div, exp.IntDiv, exp.Mod, exp.Mul, exp.Neg, exp.Sub)
_COMPARISONS = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NEQ, exp.NullSafeEQ)
_TESTS = (exp.Between, exp.ILike, exp.In, exp.Is, exp.Like, exp.RegexpLike)


def refuse_quoted_columns(query: exp.Expr, texts: Iterable[exp.Literal], text: Text, report: Report) -> None:
    """Reports the string literals in double quotes at places where only a column makes sense.

    ``texts`` are the string literals of the query whose text is the name of a column in FROM.
    """
    named = {column.name.lower() for column in query.find_all(exp.Column)}
    for node in texts:
        place = text.place(node)
        if place is None or text.query[place[0]] != '"' or not _is_for_column(node, named):
            continue
        report.add(
            place,
            INVALID_QUERY,
            f'"{node.name}" in double quotes is a string in Spark\'s SQL, not the column',
            f"write {quoted_for_spark(node.name)} for the column, {literal(node.name)} for the text",
        )


def _is_for_column(node: exp.Expr, named: set[str]) -> bool:
    """True if a constant makes no sense at the place of ``node``. ``named`` are the columns that the query names
    elsewhere. An item of SELECT may be a label for such a column, as in ``SELECT "price" AS what, price AS value``."""
    name, parent = node.name.lower(), node.parent
    while isinstance(parent, _AROUND):
        node, parent = parent, parent.parent
    match parent:
        case exp.Select() if node.arg_key == "expressions":
            return name not in named and not parent.is_star
        case exp.Anonymous():
            known = builtins().get(parent.name.lower())
            return known is not None and known.kind in (AGGREGATE, WINDOW) and node is parent.expressions[0]
        case exp.Window():
            return node.arg_key == "partition_by"
    if isinstance(parent, _COMPARISONS):
        return parent.find(exp.Column) is None
    if isinstance(parent, _TESTS):
        return node is parent.this and parent.find(exp.Column) is None
    return isinstance(parent, (*_ARITHMETIC, *_KEYS))
