"""Free text inside of statements: queries, expressions and option keys, cut out where the grammar asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.syntax.free_text import is_spark_query
from rw_sql.syntax.reading import QueryReader
from rw_sql.syntax.scan import PUNCTUATION, QUOTED, WORD, Token

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.parser import Parser


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
    reader = _reader(parser)
    try:
        reader.query()
        if reader.word() in _ONLY_SPARKS:
            reader.fail("the end of the query")
    except SqlError:
        cut = _spark_query(parser)
        if cut is None:
            raise
        return cut
    return _cut(parser, parser.tokens[parser.at], reader.at, "")


def expression(parser: Parser) -> Token:
    """An expression, as far as it reaches."""
    reader = _reader(parser)
    reader.expression()
    return _cut(parser, parser.tokens[parser.at], reader.at, "")


def _reader(parser: Parser) -> QueryReader:
    return QueryReader(parser.tokens, parser.at, parser.last, parser.end())


_ONLY_SPARKS = frozenset({"PIVOT", "UNPIVOT", "TRANSFORM", "MATCH_RECOGNIZE"})


def _spark_query(parser: Parser) -> Token | None:
    """A query with one of Spark's larger forms, which the reader does not know: up to WITH ( or EMIT, if it is one."""
    tokens, at, last = parser.tokens, parser.at, parser.last
    depth = 0
    is_sparks = False
    while at < last:
        token = tokens[at]
        if token.kind == PUNCTUATION:
            if token.text in "([":
                depth += 1
            elif token.text in ")]":
                if depth == 0:
                    break
                depth -= 1
        elif token.kind == WORD and token.upper in _ONLY_SPARKS:
            is_sparks = True
        elif depth == 0 and token.kind == WORD and at + 1 < last:
            following = tokens[at + 1]
            if token.upper == "WITH" and following.text == "(":
                break
            if token.upper == "EMIT" and following.upper in ("ON", "IMMEDIATELY"):
                break
        at += 1
    if not is_sparks or at == parser.at:
        return None
    text = parser.text[tokens[parser.at].start : tokens[at - 1].end]
    return _cut(parser, tokens[parser.at], at, "") if is_spark_query(text) else None


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
