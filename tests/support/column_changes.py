"""The changes to columns that a reader of captured tables reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rw_sql.connectors.changes import SchemaChange


def note_changes(reader: Any) -> list[SchemaChange]:
    """A list to which each call of the reader's ``take`` adds the changes that it returns."""
    found: list[SchemaChange] = []
    take = reader.take

    def noting(most: int, wait: float) -> object:
        taken = take(most, wait)
        found.extend(taken.changes)
        return taken

    reader.take = noting
    return found
