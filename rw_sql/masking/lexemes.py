"""Splits statements whose secrets are masked into lexemes: comments, strings, names, words and signs.

Every text can be split into lexemes, even prose and statements with typing errors.
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
"""Words that may precede or follow a string without a space."""

STARTS = frozenset({
    "ALTER", "BEGIN", "CANCEL", "COMMIT", "CREATE", "DELETE", "DESCRIBE", "DROP", "EXPLAIN", "FLUSH", "INJECT",
    "INSERT", "MERGE", "PAUSE", "REBUILD", "REFRESH", "RESET", "RESUME", "REWIND", "SELECT", "SET", "SHOW", "UPDATE",
    "USE", "VALIDATE", "WAIT", "HINT", "^",
})  # fmt: skip
"""If a line begins with one of these words, the statement before this line has ended, even without a ``;``. The last
two, ``HINT`` and ``^``, begin lines of rendered errors."""

_AFTER_LINE = re.compile(r"[^\S\n]*+(?:--[^\n]*+)?\n")
NEXT_STATEMENT = (
    r";[^\S\n]*+(?:--[^\n]{0,200}+)?\n(?:\s*+--[^\n]{0,200}+\n){0,5}+\s*+"
    rf"(?:{'|'.join(sorted(STARTS - {'^'}))})\b"
)
_STATEMENT_IN_STRING = re.compile(NEXT_STATEMENT, re.IGNORECASE)
"""Matches the place between two statements. If a string contains such a place, the first quote of the string is
probably the closing quote of another string."""

TYPOGRAPHIC = frozenset("‘’‚“”„´«»")
PREFIXES = frozenset({"N", "X", "B", "R"})
"""The prefixes of literals. Such a word is a part of the literal that follows the word."""

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
"""Matches the first words of statements to which the quoting rules of Spark apply."""


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A lexeme that is not white space. ``gap`` is the text between the previous lexeme and this lexeme, including
    comments. The ``gap`` of a comment is empty."""

    start: int
    end: int
    kind: str
    text: str
    upper: str
    gap: str
    is_open: bool = False
    """True for a string, a name in backquotes, or a block comment that has no end."""

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
    """True if the quoting rules of Spark apply to the statement that begins at the position."""
    return _OF_SPARK.match(text, position) is not None


def _pattern_at(text: str, position: int) -> re.Pattern[str]:
    return _SPARKS if is_of_spark(text, position) else _OURS


def _end_of_comment(text: str, start: int) -> int:
    """Returns the end of a block comment. Comments may be nested. If a comment has no end, it extends to the end of the
    text."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def lexemes_of(text: str) -> Iterator[Lexeme]:
    """The lexemes of a text, including comments. The first words of each statement decide which quoting rules apply."""
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
    """Returns the dotted name that ends with the lexeme ``at``, without quotes. The result is empty if there is no such
    lexeme."""
    if not 0 <= at < len(lexemes):
        return ""
    parts = [lexemes[at].text]
    while at > 1 and lexemes[at - 1].text == "." and lexemes[at - 2].kind in ("word", "string", "name"):
        parts[:0] = [lexemes[at - 2].text, "."]
        at -= 2
    return re.sub("[\"'`]", "", "".join(parts))


def is_stray(before: Lexeme, lexeme: Lexeme) -> bool:
    """True for a name whose backquotes may be typing errors, and for the end of a comment that has no beginning."""
    if lexeme.kind == "name":
        return _PLAIN_NAME.fullmatch(lexeme.text) is None
    return before.text == "*" and lexeme.text == "/" and not lexeme.gap


def unsure_spans(lexemes: Sequence[Lexeme]) -> list[tuple[int, int]]:
    """Returns the spans of the statements whose quotes may be wrong. ``lexemes`` are the lexemes of a text, without
    comments.

    The quotes of a statement may be wrong if one of its strings has no closing quote, is directly next to a word, or
    contains the end of a statement and the beginning of another statement. In these cases, the quoting rules are
    probably not the rules that the first words of the statement suggest, or the text is prose with an apostrophe. In
    these cases, a secret may extend over several lexemes.

    Such a statement ends only at a ``;`` at the end of a line, before the first word of another statement. Any other
    ``;`` may be a part of the secret. If the last string of the text has no closing quote, all quotes after the
    beginning of the first such statement may be wrong.
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
    """The spans of the comments, strings and names in backquotes. Comments of adjacent lines are one span."""
    spans: list[tuple[int, int]] = []
    for before, lexeme in pairwise([END, *lexemes]):
        if lexeme.kind == before.kind == "comment" and lexeme.text[0] == before.text[0] == "-":
            spans[-1] = (spans[-1][0], lexeme.end)
        elif lexeme.kind in ("comment", "string", "name"):
            spans.append((lexeme.start, lexeme.end))
    return spans


@lru_cache(maxsize=1024)
def is_near(word: str, known: tuple[str, ...]) -> bool:
    """True for a word that may be a known word with a typing error."""
    return bool(get_close_matches(word, known, n=1, cutoff=0.75))


def without_comment_signs(text: str, comments: Sequence[Lexeme], start: int, end: int) -> str:
    """Returns the text from ``start`` to ``end``. In the spans ``comments``, blanks replace the signs that begin and
    end comments. The length of the text does not change."""
    pieces = []
    for comment in comments:
        pieces += [text[start : comment.start], _COMMENT_SIGN.sub("  ", comment.text)]
        start = comment.end
    return "".join([*pieces, text[start:end]])
