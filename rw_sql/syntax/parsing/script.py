"""Scripts: one or more statements, separated by ``;``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, Span, SqlError
from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK, INVISIBLE, invisible_error
from rw_sql.syntax.lexing.lexemes import OURS, SPARKS, lexemes
from rw_sql.syntax.lexing.tokens import END, PUNCTUATION, Token, scan
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.statements.common import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse_script(text: str, file: str | None = None) -> tuple[Statement, ...]:
    """All statements of a script, in order. Empty statements are skipped.

    Raises SqlError for the first invalid statement, with its position in the script and ``file``.
    """
    try:
        tokens = scan(text)
        return tuple(_parse(text, tokens, first, last) for first, last in _segments(tokens))
    except SqlError as error:
        raise error.located(text, file)  # noqa: B904 - the same error, with its position


def parse(text: str) -> tuple[Statement, ...]:
    """All statements of ``text``, in order. Raises SqlError."""
    return parse_script(text)


def parse_statement(text: str) -> Statement:
    """The single statement of ``text``; a ``;`` and comments after it are allowed. Raises SqlError."""
    try:
        tokens = scan(text)
        segments = list(_segments(tokens))
        if not segments:
            raise SqlError(
                SYNTAX_ERROR,
                "the text contains no statement",
                span=tokens[-1].span,
                hint="write a statement, such as SHOW SOURCES",
            )
        if len(segments) > 1:
            second = tokens[segments[1][0]]
            raise SqlError(
                SYNTAX_ERROR,
                "the text contains more than one statement",
                span=second.span,
                hint="run the statements one by one, or as a script",
            )
        return _parse(text, tokens, *segments[0])
    except SqlError as error:
        raise error.located(text)  # noqa: B904 - the same error, with its position


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
    # No other code has the new statement yet, so it is modified in place, which is cheaper than a copy.
    object.__setattr__(statement, "span", Span(start.start, tokens[last - 1].end, start.line, start.column))
    assert isinstance(statement, Statement)
    return statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a script, rw_sql's or Spark's: its text without ``;``, and its position in the script."""

    text: str
    start: int
    line: int
    column: int

    def locate(self, error: SqlError, script: str, file: str | None = None) -> SqlError:
        """Relocates an error of this statement to its position in the script."""
        span = error.span
        if span is not None:
            column = span.column + self.column - 1 if span.line == 1 else span.column
            error.span = Span(self.start + span.start, self.start + span.end, self.line + span.line - 1, column)
        error.text, error.file = script, file
        return error


_CLOSED = re.compile(
    r"""[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`""", re.DOTALL
)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def split_script(text: str) -> tuple[ScriptStatement, ...]:
    """Splits a script into its statements, rw_sql's and Spark's, without parsing them.

    A ``;`` in a string, a quoted name, a comment or dollar quotes does not end a statement. The first words of a
    statement decide which quoting rules apply. Pieces with only comments are skipped, and so is a byte-order mark
    before a statement. Never raises: an unterminated token extends to the end of the script, and parsing reports it.
    """
    found: list[ScriptStatement] = []
    start = counted = 0
    line = 1
    while start < len(text):
        end, first, last = _piece(text, start)
        if first is not None:
            line_start = text.rfind("\n", 0, first) + 1
            line_start += text[line_start] == BYTE_ORDER_MARK  # Editors do not count it as a column.
            line += text.count("\n", counted, first)
            counted = first
            found.append(ScriptStatement(text=text[first:last], start=first, line=line, column=first - line_start + 1))
        start = end + 1
    return tuple(found)


def _piece(text: str, start: int) -> tuple[int, int | None, int]:
    """The end of the statement that starts here (the position of its ``;``), and the statement's range without
    surrounding white space and comments."""
    pattern = OURS if could_be_ours(text[start : start + 4096]) else SPARKS
    first, last = None, start
    for match, end, is_comment in lexemes(pattern, text, start):
        if match["end"]:
            return match.start(), first, last
        is_mark = first is None and match[0] == BYTE_ORDER_MARK
        if not is_comment and not is_mark and not match[0].isspace():
            first = match.start() if first is None else first
            last = end
    return len(text), first, last


def without_strings(text: str) -> str:
    """A Spark statement, in which spaces replace strings and comments. The length does not change."""
    pieces = []
    for match, end, is_comment in lexemes(SPARKS, text, 0):
        hidden = is_comment or match[0][-1] in "'\"" or match["dollar"]
        pieces.append(" " * (end - match.start()) if hidden else match[0])
    return "".join(pieces)


def open_quote(text: str) -> Span | None:
    """The opening mark of an unterminated string, quoted name or comment in a Spark statement."""
    for match, end, _ in lexemes(SPARKS, text, 0):
        mark = re.match(r"[rR]?['\"`]|/\*", match[0])
        if mark is None or end < len(text):
            continue
        if not text.endswith("*/") if match["block"] else _CLOSED.fullmatch(match[0]) is None:
            return span_of(text, match.start() + len(mark[0]) - 1 - bool(match["block"]), match.start() + len(mark[0]))
    return None


def open_bracket(text: str) -> Span | None:
    """The last unmatched ``(`` in a Spark statement; None if there is also an unmatched ``)``."""
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
    """The span of ``[start, end)`` in ``text``."""
    line_start = text.rfind("\n", 0, start) + 1
    return Span(start, end, text.count("\n", 0, start) + 1, start - line_start + 1)


def refuse_invisible(text: str) -> None:
    """Raises SqlError at an invisible character outside strings and comments of a Spark statement.

    Spark refuses such a character too, but in its message the character is invisible.
    """
    for match, _, _ in lexemes(SPARKS, text, 0):
        if _INVISIBLE.fullmatch(match[0]):
            at = match.start()
            column = at - text.rfind("\n", 0, at)
            raise invisible_error(match[0], Span(at, at + 1, text.count("\n", 0, at) + 1, column))
