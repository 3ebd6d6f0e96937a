"""Reads a small Delta table into memory with Arrow, if Arrow certainly reads the values that Spark would read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rw_sql.connectors.delta.plain_files import is_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEGACY = b"org.apache.spark.legacy"
"""The beginning of the keys by which Spark marks files whose times it converts from the Julian calendar."""

_GREGORIAN = dt.date(1582, 10, 15)
"""The first day of the Gregorian calendar. Spark may convert or refuse earlier times, depending on the writer."""

_FORMS = {
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
}
"""Arrow types that differ only in the memory that they need. delta-rs stores the type of its values in the file."""


def is_readable(kind: pa.DataType) -> bool:
    """True for the types of columns that Arrow and Spark read alike. Nested types are not among them."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or kind in (pa.string(), pa.binary())
    )


def rows_of(path: str, columns: Mapping[str, pa.DataType], most_bytes: int) -> pa.Table | None:
    """The rows of the newest version of a table, with the columns ``columns`` (name → type) in that order.

    Returns None if the table's files do not determine its rows (because of a feature that readers must support, or
    partition columns), or for a reason of :func:`rows_of_files`.
    """
    try:
        table = DeltaTable(path)
    except DeltaError:
        return None
    protocol = table.protocol()
    if not is_plain(protocol.min_reader_version, protocol.reader_features or ()) or table.metadata().partition_columns:
        return None
    return rows_of_files(table.file_uris(), columns, most_bytes)


def rows_of_files(files: Sequence[str], columns: Mapping[str, pa.DataType], most_bytes: int) -> pa.Table | None:
    """The rows of local Parquet files, with the columns ``columns`` (name → type) in that order.

    Returns None if a file is not local or cannot be read, if the rows need more than ``most_bytes`` of memory, or if a
    column is missing, has another type, or has times that Spark may convert.
    """
    schema = pa.schema(list(columns.items()))
    if not all(is_readable(field.type) for field in schema):
        return None
    parts: list[pa.Table] = []
    left = most_bytes
    try:
        for file in files:
            if not file.startswith("/"):
                return None
            with pq.ParquetFile(file, memory_map=True) as opened:
                for group in range(opened.num_row_groups) if _is_as_declared(opened, schema) else (None,):
                    if group is None:
                        return None
                    part = opened.read_row_group(group, columns=schema.names).select(schema.names)
                    left -= part.nbytes
                    if left < 0:
                        return None
                    parts.append(part.cast(schema))
    except (OSError, pa.ArrowException):
        return None
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    return rows if all(_is_gregorian(column) for column in rows.columns) else None


def _is_as_declared(file: pq.ParquetFile, schema: pa.Schema) -> bool:
    """True if the file has the columns of the schema with their types, and Spark does not convert its times."""
    if any(key.startswith(_LEGACY) for key in file.metadata.metadata or {}):
        return False
    stored = file.schema_arrow
    for field in schema:
        places = stored.get_all_field_indices(field.name)
        if len(places) != 1 or not _is_same(stored.field(places[0]).type, field.type):
            return False
    return True


def _is_same(stored: pa.DataType, declared: pa.DataType) -> bool:
    return stored == declared or stored in _FORMS.get(declared, ())


def _is_gregorian(column: pa.ChunkedArray[Any]) -> bool:
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        return True
    first = pc.cast(pc.min(column), pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()).as_py()
    days = (_GREGORIAN - dt.date(1970, 1, 1)).days
    return first is None or first >= (days if pa.types.is_date(column.type) else days * 86_400_000_000)
