"""Stores the position for which a FLUSH waits in a file. The process that reads the change data capture source looks
for this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.support.warehouse import Warehouse


def request_position(warehouse: Warehouse, source: SourceRecord, position: int) -> None:
    """Requests that the reader of ``source`` commit its position as soon as it reaches ``position``, even if no change
    arrives.

    While no change arrives, a reader rarely commits its position. Without this request, FLUSH would have to wait for
    the reader's next regular commit.
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
