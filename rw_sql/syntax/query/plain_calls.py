"""Parses a query, and keeps the names and arguments of its calls as written.

The parsers of sqlglot translate most functions. The parsers drop arguments that other dialects do not have
(``to_char(a, '999')``, ``percentile(a, 0.5, b)``), add defaults (``listagg(a)``), and respell formats (``YYYY``). For a
call with a wrong number of arguments, they raise an error of sqlglot or of Python.
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
"""Functions whose arguments contain keywords. sqlglot's special rules parse calls of these functions.

All other calls are parsed generically, because sqlglot's special rules would lose the calls' names and surplus
arguments.
"""

_HIDDEN = "\ue000"
"""A character appended to function names, which prevents sqlglot from recognizing the functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One of sqlglot's parsers, and the words that have a special meaning for this parser. The words in ``calls`` have
    their special meaning only before a bracket. The words in ``words`` have their special meaning everywhere.

    A subclass of the parser with fewer functions would be simpler. But ``sqlglot[c]`` and ``sqlglot[rs]`` install
    compiled classes, and a Python class cannot inherit from these classes.
    """

    parser: type[Any]
    calls: frozenset[str]
    words: frozenset[str] = frozenset()

    def parse(self, tokens: list[Token], query: str, dialect: Dialect) -> list[exp.Expr | None]:
        """Implements :func:`parse_plain` for this parser's dialect."""
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
    """Marks the word ``window`` in each call ``window(…)`` as a name. Without this mark, sqlglot mistakes a ``window``
    right after GROUP BY for the clause WINDOW."""
    for word, bracket in pairwise(tokens):
        if word.token_type == TokenType.WINDOW and bracket.token_type == TokenType.L_PAREN:
            word.token_type = TokenType.VAR
