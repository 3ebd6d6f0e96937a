"""Reads rows of a table's snapshots as Arrow tables, with types that Spark supports."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.connectors.iceberg.history import snapshot_before

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

    from rw_sql.connectors.iceberg.history import TableSnapshot

OFFSET = "_rw_offset"
"""The name of the column with the offset of each row's snapshot."""

_PART_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The files of one snapshot that must be read for a range of offsets.

    ``files`` contains (path, size in bytes, number of rows) for each file. If ``is_whole`` is true, these are all files
    of the snapshot. Otherwise, these are only the files that the parent snapshot does not have.
    """

    offset: int
    snapshot: int
    parent: int | None
    is_whole: bool
    files: tuple[tuple[str, int, int], ...]


def projected(table: Table, columns: Sequence[str]) -> Schema:
    """The table's schema reduced to these columns. The names are not case-sensitive. Raises KeyError for a missing
    column."""
    known = {field.name.lower(): field.name for field in table.schema().fields}
    return table.schema().select(*dict.fromkeys(known[column.lower()] for column in columns))


def whole_table(table: Table, end: int, columns: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Divides the files of the newest snapshot before ``end`` into parts. All rows have the offset 0. Returns the parts
    and the total number of rows."""
    snapshot = snapshot_before(table, end)
    if snapshot is None:
        return [], 0
    return _parts(table, [_plan(table, snapshot, offset=0, is_whole=True)], columns)


def appended(table: Table, found: Sequence[TableSnapshot], columns: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Divides the files that these snapshots appended into parts. The offset of a row is the sequence number of its
    snapshot. Returns the parts and the total number of rows."""
    plans = [_plan(table, each, offset=each.sequence, is_whole=False) for each in found]
    return _parts(table, plans, columns)


def whole_table_count(table: Table, end: int) -> int | None:
    """The number of rows of the newest snapshot before ``end``, according to its manifests. Returns None if the
    snapshot has delete files, because the manifests also count the deleted rows."""
    snapshot = snapshot_before(table, end)
    if snapshot is None:
        return 0
    tasks = _tasks(table, snapshot.id, snapshot.parent, is_whole=True)
    if any(task.delete_files for task in tasks):
        return None
    return sum(task.file.record_count for task in tasks)


def appended_count(table: Table, found: Sequence[TableSnapshot]) -> int:
    """The number of rows that these snapshots appended, according to their manifests."""
    plans = [_plan(table, each, offset=each.sequence, is_whole=False) for each in found]
    return sum(count for plan in plans for _, _, count in plan.files)


def _plan(table: Table, snapshot: TableSnapshot, *, offset: int, is_whole: bool) -> _Planned:
    tasks = _tasks(table, snapshot.id, snapshot.parent, is_whole=is_whole)
    files = tuple((task.file.file_path, task.file.file_size_in_bytes, task.file.record_count) for task in tasks)
    return _Planned(offset=offset, snapshot=snapshot.id, parent=snapshot.parent, is_whole=is_whole, files=files)


def _tasks(table: Table, snapshot: int, parent: int | None, *, is_whole: bool) -> list[FileScanTask]:
    if is_whole:
        return list(table.scan(snapshot_id=snapshot).plan_files())
    # For the first snapshot, ``parent`` is None, and the scan starts at the table's beginning.
    scan = table.incremental_append_scan(from_snapshot_id_exclusive=parent, to_snapshot_id_inclusive=snapshot)
    return list(scan.plan_files())


def _parts(table: Table, plans: Sequence[_Planned], columns: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Groups the files of each snapshot into parts of at most _PART_BYTES, unless a single file is larger. The parts
    are JSON values for the processes that read them. Returns the parts and the total number of rows."""
    parts, rows = [], 0
    for plan in plans:
        held: list[str] = []
        size = 0
        for path, length, count in plan.files:
            rows += count
            if held and size + length > _PART_BYTES:
                parts.append(_part(table, plan, held, size, columns))
                held, size = [], 0
            held.append(path)
            size += length
        if held:
            parts.append(_part(table, plan, held, size, columns))
    return parts, rows


def _part(table: Table, plan: _Planned, files: list[str], size: int, columns: Sequence[str]) -> dict[str, Any]:
    return {
        "metadata": table.metadata_location,
        "offset": plan.offset,
        "snapshot": plan.snapshot,
        "parent": plan.parent,
        "whole": plan.is_whole,
        "files": files,
        "bytes": size,
        "columns": list(columns),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPartReader:
    """Reads parts of a table. See :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the rows of one part, each with the offset of its snapshot.

        ``options`` are the options that the client needs to read the table's files.
        """
        from pyiceberg.table import StaticTable

        yield from read_files(StaticTable.from_metadata(part["metadata"], dict(options)), part)


def read_files(table: Table, part: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Reads the rows of one part of a table."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = projected(table, part["columns"])
    files = set(part["files"])
    found = _tasks(table, part["snapshot"], part["parent"], is_whole=part["whole"])
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    for batch in scan.to_record_batches([task for task in found if task.file.file_path in files]):
        yield _made(batch, arrow_schema(schema), int(part["offset"]))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of the columns, with :data:`OFFSET` as the first column. All types are types that Spark
    supports."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    fields = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(OFFSET, pa.int64()), *(pa.field(each.name, plain(each.type)) for each in fields)])


def plain(kind: pa.DataType) -> pa.DataType:
    """The Arrow type as which Spark reads a column. UUID and TIME become strings, fixed-length bytes become bytes,
    types with 64-bit lengths become the same types with 32-bit lengths, and timestamps get the unit microsecond."""
    if pa.types.is_large_string(kind) or pa.types.is_time(kind) or kind == pa.uuid():
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return kind


def _made(batch: pa.RecordBatch, schema: pa.Schema, offset: int) -> pa.Table:
    count = batch.num_rows
    arrays = [pa.array([offset], pa.int64()).take(pa.array([0] * count, pa.int64()))]
    for field in list(schema)[1:]:
        column = batch.column(batch.schema.get_field_index(field.name))
        arrays.append(_fitted(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    # Arrow would interpret a UUID's bytes as text.
    if _has_uuid(column.type):
        return pa.array(_texts(column.to_pylist()), kind)
    # Nanoseconds are cut off, as in Parquet files.
    return column.cast(options=pc.CastOptions(kind, allow_time_truncate=True))


def _has_uuid(kind: pa.DataType) -> bool:
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    return kind == pa.uuid() or any(_has_uuid(each) for each in inner)


def _texts(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_texts(each) for each in value)
    if isinstance(value, dict):
        return {key: _texts(each) for key, each in value.items()}
    return value
