"""How large a source's log is: from the statistics of its live files, without reading one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rw_sql.metastore.records import SourceRecord
from rw_sql.plan.log_requests import LogSize
from rw_sql.runtime.decode import BUCKET, ERROR
from rw_sql.runtime.delta_log import latest_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.context import Context

MILLISECONDS_PER_BUCKET = 3_600_000
"""Rows of one hour have one ``_rw_bucket``."""


def current_bucket() -> int:
    """What rows that are written now have as ``_rw_bucket``: hours since 1970."""
    return int(time.time() * 1000) // MILLISECONDS_PER_BUCKET


def measure_logs(context: Context, snapshot: Snapshot, source_ids: Iterable[int]) -> dict[int, LogSize]:
    """The sizes of the logs that are there."""
    found: dict[int, LogSize] = {}
    for source in map(snapshot.get, source_ids):
        if not isinstance(source, SourceRecord) or latest_version(context.warehouse, context.log_path(source)) < 0:
            continue
        try:
            found[source.id] = log_size(DeltaTable(context.log_path(source)))
        except TableNotFoundError:  # dropped meanwhile
            continue
    return found


def log_size(table: DeltaTable) -> LogSize:
    """The size of a log at the handle's version."""
    files = pa.table(table.get_add_actions(flatten=True))
    rows = _sum(files, "num_records")
    nulls = files.column(f"null_count.{ERROR}").to_pylist() if f"null_count.{ERROR}" in files.column_names else []
    counts = files.column("num_records").to_pylist()
    errors = sum(count - null for count, null in zip(counts, nulls, strict=False) if null is not None and count)
    buckets = [bucket for bucket in files.column(f"partition.{BUCKET}").to_pylist() if bucket is not None]
    return LogSize(
        rows=rows,
        errors=errors,
        bytes=_sum(files, "size_bytes"),
        files=files.num_rows,
        since_ms=min(buckets) * MILLISECONDS_PER_BUCKET if buckets else None,
    )


def _sum(files: pa.Table, column: str) -> int:
    return sum(value or 0 for value in files.column(column).to_pylist())
