"""The text of queries and expressions that were cut out of statements."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.syntax.scan import Token


def spaced(token: Token) -> str:
    """The text of a cut-out token with comments gone and every run of blanks as one."""
    pieces: list[str] = []
    end = -1
    for part in token.parts:
        if end >= 0 and part.start > end:
            pieces.append(" ")
        pieces.append(part.text)
        end = part.end
    return "".join(pieces)


@lru_cache(maxsize=64)
def is_spark_query(text: str) -> bool:
    """Whether sqlglot takes the text as one query of Spark's."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        return isinstance(parse_one(text, read="spark"), exp.Query)
    except (SqlglotError, RecursionError):
        return False
