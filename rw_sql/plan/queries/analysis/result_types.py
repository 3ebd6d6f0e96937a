"""Determines the result types of function calls. The type of a call is None if the type is uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.plan.queries.analysis import data_types as types

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = frozenset({
    "abs", "any_value", "array_distinct", "array_sort", "filter", "first", "first_value", "lag", "last", "last_value",
    "lead", "map_filter", "max", "max_by", "min", "min_by", "mode", "nth_value", "reverse", "shuffle", "slice",
    "sort_array",
})  # fmt: skip
"""Functions whose result has the type of their first argument."""

_SAME = frozenset({"coalesce", "greatest", "ifnull", "least", "nvl"})
"""Functions whose result has the type of the arguments, provided that all arguments have the same type."""

_ALWAYS = {
    "approx_count_distinct": types.BIGINT, "array_contains": types.BOOLEAN, "array_join": types.STRING,
    "concat_ws": types.STRING, "count": types.BIGINT, "count_if": types.BIGINT, "current_date": types.DATE,
    "current_timestamp": types.TIMESTAMP, "date_add": types.DATE, "date_format": types.STRING, "date_sub": types.DATE,
    "day": types.INT, "dense_rank": types.INT, "exists": types.BOOLEAN, "forall": types.BOOLEAN, "hour": types.INT,
    "isnotnull": types.BOOLEAN, "isnull": types.BOOLEAN, "length": types.INT, "md5": types.STRING, "minute": types.INT,
    "month": types.INT, "ntile": types.INT, "rank": types.INT, "row_number": types.INT, "session_window": types.WINDOW,
    "size": types.INT, "to_json": types.STRING, "window": types.WINDOW, "year": types.INT,
}  # fmt: skip


def result_type(call: exp.Anonymous, arguments: Sequence[exp.DataType | None]) -> exp.DataType | None:
    """Returns the result type of a call, given the types of the call's arguments; None if the result type is
    uncertain."""
    name = call.name.lower()
    first = arguments[0] if arguments else None
    if name in _FIRST:
        return first
    if name in _SAME:
        return first if all(kind == first for kind in arguments) else None
    match name:
        case "if":
            return arguments[1] if len(arguments) == 3 and arguments[1] == arguments[2] else None
        case "sum":
            return types.BIGINT if types.is_integer(first) else (first if first == types.DOUBLE else None)
        case "avg" | "mean":
            return types.DOUBLE if types.is_integer(first) or first == types.DOUBLE else None
        case "collect_list" | "collect_set" | "array_agg":
            return types.array_of(first)
        case "transform":
            return types.array_of(arguments[1]) if len(arguments) == 2 else None
        case "element_at" | "try_element_at":
            return types.element_of(first)
        case "struct":
            return _struct(_names(call.expressions), arguments)
        case "named_struct":
            keys = [key.name if isinstance(key, exp.Literal) else "" for key in call.expressions[::2]]
            return _struct(keys, arguments[1::2])
        case "date_add" if len(arguments) != 2:
            return None  # with a unit of time, the call is another function
    return _ALWAYS.get(name)


def parameter_types(name: str, before: Sequence[exp.DataType | None]) -> tuple[exp.DataType | None, ...]:
    """The types of a lambda's parameters. ``name`` is the function that receives the lambda, and ``before`` are the
    types of the arguments before the lambda."""
    first = before[0] if before else None
    match name:
        case "transform":
            return types.element_of(first) if types.is_array(first) else None, types.INT
        case "filter" | "exists" | "forall" | "any_match":
            return (types.element_of(first), types.INT)
        case "array_sort":
            return (types.element_of(first), types.element_of(first))
        case "aggregate" | "reduce" if len(before) == 2:
            return (None, types.element_of(first))
        case "zip_with" if len(before) == 2:
            return (types.element_of(first), types.element_of(before[1]))
        case "map_filter" | "transform_keys" | "transform_values":
            return (types.key_of(first), types.element_of(first))
    return ()


def _names(arguments: Sequence[exp.Expr]) -> list[str]:
    """The field names that ``struct(…)`` derives from its arguments. The name is ``""`` if it is uncertain."""
    return [
        argument.alias
        if isinstance(argument, exp.Alias)
        else (argument.name if isinstance(argument, exp.Column) and not argument.is_star else "")
        for argument in arguments
    ]


def _struct(names: Sequence[str], kinds: Sequence[exp.DataType | None]) -> exp.DataType | None:
    if len(names) != len(kinds) or not all(names) or any(kind is None for kind in kinds):
        return None
    return types.struct_of([(name, kind) for name, kind in zip(names, kinds, strict=True) if kind is not None])
