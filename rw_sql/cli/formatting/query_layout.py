"""Lays out queries. A short query is put on one line, and a longer query gets one line per clause.

The only change to tokens is the case of reserved words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import END, NUMBER, PUNCTUATION, STRING, WORD, Token, scan
from rw_sql.syntax.rendering.layout import WIDEST_LINE
from rw_sql.syntax.sql_reader import QueryReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_STEP = 2

_CLAUSES = frozenset({"FROM", "HAVING", "INTERSECT", "LIMIT", "OFFSET", "SELECT", "UNION", "WHERE", "WINDOW"})
_JOIN_WORDS = frozenset({"ANTI", "CROSS", "FULL", "INNER", "JOIN", "LEFT", "NATURAL", "OUTER", "RIGHT", "SEMI"})
_LISTS = frozenset({"FROM", "GROUP", "ORDER", "SELECT", "VALUES", "WITH"})
_BEGIN_QUERIES = frozenset({"SELECT", "VALUES", "WITH"})
_SPACED = frozenset({
    "ALL", "AND", "AS", "BETWEEN", "BY", "DISTINCT", "ELSE", "EXCEPT", "FROM", "HAVING", "IN", "INTERSECT", "JOIN",
    "LATERAL", "LIMIT", "NOT", "ON", "OR", "OVER", "SELECT", "THEN", "UNION", "USING", "VALUES", "WHEN", "WHERE",
})  # fmt: skip
"""The words after which a space precedes an opening parenthesis, because the parenthesis does not contain arguments."""

_COMPARISONS = frozenset({"=", "==", "<>", "!=", "<=", ">=", "<=>"})


def lay_out_query(text: str, *, is_broken: bool = False) -> str:
    """Lays out a query that has no comments. If the text is not recognized as a query, or if the layout would change
    its meaning, returns the text unchanged.

    If ``is_broken`` is true, each clause begins a new line even if the query is short.
    """
    try:
        tokens = scan(text)
        reader = QueryReader(tokens, 0, len(tokens) - 1, tokens[-1])
        reader.query()
    except (SqlError, RecursionError):
        return text
    if tokens[reader.at].kind != END:
        return text
    laid_out = _Layout(tokens[:-1], is_broken=is_broken).query(0, len(tokens) - 1, 0)
    return laid_out if _meaning(scan(laid_out)) == _meaning(tokens) else text


def _meaning(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    return [(token.kind, token.upper if token.kind == WORD else token.text) for token in tokens]


class _Layout:
    """Writes ranges of tokens. ``margin`` is the indentation of a new line, in spaces."""

    def __init__(self, tokens: Sequence[Token], *, is_broken: bool) -> None:
        self._tokens = tokens
        self._is_broken = is_broken
        self._closing = _closing(tokens)
        self._words = [_word(tokens, at) for at in range(len(tokens))]
        self._operators = _operators(tokens)
        self._ends = _ends(self._words)

    def query(self, first: int, last: int, margin: int) -> str:
        """Writes a query on one line if the query fits, and otherwise with one line per clause."""
        if self._fits(first, last, margin):
            return self._flat(first, last)
        starts = [first, *(at for at in self._level(first, last) if at > first and self._begins_clause(at, first))]
        clauses = zip(starts, [*starts[1:], last], strict=True)
        return self._line(margin).join(self._clause(start, end, margin) for start, end in clauses)

    def _clause(self, first: int, last: int, margin: int) -> str:
        if self._fits(first, last, margin):
            return self._flat(first, last)
        word = self._words[first]
        if word in _LISTS:
            items = self._split(first, last, self._is_comma)
            if len(items) > 1:
                head = first + 1 + (self._word_at(first + 1) in ("BY", "DISTINCT", "ALL", "RECURSIVE"))
                items[0] = (head, items[0][1])
                if word == "WITH":
                    listed = ("," + self._line(margin)).join(self._expression(*item, margin) for item in items)
                    return f"{self._flat(first, head)} {listed}"
                line = self._line(margin + _STEP)
                listed = ("," + line).join(self._expression(*item, margin + _STEP) for item in items)
                return self._flat(first, head) + line + listed
            return self._expression(first, last, margin)
        conditions = self._split(first, last, self._is_condition(first, last))
        line = self._line(margin + _STEP)
        return line.join(self._expression(*part, margin + _STEP * (at > 0)) for at, part in enumerate(conditions))

    def _expression(self, first: int, last: int, margin: int) -> str:
        """Writes tokens on one line. If the tokens do not fit on the line, breaks the line at subqueries, arguments,
        and WHEN."""
        if self._fits(first, last, margin) and not (self._is_broken and self._has_query(first, last)):
            return self._flat(first, last)
        text, at = "", first
        while at < last:
            text += self._space(at) if at > first else ""
            column = margin + len(text) - text.rfind("\n") - 1 if "\n" in text else margin + len(text)
            end = self._closing.get(at, self._ends.get(at, at))
            is_too_long = column + len(self._flat(at, end + 1)) > WIDEST_LINE
            if end == at or not (is_too_long or (self._is_broken and self._has_query(at, end))):
                text += self._flat(at, end + 1)
            elif at in self._ends:
                text += self._case(at, end, margin)
            else:
                text += self._parentheses(at, end, margin)
            at = end + 1
        return text

    def _parentheses(self, opening: int, closing: int, margin: int) -> str:
        first = opening + 1
        edge, line, inner = self._line(margin), self._line(margin + _STEP), margin + _STEP
        if self._words[first] in _BEGIN_QUERIES or (
            self._has_query(first, closing) and self._tokens[first].text == "("
        ):
            content = self.query(first, closing, inner)
        else:
            items = self._split(first, closing, self._is_comma)
            if len(items) == 1:
                return self._text(opening) + self._expression(first, closing, margin) + self._text(closing)
            content = ("," + line).join(self._expression(*item, inner) for item in items)
        return self._text(opening) + line + content + edge + self._text(closing)

    def _case(self, first: int, last: int, margin: int) -> str:
        whens = [at for at in self._level(first + 1, last) if self._words[at] in ("WHEN", "ELSE")]
        inner = [at for case, end in self._ends.items() if first < case for at in range(case, end) if end < last]
        starts = [first, *(at for at in whens if at not in inner)]
        parts = list(zip(starts, [*starts[1:], last], strict=True))
        line = self._line(margin + _STEP)
        lines = [self._expression(*part, margin + _STEP) for part in parts]
        return line.join(lines) + self._line(margin) + self._text(last)

    def _has_query(self, first: int, last: int) -> bool:
        return any(
            self._tokens[at].text == "(" and self._words[at + 1] in _BEGIN_QUERIES for at in range(first, last - 1)
        )

    def _begins_clause(self, at: int, first: int) -> bool:
        word, before = self._words[at], self._words[at - 1]
        if word in ("GROUP", "ORDER"):
            return self._word_at(at + 1) == "BY"
        if word == "EXCEPT":
            return self._tokens[at - 1].text != "*"  # SELECT * EXCEPT (column)
        if word in _JOIN_WORDS:
            if before in _JOIN_WORDS:
                return False
            while self._word_at(at) in _JOIN_WORDS - {"JOIN"}:
                at += 1
            return self._word_at(at) == "JOIN"
        return word in _CLAUSES and not (word == "FROM" and before == "DISTINCT")

    def _split(self, first: int, last: int, is_edge: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Splits the tokens from ``first`` up to, but not including, ``last`` where ``is_edge`` is true: at a comma,
        which belongs to neither part, or before AND and OR."""
        edges = [at for at in self._level(first, last) if at > first and is_edge(at)]
        starts = [first, *(at + self._is_comma(at) for at in edges)]
        return list(zip(starts, [*edges, last], strict=True))

    def _is_comma(self, at: int) -> bool:
        return self._tokens[at].text == ","

    def _is_condition(self, first: int, last: int) -> Callable[[int], bool]:
        edges, cases, between = set(), 0, 0
        for at in self._level(first, last):
            word = self._words[at]
            cases += (word == "CASE") - (word == "END")
            between += word == "BETWEEN"
            if word == "AND" and between:
                between -= 1
            elif word in ("AND", "OR") and not cases:
                edges.add(at)
        return edges.__contains__

    def _level(self, first: int, last: int) -> Iterator[int]:
        """Yields the positions from ``first`` up to, but not including, ``last`` that are not inside parentheses or
        square brackets."""
        at = first
        while at < last:
            yield at
            at = self._closing.get(at, at) + 1

    def _word_at(self, at: int) -> str:
        return self._words[at] if at < len(self._words) else ""

    def _fits(self, first: int, last: int, margin: int) -> bool:
        if self._is_broken and (self._words[first] in _LISTS or self._has_query(first, last) or self._is_long(first)):
            return False
        flat = self._flat(first, last)
        return "\n" not in flat and margin + len(flat) <= WIDEST_LINE

    def _is_long(self, first: int) -> bool:
        return self._tokens[first].text == "("

    def _flat(self, first: int, last: int) -> str:
        return "".join((self._space(at) if at > first else "") + self._text(at) for at in range(first, last))

    def _text(self, at: int) -> str:
        return self._words[at] or self._tokens[at].text

    def _space(self, at: int) -> str:
        """The white space to write between a token and the previous token."""
        before, token = self._tokens[at - 1], self._tokens[at]
        if token.text in (",", ")", "]") or before.text in ("(", "["):
            return ""
        if before.text == "," or at in self._operators or at - 1 in self._operators:
            return " " if self._operators.get(at, at) != self._operators.get(at - 1, at - 1) else ""
        if token.text == "(" and self._words[at - 1] in _SPACED:
            return " "
        return "" if before.end == token.start else " "

    @staticmethod
    def _line(margin: int) -> str:
        return "\n" + " " * margin


def _word(tokens: Sequence[Token], at: int) -> str:
    """The keyword at a position in upper case; empty if the token there is not a keyword, for example because it is a
    name."""
    token = tokens[at]
    before = tokens[at - 1] if at else None
    if token.kind != WORD or (before is not None and before.text == "."):
        return ""
    if token.upper == "WINDOW" and not _begins_window_clause(tokens, at):
        return ""  # the function window(…), or the column with its result
    follows = tokens[at + 1] if at + 1 < len(tokens) else None
    follows_word = follows.upper if follows is not None and follows.kind == WORD else ""
    if before is not None and before.kind == WORD and before.upper == "AS":
        # After AS, a reserved word is a name too. WITH x AS NOT MATERIALIZED (…) is the exception.
        return "NOT" if token.upper == "NOT" and follows_word == "MATERIALIZED" else ""
    if token.upper in RESERVED:
        return "" if token.upper in _POSTFIX else token.upper
    if token.upper == "BY" and before is not None and before.kind == WORD and before.upper in _BEFORE_BY:
        return "BY"
    if token.upper == "PARTITION" and follows_word == "BY":
        return "PARTITION"
    if token.upper == "INTERVAL" and follows is not None and follows.kind in (STRING, NUMBER):
        return "INTERVAL"
    if token.upper in ("OVER", "VALUES") and follows is not None and follows.text == "(":
        return token.upper
    return "BETWEEN" if token.upper == "BETWEEN" and _ends_operand(tokens, at - 1) and _begins_operand(follows) else ""


def _ends_operand(tokens: Sequence[Token], at: int) -> bool:
    """True if the token can be the last token of BETWEEN's first operand, or if the token is NOT, ROWS or RANGE before
    BETWEEN."""
    if at < 0:
        return False
    token = tokens[at]
    if token.kind == PUNCTUATION:
        return token.text in (")", "]")
    word = _word(tokens, at)
    return _ends_operand(tokens, at - 1) if word == "NOT" else not word or word in _OPERANDS


def _begins_operand(token: Token | None) -> bool:
    """True if the token can be the first token of an operand of BETWEEN."""
    if token is None:
        return False
    if token.kind == PUNCTUATION:
        return token.text not in _AFTER_NAME
    return token.kind != WORD or token.upper not in RESERVED or token.upper in _BEGIN_OPERANDS


def _begins_window_clause(tokens: Sequence[Token], at: int) -> bool:
    following = tokens[at + 1 : at + 4]
    return len(following) == 3 and following[1].upper == "AS" and following[2].text == "("


_BEFORE_BY = frozenset({"GROUP", "ORDER", "PARTITION"})
_POSTFIX = frozenset({"ISNULL", "NOTNULL"})
"""Words that are postfix operators in PostgreSQL. In Spark's SQL, ``a isnull`` instead gives the column ``a`` the alias
``isnull``."""

_OPERANDS = frozenset({"END", "FALSE", "NULL", "TRUE"})
_BEGIN_OPERANDS = frozenset({
    "ALL", "ANY", "ARRAY", "ASYMMETRIC", "CASE", "CAST", "FALSE", "LEFT", "NOT", "NULL", "RIGHT", "SOME", "SYMMETRIC",
    "TRUE",
})  # fmt: skip
_AFTER_NAME = ",.;)]=<>!*/%|&^"


def _closing(tokens: Sequence[Token]) -> dict[int, int]:
    """Maps the position of each opening parenthesis or square bracket to the position of the matching closing one."""
    opened: list[int] = []
    pairs = {}
    for at, token in enumerate(tokens):
        if token.kind != PUNCTUATION:
            continue
        if token.text in "([":
            opened.append(at)
        elif token.text in ")]" and opened:
            pairs[opened.pop()] = at
    return pairs


def _ends(words: Sequence[str]) -> dict[int, int]:
    """Maps the position of each CASE to the position of the matching END."""
    opened: list[int] = []
    pairs = {}
    for at, word in enumerate(words):
        if word == "CASE":
            opened.append(at)
        elif word == "END" and opened:
            pairs[opened.pop()] = at
    return pairs


def _operators(tokens: Sequence[Token]) -> dict[int, int]:
    """Maps the index of each token of a comparison operator to the index of the operator's first token."""
    found = {}
    at = 0
    while at < len(tokens):
        stop = at + 1
        if tokens[at].kind == PUNCTUATION and tokens[at].text not in "()[],;":
            while (
                stop < len(tokens)
                and tokens[stop].kind == PUNCTUATION
                and tokens[stop].text not in "()[],;"
                and tokens[stop].start == tokens[stop - 1].end
            ):
                stop += 1
            if "".join(token.text for token in tokens[at:stop]) in _COMPARISONS:
                found.update(dict.fromkeys(range(at, stop), at))
        at = stop
    return found
