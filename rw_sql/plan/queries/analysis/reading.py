"""Parses the text of a query to a tree, and determines the positions of names and calls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError
from sqlglot.parsers.risingwave import RisingWaveParser
from sqlglot.parsers.spark import SparkParser

from rw_sql.syntax.query.spark_tokens import dialect_of, spark_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlglot import Dialect, Token

_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
"""Calls with keywords inside, which sqlglot parses specially.

Other calls are parsed generically, because sqlglot's special forms would lose their names and surplus arguments.
"""

_HIDDEN = "\ue000"
"""Ends the names of functions that sqlglot must not recognize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One of sqlglot's parsers, and the words that have a special meaning to it: ``calls`` before a bracket, ``words``
    anywhere.

    A subclass with fewer functions would be plainer, but a class of Python cannot inherit from sqlglot's compiled ones,
    which ``sqlglot[c]`` and ``sqlglot[rs]`` install.
    """

    parser: type[Any]
    calls: frozenset[str]
    words: frozenset[str] = frozenset()

    def parse(self, tokens: list[Token], query: str, dialect: Dialect) -> list[exp.Expr | None]:
        """The trees of a query; functions outside ``_FORMS`` become ``exp.Anonymous``. Raises SqlglotError."""
        hidden = [
            word
            for word, following in zip_longest(tokens, tokens[1:])
            if (name := word.text.upper()) in self.words
            or (name in self.calls and following is not None and following.token_type == TokenType.L_PAREN)
        ]
        for word in hidden:
            word.text += _HIDDEN
        trees: list[exp.Expr | None] = self.parser(dialect=dialect).parse(tokens, query)
        for word in hidden:
            word.text = word.text.removesuffix(_HIDDEN)
        for tree in trees if hidden else ():
            for node in tree.walk() if tree is not None else ():
                for name, value in node.args.items():
                    if type(value) is str and value.endswith(_HIDDEN):
                        node.args[name] = value.removesuffix(_HIDDEN)
        return trees


def _reader(parser: type[Any], *, words: frozenset[str] = frozenset()) -> _Reader:
    kept = {name for name in parser.FUNCTION_PARSERS if name in _FORMS} | parser.NO_PAREN_FUNCTION_PARSERS.keys()
    return _Reader(parser=parser, calls=frozenset({*parser.FUNCTIONS, *parser.FUNCTION_PARSERS} - kept), words=words)


_READERS = {
    "spark": _reader(SparkParser, words=frozenset(SparkParser.NO_PAREN_FUNCTION_PARSERS) - {"CASE"}),
    "risingwave": _reader(RisingWaveParser),
}


class Text:
    """A query's text with its tree (None if sqlglot cannot parse it) and the positions of the tree's parts."""

    def __init__(self, query: str, dialect: str) -> None:
        self.query = query
        self.tokens: list[Token] = []
        self.tree: exp.Query | None = None
        spoken = dialect_of(dialect)
        try:
            self.tokens = spark_tokens(query) if dialect == "spark" else spoken.tokenize(query)
            for word, bracket in pairwise(self.tokens):
                # To sqlglot, window(…) right after GROUP BY is the clause WINDOW.
                if word.token_type == TokenType.WINDOW and bracket.token_type == TokenType.L_PAREN:
                    word.token_type = TokenType.VAR
            trees = _READERS[dialect].parse(self.tokens, query, spoken)
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
