"""Computes the number of existing rows that a new view or sink must read. The statistics of the tables' current files
contain the numbers of rows."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.table_paths import table_path
from rw_sql.runtime.support.background import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.support.warehouse import Warehouse


_STORE_SECONDS = 5.0
"""The time limit in seconds for counting the rows in all tables that belong to the user, together. The limit is needed
because the store of a user's table may take very long to respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToRead:
    """A number of rows, and the total size in bytes of the files with these rows. A file without a row count adds its
    size, but no rows."""

    rows: int = 0
    bytes: int = 0


def rows_to_read(warehouse: Warehouse, snapshot: Snapshot, ids: Iterable[int]) -> RowsToRead:
    """The number of rows in the logs and tables of the objects ``ids``. An object that occurs twice counts twice. A
    user's own table does not count if its store fails, or does not respond within _STORE_SECONDS."""
    paths: list[str] = []
    users: list[str] = []
    for id_ in ids:
        record = snapshot.get(id_)
        if record is not None and record.kind in ("source", "table", "materialized_view", "delta_table"):
            found = users if record.kind == "delta_table" else paths
            found.append(table_path(warehouse, snapshot, id_))
    counting = {path: prepare(partial(_rows_of, warehouse, path), "rows-to-read") for path in set(users)}
    counts = [_rows_of(warehouse, path) for path in paths]
    wait(counting.values(), _STORE_SECONDS)
    answered = (counting[path] for path in users if counting[path].done())
    counts += [each.result() for each in answered if not isinstance(each.exception(), OSError | DeltaError)]
    return RowsToRead(rows=sum(each.rows for each in counts), bytes=sum(each.bytes for each in counts))


def _rows_of(warehouse: Warehouse, path: str) -> RowsToRead:
    try:
        if latest_version(warehouse, path) < 0:
            return RowsToRead()
        files = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    except TableNotFoundError:  # the object was dropped in the meantime
        return RowsToRead()
    rows = sum(count or 0 for count in files.column("num_records").to_pylist())
    return RowsToRead(rows=rows, bytes=sum(files.column("size_bytes").to_pylist()))
