"""Reads references to variables (``:v``, ``:'v'``, ``:"v"``, ``:{?v}`` and ``${v}``), and converts the values of the
variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rw_sql.errors import INVALID_PARAMETER, UNDEFINED_VARIABLE, SqlError, near_names
from rw_sql.syntax.lexing.identifiers import literal, quoted, quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Style = Literal["ours", "spark"]
"""The quoting style for values: the style of rw_sql statements, or the style of Spark statements and of views'
queries."""

NAME = re.compile(r"\w+\Z")

BRACED = re.compile(r"\$\{([^}\n'\"]*)\}")
"""Matches a reference ``${name}`` to an environment's variable. The reference may be part of a name or of a quoted
string."""

ENVIRONMENT = "env"
"""The name of the variable that contains the environment's name."""

_UNFIT = re.compile(r"['\"`;\\\r\n\x00]|--|/\*|\$\{")

_REFERENCE = re.compile(r""":(?:(?P<raw>\w+)|'(?P<literal>\w+)'|"(?P<name>\w+)"|\{\?(?P<test>\w+)\})""")
_BEFORE = re.compile(r"[\w$:)\]}\"'`]")
"""The characters after which a ``:`` does not begin a reference to a variable.

``a:b`` and ``a[0]:b`` are paths into JSON, ``a::INT`` is a cast, ``x[1:n]`` is a slice, and ``ARRAY<STRUCT<a:INT>>`` is
a type.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference to a variable, in the range ``[start, end)`` of the text."""

    name: str
    kind: Literal["raw", "literal", "name", "test"]
    start: int
    end: int


def reference_at(text: str, at: int) -> Reference | None:
    """The reference that begins with the colon at the position ``at``; None if the colon has another meaning."""
    if at > 0 and _BEFORE.match(text, at - 1):
        return None
    found = _REFERENCE.match(text, at)
    if found is None:
        return None
    kind = found.lastgroup
    assert kind in ("raw", "literal", "name", "test")
    return Reference(name=found[kind], kind=kind, start=at, end=found.end())  # type: ignore[arg-type]  # checked above


def replacement(reference: Reference, variables: Mapping[str, str], style: Style) -> str:
    """The text that replaces a variable.

    Raises SqlError UNDEFINED_VARIABLE, without a position, if the variable is not set.
    """
    if reference.kind == "test":
        return "TRUE" if reference.name in variables else "FALSE"
    if reference.name not in variables:
        raise undefined(reference.name, variables)
    value = variables[reference.name]
    match reference.kind:
        case "raw":
            return value
        case "literal":
            # In '…', a backslash is an escape character for Spark but not for rw_sql. A doubled quote stands for one
            # quote in both dialects.
            return literal(value if style == "ours" else value.replace("\\", "\\\\"))
        case "name":
            # A name that needs no quotes is written without quotes, because all dialects then read the name in the same
            # way.
            return quoted(value) if style == "ours" or quoted(value) == value else quoted_for_spark(value)


class UndefinedVariableError(SqlError):
    """The error for a variable that is not set. ``name`` is the variable's name."""

    def __init__(self, name: str, message: str, *, hint: str) -> None:
        super().__init__(UNDEFINED_VARIABLE, message, hint=hint)
        self.name = name


def undefined(name: str, known: Iterable[str]) -> UndefinedVariableError:
    """The error for a variable that is not set."""
    near = near_names(name, known, most=1)
    hint = (
        f"did you mean :{near[0]}?" if near else rf"--var {name}=VALUE or \set {name} VALUE; \:{name} is not a variable"
    )
    return UndefinedVariableError(name, f'variable "{name}" is not set', hint=hint)


def braced_value(name: str, variables: Mapping[str, str]) -> str:
    """The text that replaces ``${name}``. Raises SqlError, without a position, if the variable has no value or an
    invalid value."""
    if name not in variables:
        near = near_names(name, variables, most=1)
        if name == ENVIRONMENT:
            hint = "--env NAME gives it the value NAME, the name of the environment"
        elif near:
            hint = f'did you mean "{near[0]}"?'
        else:
            hint = f"name the environment whose file has {name}=…, as in --env dev, or give --var {name}=…"
        raise SqlError(UNDEFINED_VARIABLE, f'variable "{name}" has no value', hint=hint)
    require_fit(name, variables[name])
    return variables[name]


def require_fit(name: str, value: str) -> None:
    """Raises SqlError if the value of ``${name}`` would end the string in which ``${name}`` occurs, or would begin a
    comment."""
    if _UNFIT.search(value):
        raise SqlError(
            INVALID_PARAMETER,
            f'the value of variable "{name}" contains a quote, semicolon, backslash, comment or line break',
            hint="use variables only in names and quoted texts; store secrets with CREATE SECRET",
        )
