"""Combines the tokens of a query, an expression or an option key into a single token, where the grammar expects one of
these parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rw_sql.syntax.lexing.nesting import too_deep
from rw_sql.syntax.lexing.tokens import QUOTED, WORD, Token
from rw_sql.syntax.sql_reader import QueryReader

if TYPE_CHECKING:
    from collections.abc import Callable


class Place(Protocol):
    """A parser's position in a statement. The next token is ``tokens[at]``, and the statement consists of
    ``tokens[:last]``."""

    text: str
    tokens: list[Token]
    at: int
    last: int

    def end(self) -> Token:
        """The END token for the end of the statement."""
        ...


def option_key(place: Place) -> Token | None:
    """Cuts out the dotted option key that begins at this position, if any. A key may contain any word, including
    keywords. Quoted parts of a key keep their case."""
    tokens, at, last = place.tokens, place.at, place.last
    if at >= last or tokens[at].kind not in (WORD, QUOTED):
        return None
    first = tokens[at]
    parts = [first.value]
    at += 1
    while at + 1 < last and tokens[at].text == "." and tokens[at + 1].kind in (WORD, QUOTED):
        parts.append(tokens[at + 1].value)
        at += 2
    return _cut(place, first, at, ".".join(parts))


def query(place: Place) -> Token:
    """Cuts out the longest query at this position."""
    return _read(place, QueryReader.query)


def expression(place: Place) -> Token:
    """Cuts out the longest expression at this position."""
    return _read(place, QueryReader.expression)


def _read(place: Place, read: Callable[[QueryReader], None]) -> Token:
    reader = QueryReader(place.tokens, place.at, place.last, place.end())
    first = place.tokens[place.at]
    try:
        read(reader)
    except RecursionError as error:
        # The reader limits the nesting, but the caller may have filled Python's stack nearly to its limit already.
        raise too_deep(first.span) from error
    return _cut(place, first, reader.at, "")


def _cut(place: Place, first: Token, end: int, value: str) -> Token:
    """Combines the tokens between ``place`` and ``end`` into one token, and advances the position."""
    stop = place.tokens[end - 1].end
    cut = Token("capture", place.text[first.start : stop], value, first.start, stop, first.line, first.column)
    cut.parts = place.tokens[place.at : end]
    place.at = end
    return cut


CAPTURE: dict[str, Callable[[Place], Token | None]] = {
    "OPTION_KEY": option_key,
    "QUERY": query,
    "EXPRESSION": expression,
}
