"""Rewrites aggregates so that a stream of rows, or of signed changes, can maintain them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.query.trees import aggregates_of, expression, spark_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

SIGN = "_rw_sign"
"""The column that is 1 for a row that was added to an input and -1 for a removed row."""


def count_distinct_by_sets(core: exp.Select) -> bool:
    """Rewrites count(DISTINCT …) as the size of a set; returns False if another aggregate uses DISTINCT."""
    from sqlglot import exp

    for found in aggregates_of(core):
        call = found.this if isinstance(found, exp.Filter) else found
        distinct = call.this
        if not isinstance(distinct, exp.Distinct):
            continue
        if not isinstance(call, exp.Count):
            return False
        values = distinct.expressions
        if len(values) == 1:
            value = values[0].copy()
        else:
            present = exp.and_(*(exp.Not(this=exp.Is(this=part.copy(), expression=exp.Null())) for part in values))
            struct = exp.Anonymous(this="struct", expressions=[part.copy() for part in values])
            value = exp.Case(ifs=[exp.If(this=present, true=struct)])
        collected: exp.Expr = exp.Anonymous(this="collect_set", expressions=[value])
        if isinstance(found, exp.Filter):
            collected = exp.Filter(this=collected, expression=found.expression.copy())
        size = exp.Anonymous(this="size", expressions=[collected])
        found.replace(exp.cast(size, "BIGINT", dialect="spark"))
    return True


def signable(found: exp.Expr) -> exp.Expr | None:
    """The argument of a count, sum or avg (an empty expression if it has none); None for other aggregates."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    argument = call.this
    if isinstance(argument, exp.Distinct) or call.expressions:
        return None
    match call:
        case exp.Count():
            return exp.Null()
        case exp.CountIf():
            return exp.Null()
        case exp.Sum() | exp.Avg():
            taken: exp.Expr = argument
            return taken
        case _:
            return None


_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")

EXACT_WHOLE = "DECIMAL(20, 0)"
"""The type as which whole numbers are added for an average. The sum of BIGINT values may exceed BIGINT, and a sum of
DOUBLE values would not be exact."""


def signed(found: exp.Expr, types: Mapping[str, str]) -> exp.Expr | None:
    """Rewrites an aggregate for signed changes: removed rows are subtracted. None if subtraction may be inexact for the
    type of the aggregate's argument."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    condition = f" AND {spark_sql(exp.paren(found.expression.this.copy()))}" if isinstance(found, exp.Filter) else ""
    argument = spark_sql(exp.paren(call.this.copy()))
    match call:
        case exp.Count() if isinstance(call.this, exp.Star):
            return expression(f"COALESCE(SUM(CASE WHEN TRUE{condition} THEN {SIGN} END), 0)")
        case exp.Count():
            return expression(f"COALESCE(SUM(CASE WHEN {argument} IS NOT NULL{condition} THEN {SIGN} END), 0)")
        case exp.CountIf():
            return expression(f"COALESCE(SUM(CASE WHEN {argument}{condition} THEN {SIGN} END), 0)")
    kind = types[spark_sql(call.this)]
    count = f"SUM(CASE WHEN {argument} IS NOT NULL{condition} THEN {SIGN} ELSE 0 END)"
    value = argument
    if kind in _WHOLE:
        value = f"CAST({argument} AS {EXACT_WHOLE if isinstance(call, exp.Avg) else 'BIGINT'})"
    plus, minus = f"WHEN {SIGN} > 0{condition} THEN {value}", f"WHEN {SIGN} < 0{condition} THEN -{value}"
    total = f"SUM(CASE {plus} {minus} END)"
    if isinstance(call, exp.Sum) and (kind in _WHOLE or kind.startswith("DECIMAL")):
        return expression(f"CASE WHEN {count} > 0 THEN {total} END")
    if isinstance(call, exp.Avg) and kind in _WHOLE:
        return expression(f"CASE WHEN {count} > 0 THEN CAST({total} AS DOUBLE) / CAST({count} AS DOUBLE) END")
    return None
