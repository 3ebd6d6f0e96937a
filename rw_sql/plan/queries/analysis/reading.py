"""Parses the text of a query to a tree, and determines the positions of names and calls."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import Dialect, TokenType, exp
from sqlglot.errors import SqlglotError
from sqlglot.parsers.risingwave import RisingWaveParser
from sqlglot.parsers.spark import SparkParser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlglot import Token

_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
"""Calls with keywords inside, which sqlglot parses specially.

Other calls are parsed generically, because sqlglot's special forms would lose their names and surplus arguments.
"""


def _number(_: Any, token: Token) -> exp.Expr:
    return exp.Literal(this=token.text, is_string=False).update_positions(token)


class _Spark(SparkParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in _FORMS
    }
    NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012
    PRIMARY_PARSERS = {**SparkParser.PRIMARY_PARSERS, TokenType.NUMBER: _number}  # noqa: RUF012


class _RisingWave(RisingWaveParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: parser for name, parser in RisingWaveParser.FUNCTION_PARSERS.items() if name in _FORMS
    }
    PRIMARY_PARSERS = {**RisingWaveParser.PRIMARY_PARSERS, TokenType.NUMBER: _number}  # noqa: RUF012


_PARSERS: dict[str, type[Any]] = {"spark": _Spark, "risingwave": _RisingWave}


@cache
def _dialect(name: str) -> Dialect:
    return Dialect.get_or_raise(name)


class Text:
    """A query's text with its tree (None if sqlglot cannot parse it) and the positions of the tree's parts."""

    def __init__(self, query: str, dialect: str) -> None:
        self.query = query
        self.tokens: list[Token] = []
        self.tree: exp.Query | None = None
        spoken = _dialect(dialect)
        try:
            self.tokens = spoken.tokenize(query)
            for word, bracket in pairwise(self.tokens):
                # To sqlglot, window(…) right after GROUP BY is the clause WINDOW.
                if word.token_type == TokenType.WINDOW and bracket.token_type == TokenType.L_PAREN:
                    word.token_type = TokenType.VAR
            trees = _PARSERS[dialect](dialect=spoken).parse(self.tokens, query)
        except (SqlglotError, RecursionError):
            return
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            self.tree = trees[0]

    def place(self, node: exp.Expr | None) -> tuple[int, int] | None:
        """The position of a name, a star, a number or a call's name: ``[start, end)``."""
        if node is None or node._meta is None:
            return None
        start, end = node._meta.get("start"), node._meta.get("end")
        return (int(start), int(end) + 1) if start is not None and end is not None else None

    def first_place(self, node: exp.Expr | None) -> tuple[int, int] | None:
        """The first position of any part of a tree; None if no part has one."""
        if node is None:
            return None
        return min(filter(None, map(self.place, node.walk())), default=None)

    def keyword(self, before: tuple[int, int] | None, kinds: Iterable[TokenType]) -> tuple[int, int] | None:
        """The position of the last word of these kinds before a position; the given position if there is none."""
        if before is None:
            return None
        wanted = tuple(kinds)
        found = [token for token in self.tokens if token.start <= before[0] and token.token_type in wanted]
        return (found[-1].start, found[-1].end + 1) if found else before

    def written(self, node: exp.Expr) -> str:
        """A name as spelled in the text."""
        place = self.place(node)
        return self.query[slice(*place)] if place else node.name


def children(node: exp.Expr) -> Iterator[exp.Expr]:
    """The direct child expressions of an expression, without types and names."""
    for child in node.iter_expressions():
        if not isinstance(child, exp.DataType | exp.Identifier | exp.Var):
            yield child
