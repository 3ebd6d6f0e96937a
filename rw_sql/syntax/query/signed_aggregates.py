"""Rewrites aggregates to forms that can be maintained from a stream of rows or of signed changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.query.trees import aggregates_of, counts_rows, expression, spark_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

SIGN = "_rw_sign"
"""A column of signed changes: 1 for a row that was added to an input, and -1 for a removed row."""


def distinct_arguments(core: exp.Select) -> list[exp.Expr]:
    """The arguments of the aggregates with DISTINCT."""
    from sqlglot import exp

    calls = (found.this if isinstance(found, exp.Filter) else found for found in aggregates_of(core))
    return [argument for call in calls if isinstance(call.this, exp.Distinct) for argument in call.this.expressions]


def count_distinct_by_sets(core: exp.Select, types: Mapping[str, str]) -> bool:
    """Rewrites count(DISTINCT …) as the size of a set. Returns False if any other aggregate uses DISTINCT, or if
    Spark's set may contain the same value twice.

    ``types`` are the Spark types of the arguments.
    """
    from sqlglot import exp

    for found in aggregates_of(core):
        call = found.this if isinstance(found, exp.Filter) else found
        distinct = call.this
        if not isinstance(distinct, exp.Distinct):
            continue
        given = [(part, types.get(spark_sql(part), "")) for part in distinct.expressions]
        if not isinstance(call, exp.Count) or any("<" in kind and _has_floats(kind) for _, kind in given):
            return False
        values = [_one_zero(part) if _has_floats(kind) else part.copy() for part, kind in given]
        if len(values) == 1:
            (value,) = values
        else:
            present = exp.and_(*(exp.Not(this=exp.Is(this=part.copy(), expression=exp.Null())) for part, _ in given))
            struct = exp.Anonymous(this="struct", expressions=values)
            value = exp.Case(ifs=[exp.If(this=present, true=struct)])
        collected: exp.Expr = exp.Anonymous(this="collect_set", expressions=[value])
        if isinstance(found, exp.Filter):
            collected = exp.Filter(this=collected, expression=found.expression.copy())
        size = exp.Anonymous(this="size", expressions=[collected])
        found.replace(exp.cast(size, "BIGINT", dialect="spark"))
    return True


def _has_floats(kind: str) -> bool:
    return "DOUBLE" in kind or "FLOAT" in kind


def _one_zero(value: exp.Expr) -> exp.Expr:
    """Returns a floating-point value as text. The texts of two values are equal if and only if DISTINCT treats the
    values as equal.

    Up to Spark 4.1, a set may contain NaN several times.
    """
    text = spark_sql(value)
    return expression(f"CASE WHEN ({text}) = 0 THEN '0' ELSE CAST(({text}) AS STRING) END")


def signable(found: exp.Expr) -> exp.Expr | None:
    """Returns the argument of a sum or avg. For a count, returns an SQL NULL, because the type of a count's argument is
    not needed. For all other aggregates, including those with DISTINCT, returns None."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    argument = call.this
    if isinstance(argument, exp.Distinct) or call.expressions:
        return None
    match call:
        case exp.Count():
            return None if isinstance(argument, exp.Star) and not counts_rows(call) else exp.Null()
        case exp.CountIf():
            return exp.Null()
        case exp.Sum() | exp.Avg():
            taken: exp.Expr = argument
            return taken
        case _:
            return None


_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")

EXACT_WHOLE = "DECIMAL(20, 0)"
"""The type to which whole numbers are converted before they are added for an average. The sum of BIGINT values may
exceed BIGINT, and a sum of DOUBLE values would not be exact."""


def signed(found: exp.Expr, types: Mapping[str, str]) -> exp.Expr | None:
    """Rewrites an aggregate so that it adds added rows and subtracts removed rows. Returns None if subtraction may be
    inexact for the type of the aggregate's argument."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    condition = f" AND {spark_sql(exp.paren(found.expression.this.copy()))}" if isinstance(found, exp.Filter) else ""
    argument = spark_sql(exp.paren(call.this.copy()))
    match call:
        case exp.Count() if counts_rows(call):
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
