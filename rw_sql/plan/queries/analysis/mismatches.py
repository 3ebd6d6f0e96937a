"""Finds values whose type a clause, an operator, a cast or a function does not accept. Values whose type is not certain
are not checked.

A value is reported only if Spark's analyzer refuses it both with and without ANSI mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import near_names
from rw_sql.plan.queries.analysis import data_types as types

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_PARTS = "an array or a map"
_ARRAY, _MAP, _TEXT, _NUMBER = "an array", "a map", "a string", "a number"

_FIRST_ARGUMENT = {
    **dict.fromkeys(
        ("cardinality", "element_at", "explode", "explode_outer", "posexplode", "posexplode_outer", "size"), _WITH_PARTS
    ),
    **dict.fromkeys(
        (
            "aggregate", "array_contains", "array_distinct", "array_join", "array_max", "array_min", "array_sort",
            "exists", "flatten", "forall", "reduce", "sort_array", "transform",
        ),
        _ARRAY,
    ),
    **dict.fromkeys(("map_entries", "map_filter", "map_keys", "map_values"), _MAP),
    **dict.fromkeys(
        ("initcap", "length", "lower", "lpad", "ltrim", "regexp_replace", "replace", "rpad", "rtrim", "split", "upper"),
        _TEXT,
    ),
    **dict.fromkeys(("avg", "mean", "sum"), _NUMBER),
}  # fmt: skip
"""Maps each function to the required type of its first argument."""

_CASTING = ("HAVING", "QUALIFY")
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike)

_WIDEST = 40
"""The maximum length of a type's name in a message. If the full name is longer, the message omits the type's parts."""

_LONGEST = 40
"""The maximum length of an expression that a message quotes."""

_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(?:[+-]?\s*\d+(?:\.\d*)?\s+(?P<unit>[a-z]+)\s*)+", re.IGNORECASE)
_UNIT_IN_INTERVAL = re.compile(r"[a-z]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Written:
    """The text of an expression for use in messages. A text longer than ``_LONGEST`` is replaced with ``…``.

    The text is generated only when a message needs it. For a long chain of operators, generating the texts of all
    operands would take quadratic time.
    """

    node: exp.Expr

    def __str__(self) -> str:
        written = self.node.sql(dialect="spark", normalize_functions=False)
        return written if len(written) <= _LONGEST else "…"


def condition(kind: exp.DataType | None, written: Written, place: str) -> tuple[str, str] | None:
    """Returns the message and the hint for a value that cannot be a condition, or None if there is no certain error.
    ``place`` is the clause that contains the value.

    In HAVING, Spark casts the value to BOOLEAN, so a value in HAVING is reported only if the cast is impossible.
    """
    is_certain = types.has_parts(kind) or (place not in _CASTING and kind is not None and types.is_scalar(kind))
    if kind == types.BOOLEAN or not is_certain:
        return None
    compared = f"{written} <> 0" if types.is_number(kind) else f"{written} IS NOT NULL"
    return f"{place} needs a condition, but {_described(kind, written)}", f"write a comparison: {compared}"


def operation(
    node: exp.Expr, kinds: Sequence[exp.DataType | None], written: Sequence[Written]
) -> tuple[int, str, str] | None:
    """Checks an operator's operands. For an error, returns the index of the wrong operand, the message and the hint.
    Returns None if there is no error."""
    sign = next((sign for kind, sign in _ARITHMETIC.items() if type(node) is kind), None)
    if sign is not None or isinstance(node, exp.Neg):
        for number, kind in enumerate(kinds):
            if types.has_parts(kind) or kind == types.BOOLEAN:
                message = f'"{sign or "-"}" needs numbers, but {_described(kind, written[number])}'
                return number, message, _as_number(kind, written[number])
    elif isinstance(node, _PATTERNS) and kinds and types.has_parts(kinds[0]):
        return (
            0,
            f"{_called(node)} needs a string, but {_described(kinds[0], written[0])}",
            _as_text(kinds[0], written[0]),
        )
    elif isinstance(node, _COMPARISONS) and len(kinds) == 2:
        for number, kind in enumerate(kinds):
            other = kinds[1 - number]
            if types.has_parts(kind) and other is not None and types.is_scalar(other):
                message = f"{_described(kind, written[number])} and cannot be compared with {_shown(other)}"
                return number, message, _one_value(kind, written[number], written[1 - number])
    return None


def cast(given: exp.DataType | None, wanted: exp.DataType, written: Written) -> tuple[str, str] | None:
    """Returns the message and the hint for a cast between a type with parts (array, map, struct) and a type without
    parts; None for any other cast."""
    if given is None or given == wanted or types.is_text(wanted):
        return None
    if types.has_parts(given) and types.is_scalar(wanted):
        return (
            f"{_described(given, written)} and cannot be cast to {_shown(wanted)}",
            f"cast a part of it: {_part(given, written)}",
        )
    if types.is_scalar(given) and types.has_parts(wanted):
        shown = types.ddl_of(wanted)
        hint = f"from_json({written}, '{shown}') reads JSON" if types.is_text(given) else f"omit the cast of {written}"
        return f"{_described(given, written)} and cannot be cast to {shown}", hint
    return None


def first_argument(name: str, kind: exp.DataType | None, written: Written) -> tuple[str, str] | None:
    """Returns the message and the hint if a function does not accept the type of its first argument; otherwise None."""
    wanted = _FIRST_ARGUMENT.get(name)
    if wanted is None or kind is None:
        return None
    message = f'function "{name}" takes {wanted}, but {_described(kind, written)}'
    match wanted:
        case "a number":
            if types.has_parts(kind) or kind == types.BOOLEAN:
                return message, _as_number(kind, written)
        case "a string":
            if types.has_parts(kind):
                return message, _as_text(kind, written)
        case _:
            takes = {_ARRAY: types.is_array, _MAP: types.is_map}.get(wanted, types.is_array_or_map)
            if not takes(kind) and (types.is_scalar(kind) or types.has_parts(kind)):
                made = f"split({written}, ',') makes an array from a string" if types.is_text(kind) else f"omit {name}"
                return message, made if wanted != _MAP else f"map(…) or str_to_map(…) makes a map, not {written}"
    return None


def interval(text: str) -> tuple[str, str] | None:
    """Returns the message and the hint if Spark cannot parse the length of a time window; otherwise None. Units may be
    in the singular or the plural."""
    given = [unit.lower() for unit in _UNIT_IN_INTERVAL.findall(text) if unit.lower() != "interval"]
    unknown = [unit for unit in given if unit.removesuffix("s") not in _UNITS]
    if _INTERVAL.fullmatch(text) and not unknown:
        return None
    for unit in unknown:
        near = near_names(unit, [*_UNITS, *(f"{each}s" for each in _UNITS)], most=1)
        if near:
            return f"'{text}' is not an interval", f"did you mean '{re.sub(unit, near[0], text, flags=re.IGNORECASE)}'?"
    return f"'{text}' is not an interval", "write a number and a unit: '5 minutes'"


def _described(kind: exp.DataType | None, written: Written) -> str:
    return f'"{written}" is of type {_shown(kind)}'


def _shown(kind: exp.DataType | None) -> str:
    """Returns the name of a type. If the full name is longer than ``_WIDEST``, the parts of the type are omitted."""
    ddl = (types.ddl_of(kind) or "").replace("`", "")
    return ddl if len(ddl) <= _WIDEST or kind is None else f"{kind.this.value}<…>"


def _called(node: exp.Expr) -> str:
    return "RLIKE" if isinstance(node, exp.RegexpLike) else ("ILIKE" if isinstance(node, exp.ILike) else "LIKE")


def _part(kind: exp.DataType | None, written: Written) -> str:
    fields = types.fields_of(kind)
    if fields:
        return f"{written}.{fields[0][0]}"
    return f"{written}['a_key']" if types.is_map(kind) else f"{written}[0]"


def _as_number(kind: exp.DataType | None, written: Written) -> str:
    if kind == types.BOOLEAN:
        return f"CAST({written} AS INT) is 1 for true"
    return (
        f"use a part of it: {_part(kind, written)}" if types.has_parts(kind) else f"use a number instead of {written}"
    )


def _as_text(kind: exp.DataType | None, written: Written) -> str:
    made = f"array_join({written}, ',')" if types.is_array(kind) else f"to_json({written})"
    return f"{made} makes a string; to use a part of the value, write {_part(kind, written)}"


def _one_value(kind: exp.DataType | None, written: Written, other: Written) -> str:
    if types.is_array(kind):
        return f"write array_contains({written}, {other}), or compare an element: {written}[0]"
    return f"compare a part of it: {_part(kind, written)}"
