"""Converts text to tokens with one regular expression.

Each character of an operator is a separate token. Tokens for whole operators are not needed, because queries and
expressions are cut out of the text by position.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, UNTERMINATED, Span, SqlError
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK, INVISIBLE, invisible_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORD, QUOTED, BACKQUOTED, STRING = "word", "quoted", "backquoted", "string"
NUMBER, PUNCTUATION, END = "number", "punctuation", "end"


class Token:
    """One token with its position. ``value`` is the token's meaning: a name without quotes and folded to lower case
    unless quoted, or a string's content."""

    __slots__ = ("column", "end", "kind", "line", "parts", "start", "text", "upper", "value")

    def __init__(self, kind: str, text: str, value: str, start: int, end: int, line: int, column: int) -> None:
        self.kind = kind
        self.text = text
        self.value = value
        self.upper = value.upper() if kind == WORD else text
        self.start = start
        self.end = end
        self.line = line
        self.column = column
        self.parts: Sequence[Token] = ()

    def __repr__(self) -> str:
        return f"Token({self.kind}, {self.text!r}, {self.line}:{self.column})"

    @property
    def span(self) -> Span:
        """The token's position."""
        return Span(self.start, self.end, self.line, self.column)


_LONGEST_SHOWN = 40
_LONG = {STRING: "a string", QUOTED: "a quoted name", BACKQUOTED: "a quoted name", NUMBER: "a long number"}


def found(token: Token) -> str:
    """The token as messages show it. A short token is shown as its text; a token that is long or has several lines is
    shown only by its kind, such as ``a long word``.

    A long text is not shown in part, because masking finds only whole secrets, and a part of a secret would stay
    visible in the message.
    """
    if token.kind == END:
        return "EOF"
    is_short = len(token.text) <= _LONGEST_SHOWN and "\n" not in token.text
    return token.text if is_short else _LONG.get(token.kind, "a long word")


# The quantifiers are possessive, so that an unterminated string costs one pass without backtracking.
_TOKEN = re.compile(
    rf"""(?P<space>\s++)
    |(?P<comment>--[^\n]*+)
    |(?P<block>/\*)
    |(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+(?P<escaped_end>'?))
    |(?P<word>[^\W\d][\w$]*+)
    |(?P<string>'(?:[^']|'')*+(?P<string_end>'?))
    |(?P<quoted>"(?:[^"]|"")*+(?P<quoted_end>"?))
    |(?P<backquoted>`(?:[^`]|``)*+(?P<backquoted_end>`?))
    |(?P<number>0(?:[xX][0-9a-fA-F]++|[oO][0-7]++|[bB][01]++)
        |(?:[0-9]++(?:\.[0-9]++|\.(?![.\w]))?|(?<![\w)\]"`'.$])\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    |(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*+)?)\$)
    |(?P<invisible>[{INVISIBLE}])
    |(?P<punctuation>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|''", re.DOTALL)
_SIMPLE_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _unescape(match: re.Match[str]) -> str:
    if match[0] == "''":
        return "'"
    octal, byte, short, long, other = match.groups()
    if other is not None:
        return _SIMPLE_ESCAPES.get(other, other)
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"


def end_of_comment(text: str, start: int) -> int:
    """The end of the block comment that starts at ``start``; -1 if the comment does not end. Comments may be nested, as
    in PostgreSQL."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


def scan(text: str) -> list[Token]:
    """Returns all tokens of ``text``. The last token is an END token.

    A byte-order mark before a statement is skipped. Raises SqlError UNTERMINATED at an opening quote without a closing
    quote, and SYNTAX_ERROR at an invisible character between tokens.
    """
    return list(_scan(text))


def _scan(text: str) -> Iterator[Token]:
    position, size = 0, len(text)
    line, line_start = 1, 0
    begins = True
    match_at = _TOKEN.match
    while position < size:
        match = match_at(text, position)
        assert match is not None  # The last alternative matches any character.
        kind = match.lastgroup
        end = match.end()
        if kind == "space":
            broken = text.rfind("\n", position, end)
            if broken >= 0:
                line += text.count("\n", position, end)
                line_start = broken + 1
            position = end
            continue
        column = position - line_start + 1
        raw = match[0]
        if kind == "invisible":
            if begins and raw == BYTE_ORDER_MARK:
                line_start += line_start == position  # Editors do not count a byte-order mark as a column.
                position = end
                continue
            raise invisible_error(raw, Span(position, end, line, column))
        begins = raw == ";" or (begins and kind in ("comment", "block"))
        if kind == "word":
            yield Token(WORD, raw, raw.lower(), position, end, line, column)
        elif kind == "punctuation":
            yield Token(PUNCTUATION, raw, raw, position, end, line, column)
        elif kind == "number":
            yield Token(NUMBER, raw, raw, position, end, line, column)
        elif kind == "string":
            _require(match["string_end"], "string", raw, position, line, column)
            yield Token(STRING, raw, raw[1:-1].replace("''", "'"), position, end, line, column)
        elif kind == "quoted":
            _require(match["quoted_end"], "quoted name", raw, position, line, column)
            name = raw[1:-1].replace('""', '"')
            if not name:
                raise SqlError(
                    SYNTAX_ERROR,
                    "a quoted name is empty",
                    hint='write a name between the quotes: "a_name"',
                    span=Span(position, end, line, column),
                )
            yield Token(QUOTED, raw, name, position, end, line, column)
        elif kind == "backquoted":
            # Spark's quoting, used only in queries; the grammar has no rule for it.
            _require(match["backquoted_end"], "quoted name", raw, position, line, column)
            yield Token(BACKQUOTED, raw, raw[1:-1].replace("``", "`"), position, end, line, column)
        elif kind == "escaped":
            _require(match["escaped_end"], "string", raw, position, line, column)
            yield Token(STRING, raw, _ESCAPE.sub(_unescape, raw[2:-1]), position, end, line, column)
        elif kind == "dollar":
            close = text.find(raw, end)
            if close < 0:
                _require("", "dollar-quoted string", raw, position, line, column)
            value = text[end:close]
            end = close + len(raw)
            raw = text[position:end]
            yield Token(STRING, raw, value, position, end, line, column)
        elif kind == "block":
            end = end_of_comment(text, position)
            if end < 0:
                raise unclosed_comment(text, position)
        # A comment leaves no token; strings and comments may span lines.
        broken = text.rfind("\n", position, end)
        if broken >= 0:
            line += text.count("\n", position, end)
            line_start = broken + 1
        position = end
    yield Token(END, "", "", size, size, line, size - line_start + 1)


def _require(quote: str | None, what: str, raw: str, start: int, line: int, column: int) -> None:
    if not quote:
        first = raw.find("\n")
        end = start + (len(raw) if first < 0 else first)
        mark = {"dollar-quoted string": raw, "string": "'"}.get(what, raw[:1])
        raise unterminated(what, mark, Span(start, min(end, start + 20), line, column))


def unterminated(what: str, mark: str, span: Span) -> SqlError:
    """The error for a string, quoted name or comment without its closing ``mark``."""
    hint = f"write {mark} where the {what} ends"
    return SqlError(UNTERMINATED, f"a {what} starts here and does not end", hint=hint, span=span)


def unclosed_comment(text: str, start: int) -> SqlError:
    """The error for the block comment that starts at ``start`` and does not end.

    Comments can be nested, so the ``*/`` that should end the comment may have ended an inner ``/*``. If this may be the
    reason, the error names the inner ``/*``. If the inner ``/*`` is part of a word, such as the path ``in/*.csv``, the
    error also points at the inner ``/*``.
    """
    inner = text.find("/*", start + 2, max(text.find("*/", start + 2), 0))
    if inner > start + 2 and not text[inner - 1].isspace():
        return SqlError(
            UNTERMINATED,
            "this /* opens a second comment, so the comment around it does not end",
            hint="comments nest: write one more */, or a space between / and *",
            span=span_of(text, inner, inner + 2),
        )
    error = unterminated("comment", "*/", span_of(text, start, start + 2))
    if inner >= 0:
        error.hint = f"{error.hint}; the next /* opens a second comment, which needs its own */"
    return error


def span_of(text: str, start: int, end: int) -> Span:
    """The span of ``[start, end)`` in ``text``."""
    line_start = text.rfind("\n", 0, start) + 1
    line_start += text.startswith(BYTE_ORDER_MARK, line_start, start)  # Editors do not count this mark as a column.
    return Span(start, end, text.count("\n", 0, start) + 1, start - line_start + 1)
