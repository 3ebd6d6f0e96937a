"""Free text inside of statements: queries, expressions and option keys, cut out where the grammar asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import TOO_COMPLEX, SqlError
from rw_sql.syntax.lexing.tokens import QUOTED, WORD, Token
from rw_sql.syntax.sql_reader import QueryReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.parsing.parser import Parser


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


def query(parser: Parser) -> Token:
    """A query, as far as it reaches."""
    return _read(parser, QueryReader.query)


def expression(parser: Parser) -> Token:
    """An expression, as far as it reaches."""
    return _read(parser, QueryReader.expression)


def _read(parser: Parser, read: Callable[[QueryReader], None]) -> Token:
    reader = QueryReader(parser.tokens, parser.at, parser.last, parser.end())
    first = parser.tokens[parser.at]
    try:
        read(reader)
    except RecursionError as error:
        # The reader counts levels, but it may be called with most of Python's stack used up already.
        raise SqlError(TOO_COMPLEX, "this is nested too deeply", span=first.span) from error
    return _cut(parser, first, reader.at, "")


def _cut(parser: Parser, first: Token, end: int, value: str) -> Token:
    """One token out of those from the parser's place up to ``end``, moving the parser behind it."""
    stop = parser.tokens[end - 1].end
    cut = Token("capture", parser.text[first.start : stop], value, first.start, stop, first.line, first.column)
    cut.parts = parser.tokens[parser.at : end]
    parser.at = end
    return cut


CAPTURE: dict[str, Callable[[Parser], Token | None]] = {
    "OPTION_KEY": option_key,
    "QUERY": query,
    "EXPRESSION": expression,
}
