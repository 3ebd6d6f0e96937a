"""Parses a query so that its calls keep their names and arguments as written.

The parsers of sqlglot translate most functions. They drop arguments that other dialects do not have (``to_char(a,
'999')``, ``percentile(a, 0.5, b)``), add defaults (``listagg(a)``), and respell formats (``YYYY``). They refuse calls
with a wrong number of arguments, or fail at such calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType
from sqlglot.parsers.risingwave import RisingWaveParser
from sqlglot.parsers.spark import SparkParser

from rw_sql.syntax.query.spark_tokens import dialect_of

if TYPE_CHECKING:
    from sqlglot import Dialect, Token, exp

_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
"""Functions whose arguments contain keywords. sqlglot parses the calls of these functions with special rules.

Other calls are parsed generically, because sqlglot's special forms would lose their names and surplus arguments.
"""

_HIDDEN = "\ue000"
"""A character that is appended to the names of functions so that sqlglot does not recognize them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One of sqlglot's parsers, and the words that have a special meaning for this parser. The words in ``calls`` have
    this meaning only before a bracket, and the words in ``words`` have it anywhere.

    A subclass of the parser with fewer functions would be simpler. But ``sqlglot[c]`` and ``sqlglot[rs]`` install
    compiled classes, and a Python class cannot inherit from these classes.
    """

    parser: type[Any]
    calls: frozenset[str]
    words: frozenset[str] = frozenset()

    def parse(self, tokens: list[Token], query: str, dialect: Dialect) -> list[exp.Expr | None]:
        """See :func:`parse_plain`."""
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


def parse_plain(tokens: list[Token], query: str, dialect: str) -> list[exp.Expr | None]:
    """Returns the trees of a query in the dialect ``spark`` or ``risingwave``. Functions that are not in ``_FORMS``
    become ``exp.Anonymous``.

    Raises SqlglotError.
    """
    return _READERS[dialect].parse(tokens, query, dialect_of(dialect))


def without_window_clause(tokens: list[Token]) -> None:
    """Marks the word ``window`` in each call ``window(…)`` as a name. Without this mark, sqlglot mistakes the word
    right after GROUP BY for the clause WINDOW."""
    for word, bracket in pairwise(tokens):
        if word.token_type == TokenType.WINDOW and bracket.token_type == TokenType.L_PAREN:
            word.token_type = TokenType.VAR
