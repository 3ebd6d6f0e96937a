"""Computes the number of existing rows that a new view or sink must read. Uses only the statistics of live files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.table_paths import table_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToRead:
    """A number of rows and the size of their files in bytes. Files without a row count are skipped."""

    rows: int = 0
    bytes: int = 0


def rows_to_read(warehouse: Warehouse, snapshot: Snapshot, ids: Iterable[int]) -> RowsToRead:
    """The rows in the logs and tables of the objects ``ids``. An object that occurs twice counts twice."""
    rows = size = 0
    for id_ in ids:
        record = snapshot.get(id_)
        if record is None or record.kind not in ("source", "table", "materialized_view", "delta_table"):
            continue
        path = table_path(warehouse, snapshot, id_)
        try:
            if latest_version(warehouse, path) < 0:
                continue
            files = pa.table(DeltaTable(path).get_add_actions(flatten=True))
        except TableNotFoundError:  # dropped since
            continue
        except (OSError, DeltaError):
            if record.kind != "delta_table":
                raise
            continue  # The store of the user's own table does not respond.
        rows += sum(count or 0 for count in files.column("num_records").to_pylist())
        size += sum(files.column("size_bytes").to_pylist())
    return RowsToRead(rows=rows, bytes=size)
