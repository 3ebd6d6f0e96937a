"""Free text inside of statements: queries, expressions and option keys, cut out where the grammar asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import TOO_COMPLEX, SqlError
from rw_sql.syntax.scan import PUNCTUATION, QUOTED, WORD, Token

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.parser import Parser

_OPENING, _CLOSING = frozenset("(["), frozenset(")]")


def option_key(parser: Parser) -> Token | None:
    """A dotted key. Any word is legal in it, keywords too; parts that are quoted keep their case."""
    tokens, at, last = parser.tokens, parser.at, parser.last
    if at >= last or tokens[at].kind not in (WORD, QUOTED):
        return None
    first = tokens[at]
    parts = [first.value]
    at += 1
    while at + 1 < last and tokens[at].text == "." and tokens[at + 1].kind in (WORD, QUOTED):
        parts.append(tokens[at + 1].value)
        at += 2
    return _cut(parser, first, at, ".".join(parts))


def query(parser: Parser) -> Token | None:
    """A query: to the end of the statement, or to a WITH ( or EMIT clause at its own level."""
    tokens, last = parser.tokens, parser.last

    def ends(at: int) -> bool:
        token = tokens[at]
        if token.kind != WORD or at + 1 >= last:
            return False
        following = tokens[at + 1]
        if token.upper == "WITH":
            return following.text == "("
        return token.upper == "EMIT" and following.upper in ("ON", "IMMEDIATELY") and following.kind == WORD

    return _free_text(parser, ends)


_CONSTRAINTS = frozenset({"PRIMARY", "UNIQUE", "CHECK", "DEFAULT", "REFERENCES"})


def expression(parser: Parser) -> Token | None:
    """An expression: to a comma or closing bracket at its own level, or to the next column constraint or clause."""
    tokens, last = parser.tokens, parser.last

    def ends(at: int) -> bool:
        token = tokens[at]
        if token.kind == PUNCTUATION:
            return token.text == ","
        if token.kind != WORD or at + 1 >= last:
            return False
        following = tokens[at + 1].upper
        if token.upper == "NOT":
            return following == "NULL" and tokens[at - 1].upper != "IS"
        if token.upper == "WITH":
            return following in ("TTL", "(")
        return token.upper in _CONSTRAINTS and (token.upper != "PRIMARY" or following == "KEY")

    return _free_text(parser, ends)


def _free_text(parser: Parser, ends: Callable[[int], bool]) -> Token | None:
    """The tokens from here to an end at this level or to an unmatched closing bracket; None where that is at once."""
    tokens, at, last = parser.tokens, parser.at, parser.last
    if at >= last:
        return None
    first, depth = tokens[at], 0
    while at < last:
        token = tokens[at]
        if token.kind == PUNCTUATION:
            if token.text in _OPENING:
                depth += 1
                if depth > MOST_NESTED:
                    raise SqlError(TOO_COMPLEX, f"more than {MOST_NESTED} brackets are open here", span=token.span)
            elif token.text in _CLOSING:
                if depth == 0:
                    break
                depth -= 1
        if depth == 0 and token is not first and ends(at):
            break
        at += 1
    if at == parser.at:
        return None
    return _cut(parser, first, at, "")


def _cut(parser: Parser, first: Token, end: int, value: str) -> Token:
    """One token out of those from the parser's place up to ``end``, moving the parser behind it."""
    stop = parser.tokens[end - 1].end
    cut = Token("capture", parser.text[first.start : stop], value, first.start, stop, first.line, first.column)
    cut.parts = parser.tokens[parser.at : end]
    parser.at = end
    return cut


MOST_NESTED = 200
"""How deep brackets may nest in a query or expression. sqlglot recurses, and Python's stack ends."""

CAPTURE: dict[str, Callable[[Parser], Token | None]] = {
    "OPTION_KEY": option_key,
    "QUERY": query,
    "EXPRESSION": expression,
}
