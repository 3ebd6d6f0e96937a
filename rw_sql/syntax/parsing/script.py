"""Scripts: one or more statements in a text, separated by ``;``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, Span, SqlError
from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK, INVISIBLE, invisible_error
from rw_sql.syntax.lexing.tokens import END, PUNCTUATION, Token, end_of_comment, scan
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.statements.common import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse_script(text: str, file: str | None = None) -> tuple[Statement, ...]:
    """All statements of a script, in order. Empty statements between ``;`` are left out.

    Raises SqlError for the first statement that is none of ours, with its place in the script and ``file``.
    """
    try:
        tokens = scan(text)
        return tuple(_parse(text, tokens, first, last) for first, last in _segments(tokens))
    except SqlError as error:
        raise error.located(text, file)  # noqa: B904 - the same error, told where it stands


def parse(text: str) -> tuple[Statement, ...]:
    """All statements of a text, in order. Raises SqlError."""
    return parse_script(text)


def parse_statement(text: str) -> Statement:
    """The one statement of a text; one ``;`` behind it and comments are fine. Raises SqlError."""
    try:
        tokens = scan(text)
        segments = list(_segments(tokens))
        if not segments:
            raise SqlError(SYNTAX_ERROR, "the text holds no statement", span=tokens[-1].span)
        if len(segments) > 1:
            second = tokens[segments[1][0]]
            raise SqlError(SYNTAX_ERROR, "the text holds more than one statement", span=second.span)
        return _parse(text, tokens, *segments[0])
    except SqlError as error:
        raise error.located(text)  # noqa: B904 - the same error, told where it stands


def _segments(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    first = 0
    for at, token in enumerate(tokens):
        if token.kind == END or (token.kind == PUNCTUATION and token.text == ";"):
            if at > first:
                yield first, at
            first = at + 1


def _parse(text: str, tokens: list[Token], first: int, last: int) -> Statement:
    statement = Parser(text, tokens, first, last).parse()
    start = tokens[first]
    # The statement was made a moment ago and nobody else holds it yet: cheaper than replacing a frozen record.
    object.__setattr__(statement, "span", Span(start.start, tokens[last - 1].end, start.line, start.column))
    assert isinstance(statement, Statement)
    return statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a script, ours or Spark's: its text without the ``;``, and where it starts in the script."""

    text: str
    start: int
    line: int
    column: int

    def locate(self, error: SqlError, script: str, file: str | None = None) -> SqlError:
        """The error of this statement's text, moved to where it stands in the script."""
        span = error.span
        if span is not None:
            column = span.column + self.column - 1 if span.line == 1 else span.column
            error.span = Span(self.start + span.start, self.start + span.end, self.line + span.line - 1, column)
        error.text, error.file = script, file
        return error


# Ours: a backslash is an ordinary character in '…', block comments nest, "…" is a name.
_OURS = re.compile(
    r"""--[^\n]*+|(?P<block>/\*)|[eE]'(?:[^'\\]|\\.|'')*+'?|'(?:[^']|'')*+'?|"(?:[^"]|"")*+"?|`(?:[^`]|``)*+`?
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<end>;)|[\w$]++|.""",
    re.VERBOSE | re.DOTALL,
)
# Spark's: a backslash escapes in '…' and "…", except in r'…'.
_SPARKS = re.compile(
    r"""--[^\n]*+|(?P<block>/\*)|[rR]'[^']*+'?|[rR]"[^"]*+"?|'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?|`(?:[^`]|``)*+`?
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<end>;)|\w++|.""",
    re.VERBOSE | re.DOTALL,
)

_CLOSED = re.compile(
    r"""[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`""", re.DOTALL
)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def split_script(text: str) -> tuple[ScriptStatement, ...]:
    """A script's statements, ours and Spark's alike, without parsing them.

    A ``;`` in a string, a quoted name, a comment or dollar quotes ends no statement. Each statement is read by the
    quoting rules of whom its first words say it is. Pieces that hold nothing but comments are left out, and so is a
    byte-order mark before a statement. Never raises: what does not end reaches to the end of the script, and parsing it
    says so.
    """
    found: list[ScriptStatement] = []
    start = counted = 0
    line = 1
    while start < len(text):
        end, first, last = _piece(text, start)
        if first is not None:
            line_start = text.rfind("\n", 0, first) + 1
            line_start += text[line_start] == BYTE_ORDER_MARK  # no editor counts it as a column
            line += text.count("\n", counted, first)
            counted = first
            found.append(ScriptStatement(text=text[first:last], start=first, line=line, column=first - line_start + 1))
        start = end + 1
    return tuple(found)


def _piece(text: str, start: int) -> tuple[int, int | None, int]:
    """Where the statement that starts here ends (at its ``;``), and the range in it that is no blank or comment."""
    pattern = _OURS if could_be_ours(text[start : start + 4096]) else _SPARKS
    first, last = None, start
    for match, end, is_comment in _lexemes(pattern, text, start):
        if match["end"]:
            return match.start(), first, last
        is_mark = first is None and match[0] == BYTE_ORDER_MARK
        if not is_comment and not is_mark and not match[0].isspace():
            first = match.start() if first is None else first
            last = end
    return len(text), first, last


def _lexemes(pattern: re.Pattern[str], text: str, position: int) -> Iterator[tuple[re.Match[str], int, bool]]:
    """The pieces of a text as a pattern cuts it: how each begins, where it ends, and whether it is a comment."""
    while position < len(text):
        match = pattern.match(text, position)
        assert match is not None
        end = match.end()
        if match["block"]:
            close = end_of_comment(text, position)
            end = close if close >= 0 else len(text)
        elif match["dollar"]:
            close = text.find(match["dollar"], end)
            end = close + len(match["dollar"]) if close >= 0 else len(text)
        yield match, end, bool(match["block"]) or match[0].startswith("--")
        position = end


def without_strings(text: str) -> str:
    """A statement of Spark's, of equal length, with blanks for its strings and comments."""
    pieces = []
    for match, end, is_comment in _lexemes(_SPARKS, text, 0):
        hidden = is_comment or match[0][-1] in "'\"" or match["dollar"]
        pieces.append(" " * (end - match.start()) if hidden else match[0])
    return "".join(pieces)


def open_quote(text: str) -> Span | None:
    """The mark of a string, quoted name or comment that does not end, in a statement of Spark's."""
    for match, end, _ in _lexemes(_SPARKS, text, 0):
        mark = re.match(r"[rR]?['\"`]|/\*", match[0])
        if mark is None or end < len(text):
            continue
        if not text.endswith("*/") if match["block"] else _CLOSED.fullmatch(match[0]) is None:
            return span_of(text, match.start() + len(mark[0]) - 1 - bool(match["block"]), match.start() + len(mark[0]))
    return None


def open_bracket(text: str) -> Span | None:
    """The last ``(`` without a ``)`` in a statement of Spark's; None where there is also a ``)`` without its ``(``."""
    opened: list[int] = []
    for found in re.finditer(r"[()]", without_strings(text)):
        if found[0] == "(":
            opened.append(found.start())
        elif not opened:
            return None
        else:
            opened.pop()
    return span_of(text, opened[-1], opened[-1] + 1) if opened else None


def span_of(text: str, start: int, end: int) -> Span:
    """The place ``[start, end)`` of a text."""
    line_start = text.rfind("\n", 0, start) + 1
    return Span(start, end, text.count("\n", 0, start) + 1, start - line_start + 1)


def refuse_invisible(text: str) -> None:
    """Raises SqlError at a character that is not shown, outside of strings and comments of a statement of Spark's.

    Spark refuses it too, and shows it as it is: as nothing.
    """
    for match, _, _ in _lexemes(_SPARKS, text, 0):
        if _INVISIBLE.fullmatch(match[0]):
            at = match.start()
            column = at - text.rfind("\n", 0, at)
            raise invisible_error(match[0], Span(at, at + 1, text.count("\n", 0, at) + 1, column))
