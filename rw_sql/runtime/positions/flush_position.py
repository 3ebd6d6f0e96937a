"""Stores the position for which a FLUSH waits, so that the process that reads a change data capture source finds this
position."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.support.warehouse import Warehouse


def request_position(warehouse: Warehouse, source: SourceRecord, position: int) -> None:
    """Makes the reader of ``source`` commit its position as soon as the reader reaches ``position``, even if no change
    arrives.

    While no change arrives, a reader rarely commits its position. With this request, FLUSH need not wait for the
    reader's next regular commit.
    """
    warehouse.write_text(_path(warehouse, source), str(position))


def requested_position(warehouse: Warehouse, source: SourceRecord) -> int:
    """The last requested position; 0 if no position was requested."""
    try:
        return int(warehouse.read_text(_path(warehouse, source)))
    except (FileNotFoundError, ValueError):  # The file may be empty while it is being written.
        return 0


def _path(warehouse: Warehouse, source: SourceRecord) -> str:
    return f"{warehouse.read_ranges(source.id, source.generation)}.flush"
