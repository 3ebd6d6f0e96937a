"""Results as text cells, for the command line and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS = 1000
"""The maximum number of rows shown; a script that needs more writes them to a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A result to display: every cell is text, None for NULL. ``has_more``: rows were left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    has_more: bool = False

    @property
    def count(self) -> str:
        """The number of rows in words: ``3 rows``, ``the first 1000 rows``."""
        count = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"the first {count}" if self.has_more else count


def read_rows(result: DataFrame, *, most: int = MOST_ROWS) -> Rows:
    """Runs a query's DataFrame and returns at most ``most`` of its rows."""
    taken = result.take(most + 1)
    return Rows(
        columns=tuple(result.columns),
        rows=tuple(tuple(cell_text(value) for value in row) for row in taken[:most]),
        has_more=len(taken) > most,
    )


def cell_text(value: Any) -> str | None:
    """A value as text: booleans and NULL as in SQL, bytes in hexadecimal, arrays in brackets."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return "\\x" + value.hex()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{cell_text(key)}: {_inner(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return cell_text(value.asDict())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inner(item) for item in value) + "]"
    return str(value)


def _inner(value: Any) -> str:
    text = cell_text(value)
    return "NULL" if text is None else text
