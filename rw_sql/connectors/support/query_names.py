"""Quotes column names for the SQL statements that hints suggest."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def in_query(name: str) -> str:
    """Returns a column's name in the form that CREATE SINK's query or a Spark statement needs: with quotes unless it
    is a plain identifier."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
