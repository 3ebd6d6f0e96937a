"""Parses the arguments of a backslash command: words, strings ``'…'`` with C escapes, and variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_COMMAND, SqlError
from rw_sql.syntax.variables.references import reference_at, replacement

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK = re.compile(r"\s*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.|'')*+)('?)", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument's value and its position in the text."""

    value: str
    start: int
    end: int


class ArgumentError(Exception):
    """An error in an argument, with the range of the text to which the error points."""

    def __init__(self, error: SqlError, start: int, end: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.start = start
        self.end = end


def read_arguments(text: str, start: int, end: int, variables: Mapping[str, str]) -> list[Argument]:
    """The arguments in ``text[start:end]``.

    Variables inside a variable's value are not replaced. Raises ArgumentError.
    """
    found: list[Argument] = []
    line = text[:end]
    at = _skip_blanks(line, start)
    while at < end:
        begin = at
        pieces: list[str] = []
        while at < end and not line[at].isspace():
            piece, at = _piece(line, at, variables)
            pieces.append(piece)
        found.append(Argument(value="".join(pieces), start=begin, end=at))
        at = _skip_blanks(line, at)
    return found


def _skip_blanks(line: str, at: int) -> int:
    found = _BLANK.match(line, at)
    assert found is not None
    return found.end()


def _piece(line: str, at: int, variables: Mapping[str, str]) -> tuple[str, int]:
    if line[at] == "'":
        found = _QUOTED.match(line, at)
        assert found is not None
        if not found[2]:
            error = SqlError(INVALID_COMMAND, "a quoted argument starts here and does not end", hint="add a '")
            raise ArgumentError(error, at, len(line))
        return _ESCAPE.sub(_unescape, found[1]), found.end()
    if line[at] == ":" and (reference := reference_at(line, at)) is not None:
        try:
            return replacement(reference, variables, "ours"), reference.end
        except SqlError as error:
            raise ArgumentError(error, reference.start, reference.end) from None
    if line.startswith("\\:", at):
        return ":", at + 2
    return line[at], at + 1


def _unescape(found: re.Match[str]) -> str:
    octal, byte, other = found.groups()
    if other is not None:
        return _SIMPLE.get(other, other)
    return chr(int(octal, 8) if octal else int(byte, 16)) if octal or byte else "'"
