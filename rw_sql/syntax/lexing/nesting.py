"""Provides space on Python's stack for nested queries, and the error for a query that needs more space."""

from __future__ import annotations

import sys

from rw_sql.errors import TOO_COMPLEX, Span, SqlError

_FRAMES = 4_000
"""The recursion limit that nested queries need. sqlglot calls up to 25 functions for one level of nesting, and rw_sql's
own reader accepts 100 levels. The limit cannot be much higher, because it also applies to code in C, such as Python's
JSON parser, whose stack would overflow."""


def allow_nesting() -> None:
    """Raises Python's recursion limit to the value that queries with the permitted number of levels need. If the
    process already has a higher limit, the limit is not changed."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))


def too_deep(span: Span | None) -> SqlError:
    """The error for a text at ``span`` whose nesting exceeds Python's recursion limit."""
    return SqlError(
        TOO_COMPLEX,
        "this is nested too deeply",
        span=span,
        hint="name inner parts in WITH a_name AS (…), or make them views",
    )
