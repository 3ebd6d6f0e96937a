"""Sets Python's recursion limit for nested queries, and makes the error for a query that exceeds the limit."""

from __future__ import annotations

import sys

from rw_sql.errors import TOO_COMPLEX, Span, SqlError

_FRAMES = 4_000
"""The recursion limit that nested queries need. sqlglot nests up to 25 function calls for each level of a query, and
rw_sql's own reader accepts 100 levels. The limit cannot be much higher: it also applies to recursive C code, such as
Python's JSON parser, whose stack would overflow."""


def allow_nesting() -> None:
    """Raises Python's recursion limit to the value that the deepest permitted queries need. If the limit is already
    higher, it is not changed."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))


def too_deep(span: Span | None) -> SqlError:
    """The error for a text at ``span`` whose nesting exceeds Python's recursion limit."""
    return SqlError(
        TOO_COMPLEX,
        "this is nested too deeply",
        span=span,
        hint="name inner parts in WITH a_name AS (…), or make them views",
    )
