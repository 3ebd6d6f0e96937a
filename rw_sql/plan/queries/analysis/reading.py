"""Parses a query, and determines the positions of names and calls in the query's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from rw_sql.syntax.query.plain_calls import parse_plain, without_window_clause
from rw_sql.syntax.query.spark_tokens import dialect_of, spark_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlglot import Token


class Text:
    """A query's text with the syntax tree of the query. The tree is None if sqlglot cannot parse the text."""

    def __init__(self, query: str, dialect: str) -> None:
        self.query = query
        self.tokens: list[Token] = []
        self.tree: exp.Query | None = None
        spoken = dialect_of(dialect)
        try:
            self.tokens = spark_tokens(query) if dialect == "spark" else spoken.tokenize(query)
            without_window_clause(self.tokens)
            trees = parse_plain(self.tokens, query, dialect)
        except (SqlglotError, RecursionError):
            return
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            self.tree = trees[0]

    def place(self, node: exp.Expr | None) -> tuple[int, int] | None:
        """The position ``[start, end)`` of a name, a star, a number or a call's name; None if the node has no
        position."""
        if node is None or node._meta is None:
            return None
        start, end = node._meta.get("start"), node._meta.get("end")
        return (int(start), int(end) + 1) if start is not None and end is not None else None

    def first_place(self, node: exp.Expr | None) -> tuple[int, int] | None:
        """The first position of any part of a tree; None if no part has a position."""
        if node is None:
            return None
        return min(filter(None, map(self.place, node.walk())), default=None)

    def keyword(self, before: tuple[int, int] | None, kinds: Iterable[TokenType]) -> tuple[int, int] | None:
        """Returns the position of the last token of the given kinds that starts at or before ``before``. If there is no
        such token, returns ``before``."""
        if before is None:
            return None
        wanted = tuple(kinds)
        found = [token for token in self.tokens if token.start <= before[0] and token.token_type in wanted]
        return (found[-1].start, found[-1].end + 1) if found else before

    def written(self, node: exp.Expr) -> str:
        """A name, spelled as in the query's text."""
        place = self.place(node)
        return self.query[slice(*place)] if place else node.name


def children(node: exp.Expr) -> Iterator[exp.Expr]:
    """The direct child expressions of an expression, without types and names."""
    for child in node.iter_expressions():
        if not isinstance(child, exp.DataType | exp.Identifier | exp.Var):
            yield child
