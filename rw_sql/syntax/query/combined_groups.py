"""Rewrites an aggregation so that the groups of a batch can be combined with the groups of earlier batches.

Each input row is *lifted* to a group of its own: ``count(*)`` becomes 1, ``sum(x)`` and ``max(x)`` become ``x``. The
result of the aggregation is the combination of all these groups, and two groups with the same key are combined column
by column, in any order: counts and sums are added, of minima the smaller is taken, of maxima the larger one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.query.trees import aggregates_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

KEY, COUNT, SUM, MIN, MAX = "key", "count", "sum", "min", "max"
"""How two groups are combined in a column: both have the same value (KEY), or the result is a function of their values.
COUNT adds, as SUM does; it is 0 where a sum without values is NULL."""

FUNCTIONS = {COUNT: SUM, SUM: SUM, MIN: MIN, MAX: MAX}
"""The aggregate function that combines the values of a column."""

_KEY_TYPES = ("BIGINT", "INT", "SMALLINT", "TINYINT", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_SUM_TYPES = ("BIGINT", "DOUBLE")
_BOUND_TYPES = (*_KEY_TYPES, "FLOAT", "DOUBLE")


def lift(core: exp.Select, keys: Sequence[str], columns: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    """Replaces the select items of an aggregation or DISTINCT of a single relation by lifted ones, and removes the
    grouping.

    ``keys`` are the names of the columns that identify a group, ``columns`` are all columns with their types as DDL.
    Returns how the groups are combined in each column; None if they cannot be combined, in which case ``core`` must not
    be used.
    """
    from sqlglot import exp

    if len(core.expressions) != len(columns):
        return None
    calls = {id(call) for call in aggregates_of(core)}
    lifted: list[exp.Expr] = []
    functions: list[str] = []
    for item, (name, kind) in zip(core.expressions, columns, strict=True):
        inner = item.this if isinstance(item, exp.Alias) else item
        if name in keys:
            if not _has_type(kind, _KEY_TYPES):
                return None
            lifted.append(item)
            functions.append(KEY)
            continue
        found = _lifted(inner, kind) if id(inner) in calls else None
        if found is None:
            return None
        value, function = found
        lifted.append(exp.alias_(exp.cast(value, kind, dialect="spark"), name, quoted=True))
        functions.append(function)
    core.set("expressions", lifted)
    core.set("group", None)
    core.set("distinct", None)
    return tuple(functions)


def _lifted(found: exp.Expr, kind: str) -> tuple[exp.Expr, str] | None:
    """The value of an aggregate for a single row, and the function that combines its values."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    conditions = [found.expression.this] if isinstance(found, exp.Filter) else []
    if isinstance(call.this, exp.Distinct):
        return None
    match call:
        case exp.Count() | exp.CountIf():
            if isinstance(call, exp.CountIf):
                conditions.append(call.this)
            elif not isinstance(call.this, exp.Star):
                conditions += [_is_not_null(part) for part in (call.this, *call.expressions)]
            one: exp.Expr = exp.Literal.number(1)
            return (_if(conditions, one, exp.Literal.number(0)) if conditions else one), COUNT
        case exp.Sum() | exp.Min() | exp.Max() if not call.expressions:
            function = {exp.Sum: SUM, exp.Min: MIN, exp.Max: MAX}[type(call)]
            if not _has_type(kind, _SUM_TYPES if function == SUM else _BOUND_TYPES):
                return None
            return (_if(conditions, call.this, None) if conditions else call.this), function
        case _:
            return None


def _is_not_null(part: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Not(this=exp.Is(this=exp.paren(part), expression=exp.Null()))


def _if(conditions: Sequence[exp.Expr], value: exp.Expr, otherwise: exp.Expr | None) -> exp.Expr:
    from sqlglot import exp

    condition = exp.and_(*(exp.paren(part.copy()) for part in conditions))
    return exp.Case(ifs=[exp.If(this=condition, true=value.copy())], default=otherwise)


def _has_type(kind: str, names: Sequence[str]) -> bool:
    return kind in names or kind.startswith("DECIMAL")
