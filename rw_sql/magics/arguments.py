"""Reads the options of a cell: ``%%rw [NAME <<] [-o NAME] [--yes] [--confirm TOKEN] [--var NAME=VALUE]``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from IPython.core.error import UsageError

from rw_sql.syntax.variables.references import NAME

USAGE = (
    "%%rw [NAME <<] [-o NAME] [--yes] [--confirm TOKEN] [--var NAME=VALUE], then statements; "
    "or %rw [NAME <<] STATEMENT; or %rw watch [SECONDS]"
)

_ASSIGNMENT = re.compile(r"\s*([^\W\d]\w*)\s*<<\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The options of a cell. ``frame_name`` is the variable that gets the last result as a DataFrame.
    ``result_name`` is the variable that gets the last :class:`~rw_sql.magics.result.CellResult`. Each is None if the
    cell does not name it."""

    is_confirmed: bool = False
    tokens: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    frame_name: str | None = None
    result_name: str | None = None


def read_arguments(line: str) -> Arguments:
    """Parses the first line of a cell. If the line is invalid, raises a UsageError that shows the correct usage."""
    result_name, line = read_assignment(line)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%rw cannot read its options: {str(error).lower()}; usage: {USAGE}") from None
    tokens: set[str] = set()
    variables: dict[str, str] = {}
    is_confirmed, frame_name = False, None
    while words:
        match words.pop(0):
            case "--yes":
                is_confirmed = True
            case "--confirm" if words:
                tokens.add(words.pop(0))
            case "-o" | "--output" if words:
                frame_name = words.pop(0)
                if not frame_name.isidentifier():
                    raise UsageError(f"-o takes the name of a variable, not {frame_name!r}; usage: {USAGE}")
            case "--var" if words:
                name, equals, value = words.pop(0).partition("=")
                if not equals or not NAME.match(name):
                    raise UsageError(f"--var takes NAME=VALUE; usage: {USAGE}")
                variables[name] = value
            case other:
                raise UsageError(f"%%rw does not know {other!r}; usage: {USAGE}")
    return Arguments(
        is_confirmed=is_confirmed,
        tokens=frozenset(tokens),
        variables=variables,
        frame_name=frame_name,
        result_name=result_name,
    )


def read_assignment(line: str) -> tuple[str | None, str]:
    """Returns the name before ``<<``, and the rest of the line. If the line contains no ``<<``, returns None and the
    complete line."""
    found = _ASSIGNMENT.match(line)
    return (found[1], line[found.end() :]) if found is not None else (None, line)
