"""Finds where strings, quoted names, comments and statements end in a script, by the quoting rules of rw_sql or of
Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import end_of_comment

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = re.compile(
    r"""--[^\n]*+|(?P<block>/\*)|[eE]'(?:[^'\\]|\\.|'')*+'?|'(?:[^']|'')*+'?|"(?:[^"]|"")*+"?|`(?:[^`]|``)*+`?
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<end>;)|[\w$]++|.""",
    re.VERBOSE | re.DOTALL,
)
"""The rules for rw_sql statements: a backslash in '…' is an ordinary character, and "…" is a name."""

SPARKS = re.compile(
    r"""--[^\n]*+|(?P<block>/\*)|[rR]'[^']*+'?|[rR]"[^"]*+"?|'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?|`(?:[^`]|``)*+`?
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<end>;)|\w++|.""",
    re.VERBOSE | re.DOTALL,
)
"""The rules for Spark statements: a backslash in '…' and "…" escapes a character, except in r'…'."""


def lexeme_at(pattern: re.Pattern[str], text: str, position: int) -> tuple[re.Match[str], int, bool]:
    """Reads the lexeme that begins at ``position``. Returns three values: the match of the regular expression at the
    beginning of the lexeme, the position of the lexeme's end, and whether the lexeme is a comment."""
    match = pattern.match(text, position)
    assert match is not None
    end = match.end()
    group = match.lastgroup
    if group is None:
        return match, end, text.startswith("--", position)
    if group == "block":
        close = end_of_comment(text, position)
        return match, close if close >= 0 else len(text), True
    if group == "dollar":
        close = text.find(match["dollar"], end)
        end = close + len(match["dollar"]) if close >= 0 else len(text)
    return match, end, False


def lexemes(pattern: re.Pattern[str], text: str, position: int) -> Iterator[tuple[re.Match[str], int, bool]]:
    """Returns the lexemes of a text from ``position`` on. Each lexeme is a tuple as returned by :func:`lexeme_at`."""
    while position < len(text):
        match, end, is_comment = lexeme_at(pattern, text, position)
        yield match, end, is_comment
        position = end
