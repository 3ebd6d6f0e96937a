"""Computes the size of a source's log from the statistics of its live files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rw_sql.metastore.records import SourceRecord
from rw_sql.plan.ports.tables import LogSize
from rw_sql.runtime.decoding.decoder import BUCKET, ERROR
from rw_sql.runtime.delta.delta_log import latest_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context

MILLISECONDS_PER_BUCKET = 3_600_000
"""The time span of one value of ``_rw_bucket``: one hour."""

_FOOTERS = 3
_KNOWN = "log_sizes"
_LEVELS = ("list", "element", "key_value", "value")
"""The names of the intermediate levels between a list or map and its elements in Parquet schemas."""


def current_bucket() -> int:
    """The ``_rw_bucket`` of rows written now: hours since 1970."""
    return int(time.time() * 1000) // MILLISECONDS_PER_BUCKET


def measure_logs(context: Context, snapshot: Snapshot, source_ids: Iterable[int]) -> dict[int, LogSize]:
    """The sizes of the logs of the sources ``source_ids``; a log that does not exist is absent. A log is opened only if
    its newest version was not measured before."""
    found: dict[int, LogSize] = {}
    known: dict[str, tuple[int, LogSize]] = context.made.setdefault(_KNOWN, {})
    for source in map(snapshot.get, source_ids):
        if not isinstance(source, SourceRecord):
            continue
        path = context.log_path(source)
        version = latest_version(context.warehouse, path)
        if version < 0:
            continue
        if path not in known or known[path][0] != version:
            try:
                table = DeltaTable(path)
            except TableNotFoundError:  # The source was dropped in the meantime.
                continue
            known[path] = (table.version(), _log_size(context, path, pa.table(table.get_add_actions(flatten=True))))
        found[source.id] = known[path][1]
    return found


def _log_size(context: Context, path: str, files: pa.Table) -> LogSize:
    """The size of a log that consists of ``files``."""
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
        empty=_empty_columns(context, path, files),
    )


def _empty_columns(context: Context, path: str, files: pa.Table) -> tuple[str, ...]:
    """Returns the columns and fields that are NULL in all rows of the newest files. The usual reason is that a column's
    name in the source's definition differs from the name in the records. This function reads the counts of NULLs from
    the files' footers, because Delta's statistics cover only the log's hidden columns."""
    newest = files.sort_by([("modification_time", "descending")])
    empty: set[str] | None = None
    for file in newest.column("path").to_pylist()[:_FOOTERS]:
        try:
            with context.warehouse.files.open(f"{path}/{unquote(file)}", "rb") as opened:
                of_file = _columns_of_nulls(pq.read_metadata(opened))
        except FileNotFoundError:  # The file was replaced by compaction in the meantime.
            continue
        if of_file is not None:
            empty = of_file if empty is None else empty & of_file
    return tuple(sorted(empty or ()))


def _columns_of_nulls(metadata: pq.FileMetaData) -> set[str] | None:
    """The columns and fields that are NULL in all rows of a file; None if every row of the file has a decode error."""
    empty: set[str] = set()
    others: set[str] = set()
    has_rows = False
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            top, *parts = column.path_in_schema.split(".")
            name = ".".join([top, *(part for part in parts if part not in _LEVELS)])
            known = column.statistics
            nulls = known.null_count if known is not None and known.has_null_count else 0
            has_rows = has_rows or (name == ERROR and nulls > 0)
            (empty if nulls == column.num_values else others).add(name)
    return {name for name in empty - others if not name.startswith("_rw_")} if has_rows else None


def _sum(files: pa.Table, column: str) -> int:
    return sum(value or 0 for value in files.column(column).to_pylist())
