"""How a variable is written, and what its value becomes: ``:v``, ``:'v'``, ``:"v"`` and ``:{?v}``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rw_sql.errors import UNDEFINED_VARIABLE, SqlError, near_names
from rw_sql.syntax.lexing.identifiers import literal, quoted, quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Style = Literal["ours", "spark"]
"""How a value is quoted: as in our statements, or as in Spark's and in the queries of views."""

NAME = re.compile(r"\w+\Z")

_REFERENCE = re.compile(r""":(?:(?P<raw>\w+)|'(?P<literal>\w+)'|"(?P<name>\w+)"|\{\?(?P<test>\w+)\})""")
_BEFORE = re.compile(r"[\w$:)\]}\"'`]")
"""What stands right before a ``:`` that begins no variable: ``a:b`` and ``a[0]:b`` are paths into JSON, ``a::INT`` is a
cast, ``x[1:n]`` a slice and ``ARRAY<STRUCT<a:INT>>`` a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A variable as a text names it, in ``[start, end)``."""

    name: str
    kind: Literal["raw", "literal", "name", "test"]
    start: int
    end: int


def reference_at(text: str, at: int) -> Reference | None:
    """The variable that the ``:`` at a place begins; None where the colon means something else."""
    if at > 0 and _BEFORE.match(text, at - 1):
        return None
    found = _REFERENCE.match(text, at)
    if found is None:
        return None
    kind = found.lastgroup
    assert kind in ("raw", "literal", "name", "test")
    return Reference(name=found[kind], kind=kind, start=at, end=found.end())  # type: ignore[arg-type]  # checked above


def replacement(reference: Reference, variables: Mapping[str, str], style: Style) -> str:
    """What stands in place of a variable. Raises SqlError UNDEFINED_VARIABLE, without a place, where it is not set."""
    if reference.kind == "test":
        return "TRUE" if reference.name in variables else "FALSE"
    if reference.name not in variables:
        raise undefined(reference.name, variables)
    value = variables[reference.name]
    match reference.kind:
        case "raw":
            return value
        case "literal":
            # Spark reads a backslash in '…' as an escape; a doubled quote means the same to both.
            return literal(value if style == "ours" else value.replace("\\", "\\\\"))
        case "name":
            # A name that needs no quotes is written without: that reads alike in every dialect.
            return quoted(value) if style == "ours" or quoted(value) == value else quoted_for_spark(value)


def undefined(name: str, known: Iterable[str]) -> SqlError:
    """The error of a variable that is not set."""
    near = near_names(name, known, most=1)
    hint = f"did you mean :{near[0]}?" if near else rf"--var {name}=VALUE or \set {name} VALUE; \:{name} is no variable"
    return SqlError(UNDEFINED_VARIABLE, f'variable "{name}" is not set', hint=hint)
