"""Handles the rows that a sink's target refuses. The module makes the messages that identify such rows, and stores them
in the sink's table of rejected rows (``on_error = 'skip'``).

Each batch with a refused row adds a file and a commit to this table. The job therefore merges small files, and deletes
files and commits that are no longer needed. The job performs this upkeep before it adds the rows of a batch, because
:func:`discard_from` expects the newest rows in the last commit.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from rw_sql.connectors.sink import OP
from rw_sql.connectors.support.nullable_schemas import nullable_schema
from rw_sql.metastore.table import create_table
from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.table_settings import STATISTICS
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.connectors.sink import Refusal, SinkShape
    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

BATCH = "_rw_batch"
_TOLD = ((OP, "string"), ("_rw_column", "string"), ("_rw_reason", "string"), ("_rw_at", "timestamp"), (BATCH, "long"))
"""In the table of rejected rows, these columns follow the row's own columns. They contain the operation, the refused
column, the reason, the time, and the sink's batch."""

_UPKEEP_EVERY = 50
"""The number of batches with refused rows between two runs of upkeep, and the minimum number of small files that upkeep
merges."""

_SMALL_BYTES = 4 * 2**20
"""A file of at least this size in bytes is not merged with other files."""

_KEPT_HOURS = 24
"""The time in hours for which replaced files are kept, because a query may be reading them."""

_LOG_RETENTION = {"delta.logRetentionDuration": "interval 1 days"}
"""The setting that determines how long old commits are kept."""

_MOST_CHARACTERS = 60
_MOST_COLUMNS = 4


def reason_of(rows: pa.Table, refusals: Sequence[Refusal], shape: SinkShape) -> str:
    """The error message for a batch: the first refused row, its column, the reason and the remedies."""
    first = refusals[0]
    where = f'column "{first.column}" of ' if first.column else ""
    more = f" (and {len(refusals) - 1} more row{'s' if len(refusals) > 2 else ''})" if len(refusals) > 1 else ""
    return f"REFUSED {where}row {row_text(rows, first.index, shape)}{more}: {first.reason}: {_remedies(first, shape)}"


def row_text(rows: pa.Table, index: int, shape: SinkShape) -> str:
    """Text that identifies a row: its key, for example ``(id = 2)``, or its first columns if it has no key."""
    names = list(shape.keys) or list(shape.columns)[:_MOST_COLUMNS]
    cut = ", …" if not shape.keys and len(shape.columns) > len(names) else ""
    return "(" + ", ".join(f"{name} = {_value_text(rows, name, index)}" for name in names) + cut + ")"


def _value_text(rows: pa.Table, name: str, index: int) -> str:
    readable = _readable_value(rows.column(name)[index])
    text = "NULL" if readable is None else repr(readable) if isinstance(readable, str) else str(readable)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _readable_value(value: pa.Scalar[Any]) -> Any:
    """The value as a Python object. Python can represent neither dates and timestamps outside the years 1 to 9999 nor
    text that is not UTF-8. Each such part of the value is replaced with a readable string."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        if isinstance(value, pa.StructScalar):
            return {name: _readable_value(part) for name, part in value.items()}
        if isinstance(value, pa.MapScalar):
            return [(_readable_value(entry["key"]), _readable_value(entry["value"])) for entry in value.values]
        if isinstance(value, pa.ListScalar | pa.LargeListScalar):
            return [_readable_value(part) for part in value.values]
        if isinstance(value, pa.StringScalar):
            return value.as_buffer().to_pybytes().decode("utf-8", "replace")
        return value.cast(pa.string()).as_py()


def _remedies(refusal: Refusal, shape: SinkShape) -> str:
    alter = f"ALTER SINK {sql_name(shape.name)} CONNECTOR WITH (on_error = 'skip')"
    if refusal.hint is None:
        return alter
    if refusal.hint.startswith("CONNECTOR WITH"):
        return f"ALTER SINK {sql_name(shape.name)} {refusal.hint}; or {alter}"
    return f"{alter}; or {refusal.hint}"


@dataclass(slots=True)
class RejectedRows:
    """The table of one sink's rejected rows. The table has the sink's columns, and columns that describe the refusal.

    Only the sink's job writes the table. For each batch, the table contains the rows refused in the latest attempt. At
    its beginning, a run removes the rows of an unfinished batch (:func:`discard_from`), because it writes this batch
    again.
    """

    path: str
    shape: SinkShape
    total: int = 0
    _pending: list[pa.Table] = field(default_factory=list)
    _newest: tuple[int, int] = (-1, 0)
    """The last batch with refused rows in this run, and the number of its rows in the table."""

    _batches: int = 0
    """The number of batches with refused rows in this run."""

    @staticmethod
    def open(path: str, shape: SinkShape) -> RejectedRows:
        """Opens the table, creating it if needed."""
        make_rejected(path, shape)
        return RejectedRows(path=path, shape=shape, total=rejected_count(path))

    def begin(self) -> None:
        """Begins a new attempt to write a batch. The refused rows of the previous attempt no longer count."""
        self._pending = []

    def put(self, rows: pa.Table, refusals: Sequence[Refusal], batch: int) -> pa.Table:
        """Adds the refused rows to the refused rows that are already stored for the batch. Returns the rows that were
        not refused."""
        indexes = [refusal.index for refusal in refusals]
        taken = rows.take(pa.array(indexes, pa.int64()))
        self._pending.append(self._told(taken, refusals, batch))
        kept = pa.concat_tables(self._pending)
        self._begin_batch(batch)
        write_deltalake(self.path, kept, mode="overwrite", predicate=f"{BATCH} = {batch}")
        if self._batches == 1:
            # An earlier run may have added other rows of this batch.
            self.total = rejected_count(self.path)
        else:
            self.total += kept.num_rows - self._newest[1]
        self._newest = batch, kept.num_rows
        is_left = np.ones(rows.num_rows, dtype=bool)
        is_left[indexes] = False
        return rows.filter(pa.array(is_left))

    def _begin_batch(self, batch: int) -> None:
        """Runs upkeep, if it is due, before the first rows of a batch are added. Failures of upkeep do not stop the
        job."""
        if self._newest[0] == batch:
            return
        self._newest = batch, 0
        if self._batches % _UPKEEP_EVERY == 0:
            try:
                _merge_small_files(self.path, batch)
            except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
                # The table's rows do not depend on upkeep.
                logger.warning("upkeep of %s: %s", self.path, error)
        self._batches += 1

    def _told(self, rows: pa.Table, refusals: Iterable[Refusal], batch: int) -> pa.Table:
        told = list(refusals)
        columns = {
            **{name: rows.column(name) for name in self.shape.columns},
            OP: rows.column(OP),
            "_rw_column": pa.array([refusal.column for refusal in told], pa.string()),
            "_rw_reason": pa.array([refusal.reason for refusal in told], pa.string()),
            "_rw_at": pa.array([datetime.now(UTC)] * len(told), pa.timestamp("us", "UTC")),
            BATCH: pa.array([batch] * len(told), pa.int64()),
        }
        return pa.table(columns).cast(pa.schema(rejected_schema(self.shape).to_arrow()))


def make_rejected(path: str, shape: SinkShape) -> None:
    """Creates the table of a sink's rejected rows, unless it exists."""
    # Only BATCH has statistics, because delta-rs may be unable to read the statistics of a refused value.
    create_table(path, rejected_schema(shape), {STATISTICS: BATCH})


def _merge_small_files(path: str, batch: int) -> None:
    """Merges small files of less than ``_SMALL_BYTES`` bytes into one file. Merges only files with rows of batches
    before ``batch``, and only files after the last file that is not small. Also deletes the replaced files and the
    commits that no longer need to be kept. Does nothing if the table has fewer than ``_UPKEEP_EVERY`` files."""
    table = DeltaTable(path)
    files = pa.table(table.get_add_actions(flatten=True))
    if files.num_rows < _UPKEEP_EVERY:
        return
    sizes = dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))
    found = (_Part.of(part, sizes) for part in table.to_pyarrow_dataset().get_fragments())
    parts = [part for part in found if part is not None]
    # A predicate over batches selects the files to be replaced, so the merged files must be all files of a range of
    # batches.
    after = max((part.last for part in parts if part.size >= _SMALL_BYTES), default=-1)
    small = [part for part in parts if part.first > after and part.last < batch]
    if len(small) >= _UPKEEP_EVERY:
        schema = pa.schema(table.schema().to_arrow())
        # pyarrow reads the rows, because delta-rs cannot read text that is not UTF-8.
        rows = pa.concat_tables([part.fragment.to_table(schema=schema) for part in small])
        bounds = f"{BATCH} >= {min(part.first for part in small)} AND {BATCH} <= {max(part.last for part in small)}"
        write_deltalake(table, rows, mode="overwrite", predicate=bounds)
    if not _LOG_RETENTION.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(_LOG_RETENTION)
    table.vacuum(retention_hours=_KEPT_HOURS, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    table.cleanup_metadata()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A file of the table of rejected rows, with its size in bytes and the first and last batch of its rows."""

    fragment: Any
    size: int
    first: int
    last: int

    @staticmethod
    def of(fragment: Any, sizes: Mapping[str, int]) -> _Part | None:
        """A file of the table; None if it has no rows. ``sizes`` are the sizes of all files, by path."""
        bounds = pc.min_max(fragment.to_table(columns=[BATCH]).column(BATCH)).as_py()
        if bounds["min"] is None:
            return None
        size = sizes.get(fragment.path.removeprefix("/"), _SMALL_BYTES)
        return _Part(fragment=fragment, size=size, first=bounds["min"], last=bounds["max"])


def discard_from(warehouse: Warehouse, path: str, batch: int) -> None:
    """Removes the rows of ``batch`` and of all later batches from a sink's table of rejected rows. Does nothing if the
    table does not exist."""
    version = latest_version(warehouse, path)
    # Every commit of rows replaces the rows of one batch, and batches are written in order.
    if version < 0 or _newest_batch(read_actions(warehouse, path, version)) < batch:
        return
    table = DeltaTable(path)
    nothing = pa.schema(table.schema().to_arrow()).empty_table()
    # A delete would read the rows, and delta-rs cannot read text that is not UTF-8.
    write_deltalake(table, nothing, mode="overwrite", predicate=f"{BATCH} >= {batch}")


def carry_over(warehouse: Warehouse, old: str, new: str, batch: int) -> None:
    """Copies the rows of all batches up to ``batch`` from the table of rejected rows ``old`` to the table of rejected
    rows ``new``. In ``new``, the copied rows replace the rows of these batches. Creates ``new`` if needed; does nothing
    if ``old`` does not exist."""
    if latest_version(warehouse, old) < 0:
        return
    table = DeltaTable(old)
    create_table(new, table.schema(), {STATISTICS: BATCH})
    rows = table.to_pyarrow_dataset().to_table(filter=pc.field(BATCH) <= batch)
    if rows.num_rows:
        write_deltalake(new, rows, mode="overwrite", predicate=f"{BATCH} <= {batch}")


def _newest_batch(actions: Iterable[dict[str, Any]]) -> int:
    """The newest batch of the rows that a commit adds; -1 if the commit adds no rows."""
    # delta-rs returns no statistics of tables with nested columns, so the statistics are read from the commit.
    stats = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
    return max((int(each["maxValues"][BATCH]) for each in stats), default=-1)


def rejected_schema(shape: SinkShape) -> Schema:
    """The columns of a sink's rejected rows. All columns are nullable, because a NULL may be the reason why a row is
    rejected."""
    own = Schema.from_json(nullable_schema(shape.schema)).fields
    return Schema([*own, *(Field(name, PrimitiveType(kind), nullable=True) for name, kind in _TOLD)])


def rejected_count(path: str) -> int:
    """The number of a sink's rejected rows, according to the statistics of the table's files; 0 if the table does not
    exist."""
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return 0
    counts = pa.table(table.get_add_actions(flatten=True)).column("num_records")
    return int(pc.sum(pc.fill_null(counts, 0)).as_py() or 0)
