"""Provides the tokens of a query in Spark's SQL, and sqlglot's dialect that reads these tokens."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import Dialect, Token


@cache
def dialect_of(name: str) -> Dialect:
    """sqlglot's dialect of this name. The dialect keeps no state between queries."""
    from sqlglot import Dialect

    return Dialect.get_or_raise(name)


def spark_tokens(query: str) -> list[Token]:
    """The tokens of a query in Spark's SQL, which the caller may modify. Raises SqlglotError.

    The tokens are cached, because several parsers read each query one after another.
    """
    from sqlglot import Token

    return [
        Token(word.token_type, word.text, word.line, word.col, word.start, word.end, list(word.comments))
        for word in _tokens(query)
    ]


@lru_cache(maxsize=64)
def _tokens(query: str) -> tuple[Token, ...]:
    return tuple(dialect_of("spark").tokenize(query))
