"""Quotes the names of columns for the SQL statements in hints."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def in_query(name: str) -> str:
    """Returns a column's name for a query of CREATE SINK or for a Spark statement. The name is quoted if it is not a
    plain identifier."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
