"""Writes the names of columns in the SQL of hints."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def in_query(name: str) -> str:
    """A column's name as a query of CREATE SINK or a statement of Spark writes it, quoted if it is not plain."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
