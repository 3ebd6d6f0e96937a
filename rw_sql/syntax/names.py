"""When a name needs quotes, and how texts are quoted."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")

RESERVED = frozenset(
    [
        "all",
        "alter",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "asymmetric",
        "both",
        "by",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "cross",
        "current_catalog",
        "current_date",
        "current_role",
        "current_time",
        "current_timestamp",
        "current_user",
        "default",
        "deferrable",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "exists",
        "explain",
        "false",
        "fetch",
        "for",
        "foreign",
        "from",
        "full",
        "grant",
        "group",
        "having",
        "if",
        "in",
        "include",
        "initially",
        "inner",
        "intersect",
        "into",
        "is",
        "join",
        "key",
        "lateral",
        "leading",
        "left",
        "like",
        "limit",
        "localtime",
        "localtimestamp",
        "natural",
        "not",
        "null",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "outer",
        "placing",
        "primary",
        "references",
        "returning",
        "right",
        "secret",
        "select",
        "session_user",
        "set",
        "show",
        "similar",
        "some",
        "struct",
        "symmetric",
        "table",
        "then",
        "to",
        "trailing",
        "true",
        "union",
        "unique",
        "unsafe",
        "update",
        "user",
        "using",
        "values",
        "variadic",
        "watermark",
        "when",
        "where",
        "window",
        "with",
    ]
)
"""Words that are printed in quotes where they are names: reserved in PostgreSQL, or able to begin a clause of ours."""


def quoted(name: str) -> str:
    """A name as it must be written: in quotes only where it needs them."""
    if _PLAIN.match(name) and name not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in single quotes."""
    return "'" + text.replace("'", "''") + "'"
