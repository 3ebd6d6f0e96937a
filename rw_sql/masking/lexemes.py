"""Splits a text into lexemes: comments, strings, names, words and signs. The masking of secrets works on these lexemes.

Every text can be split, even prose and a statement with typing errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COMMENT = r"(?P<comment>--[^\n]*+|(?P<block>/\*))"
_OTHERS = r"(?P<name>`(?:[^`]|``)*+`?)|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)|(?P<space>\s++)|(?P<word>[\w$]++)|."
_OURS = re.compile(
    rf"""{_COMMENT}|(?P<string>[eE]'(?:[^'\\]|\\.|'')*+'?|'(?:[^']|'')*+'?|"(?:[^"]|"")*+"?)|{_OTHERS}""", re.DOTALL
)
_SPARKS = re.compile(
    rf"""{_COMMENT}|(?P<string>[rR]'[^']*+'?|[rR]"[^"]*+"?|'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?)|{_OTHERS}""",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_COMMENT_SIGN = re.compile(r"/\*|\*/|--")
QUOTES = re.compile(r"['\"]|\$\w*\$")
_PLAIN_NAME = re.compile(r"`(?!(?:CREATE|ALTER|SECRET)`)\w+(?:\$\w+)?`", re.IGNORECASE)
"""Matches a name whose backquotes are certainly not typing errors."""

_BESIDE_QUOTES = frozenset({
    "AND", "AS", "BETWEEN", "BY", "CASE", "DATE", "DAY", "DAYS", "ELSE", "END", "ESCAPE", "FROM", "HOUR", "HOURS",
    "ILIKE", "IN", "INTERVAL", "IS", "LIKE", "MINUTE", "MINUTES", "MONTH", "MONTHS", "NOT", "OR", "ORDER", "RLIKE",
    "SECOND", "SECONDS", "SELECT", "THEN", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TO", "UNION", "WEEK",
    "WEEKS", "WHEN", "WHERE", "YEAR", "YEARS",
})  # fmt: skip
"""Words that may be directly next to a string, without a space between the word and the quote."""

STARTS = frozenset({
    "ALTER", "BEGIN", "CANCEL", "COMMIT", "CREATE", "DELETE", "DESCRIBE", "DROP", "EXPLAIN", "FLUSH", "INJECT",
    "INSERT", "MERGE", "PAUSE", "REBUILD", "REFRESH", "RESET", "RESUME", "REWIND", "SELECT", "SET", "SHOW", "UPDATE",
    "USE", "VALIDATE", "WAIT", "HINT", "^",
})  # fmt: skip
"""Words that begin a statement. If a line begins with one of them, the previous statement ends before this line, even
without a ``;``. The last two, ``HINT`` and ``^``, begin lines of rendered errors."""

_AFTER_LINE = re.compile(r"[^\S\n]*+(?:--[^\n]*+)?\n")
NEXT_STATEMENT = (
    r";[^\S\n]*+(?:--[^\n]{0,200}+)?\n(?:\s*+--[^\n]{0,200}+\n){0,5}+\s*+"
    rf"(?:{'|'.join(sorted(STARTS - {'^'}))})\b"
)
_STATEMENT_IN_STRING = re.compile(NEXT_STATEMENT, re.IGNORECASE)
"""Matches the ``;`` between two statements, together with the first word of the second statement. If a string contains
a match, the string's first quote is probably the closing quote of an earlier string."""

TYPOGRAPHIC = frozenset("‘’‚“”„´«»")
PREFIXES = frozenset({"N", "X", "B", "R"})
"""The prefixes of literals, such as ``X`` in ``X'00'``. A prefix is a part of its literal."""

TYPES = frozenset({
    "ARRAY", "BIGINT", "BINARY", "BOOLEAN", "BYTE", "BYTEA", "BYTES", "CHAR", "CHARACTER", "DATE", "DECIMAL", "DOUBLE",
    "FLOAT", "INT", "INTEGER", "INTERVAL", "JSON", "JSONB", "LONG", "MAP", "NUMERIC", "PRECISION", "REAL", "SHORT",
    "SMALLINT", "STRING", "STRUCT", "TEXT", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ",
    "TINYINT", "UUID", "VARCHAR", "VARIANT", "VARYING", "ZONE",
})  # fmt: skip
_BLANK = r"(?:[\s\ufeff]++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)"
_OF_SPARK = re.compile(
    rf"""{_BLANK}*+(?:(?:SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|VALUES|FROM|CACHE|ADD|LIST|CALL|DECLARE|EXECUTE)\b
    |CREATE{_BLANK}++(?:OR{_BLANK}++REPLACE{_BLANK}++)?+(?:(?:GLOBAL|TEMP|TEMPORARY){_BLANK}++)*+(?:VIEW|FUNCTION)\b)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches the first words of a statement that follows Spark's quoting rules."""


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A comment, string, name, word or sign in a text. ``gap`` is the white space and comments between this lexeme and
    the previous lexeme that is not a comment. The ``gap`` of a comment is empty."""

    start: int
    end: int
    kind: str
    text: str
    upper: str
    gap: str
    is_open: bool = False
    """True for a string or name without a closing quote, and for a block comment without ``*/``."""

    @property
    def is_literal(self) -> bool:
        return self.kind == "string"

    @property
    def is_quoted(self) -> bool:
        return self.kind in ("string", "name")

    @property
    def begins_line(self) -> bool:
        return "\n" in self.gap


END = Lexeme(0, 0, "end", "", "", "")


def is_of_spark(text: str, position: int) -> bool:
    """True if the statement that begins at ``position`` follows Spark's quoting rules."""
    return _OF_SPARK.match(text, position) is not None


def _pattern_at(text: str, position: int) -> re.Pattern[str]:
    return _SPARKS if is_of_spark(text, position) else _OURS


def _end_of_comment(text: str, start: int) -> int:
    """Returns the end of the block comment that begins at ``start``. Block comments can be nested. A comment without
    ``*/`` extends to the end of the text."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def lexemes_of(text: str) -> Iterator[Lexeme]:
    """The lexemes of a text, including comments. The first words of each statement determine whether its quotes follow
    Spark's rules or rw_sql's rules."""
    pattern, position, gap = _pattern_at(text, 0), 0, 0
    while position < len(text):
        match = pattern.match(text, position)
        assert match is not None
        end, kind, is_open = match.end(), match.lastgroup or "sign", False
        if match["block"]:
            end, kind = _end_of_comment(text, position), "comment"
        elif match["dollar"]:
            close = text.find(match["dollar"], end)
            end, kind, is_open = close + len(match["dollar"]) if close >= 0 else len(text), "string", close < 0
        if kind != "space":
            raw = text[position:end]
            if end == len(text) and match["block"]:
                is_open = _end_of_comment(f"{raw} ", 0) > len(raw)
            elif end == len(text) and kind in ("string", "name") and not is_open:
                # If the closing quote is missing, the lexeme also contains a blank that is added to the text.
                longer = pattern.match(f"{raw} ")
                is_open = longer is not None and longer.end() > len(raw)
            upper = raw.upper() if kind == "word" else raw
            before = "" if kind == "comment" else text[gap:position]
            yield Lexeme(position, end, kind, raw, upper, before, is_open)
            gap = gap if kind == "comment" else end
        if match[0] == ";":
            pattern = _pattern_at(text, end)
        position = end


def key_at(lexemes: Sequence[Lexeme], at: int) -> str:
    """Returns the dotted name, without quotes, whose last part is the lexeme at the index ``at``. Returns an empty text
    if the index is out of range."""
    if not 0 <= at < len(lexemes):
        return ""
    parts = [lexemes[at].text]
    while at > 1 and lexemes[at - 1].text == "." and lexemes[at - 2].kind in ("word", "string", "name"):
        parts[:0] = [lexemes[at - 2].text, "."]
        at -= 2
    return re.sub("[\"'`]", "", "".join(parts))


def is_stray(before: Lexeme, lexeme: Lexeme) -> bool:
    """True for a name whose backquotes may be typing errors, and for a ``*/`` without a ``/*``."""
    if lexeme.kind == "name":
        return _PLAIN_NAME.fullmatch(lexeme.text) is None
    return before.text == "*" and lexeme.text == "/" and not lexeme.gap


def unsure_spans(lexemes: Sequence[Lexeme]) -> list[tuple[int, int]]:
    """Returns the spans of the statements whose quotes may be wrong. ``lexemes`` are all lexemes of a text except its
    comments.

    The quotes of a statement may be wrong if one of its strings has no closing quote, is directly next to a word, or
    contains the end of a statement and the beginning of another statement. Then the statement probably follows other
    quoting rules than its first words suggest, or the text is prose with an apostrophe. A secret may extend over
    several lexemes of this statement.

    A statement with doubtful quotes ends only at a ``;`` that is the last character of its line and is followed by the
    first word of another statement. Any other ``;`` may be a part of a secret. If the last lexeme has no closing quote,
    the result is one span from the first statement with doubtful quotes to the end of the text.
    """
    spans, start, is_sure = [], 0, True
    for before, lexeme in pairwise([*lexemes, END]):
        opens = lexeme.text[:1] == "'" and before.kind == "word" and len(before.text) > 1
        closes = before.is_literal and lexeme.kind == "word"
        is_usual = (before if opens else lexeme).upper in _BESIDE_QUOTES
        is_sure = is_sure and not before.is_open and ((not opens and not closes) or is_usual or lexeme.gap != "")
        is_sure = is_sure and not (before.is_literal and _STATEMENT_IN_STRING.search(before.text))
        is_end = before.text == ";" and (is_sure or (lexeme.upper in STARTS and _AFTER_LINE.match(lexeme.gap)))
        if is_end or lexeme is END:
            if not is_sure:
                spans.append((start, before.end))
            start, is_sure = before.end, True
    return [(spans[0][0], lexemes[-1].end)] if spans and lexemes[-1].is_open else spans


def quoted_spans(lexemes: Sequence[Lexeme]) -> list[tuple[int, int]]:
    """The spans of the comments, strings and names in backquotes. Successive ``--`` comments are one span."""
    spans: list[tuple[int, int]] = []
    for before, lexeme in pairwise([END, *lexemes]):
        if lexeme.kind == before.kind == "comment" and lexeme.text[0] == before.text[0] == "-":
            spans[-1] = (spans[-1][0], lexeme.end)
        elif lexeme.kind in ("comment", "string", "name"):
            spans.append((lexeme.start, lexeme.end))
    return spans


@lru_cache(maxsize=1024)
def is_near(word: str, known: tuple[str, ...]) -> bool:
    """True if ``word`` equals one of the words ``known``, or differs from it only by a probable typing error."""
    return bool(get_close_matches(word, known, n=1, cutoff=0.75))


def without_comment_signs(text: str, comments: Sequence[Lexeme], start: int, end: int) -> str:
    """Returns the text from ``start`` to ``end``. In each of the ``comments``, blanks replace ``--``, ``/*`` and
    ``*/``. The result has the same length as the replaced text."""
    pieces = []
    for comment in comments:
        pieces += [text[start : comment.start], _COMMENT_SIGN.sub("  ", comment.text)]
        start = comment.end
    return "".join([*pieces, text[start:end]])
