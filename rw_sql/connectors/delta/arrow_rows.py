"""Reads a small Delta table into memory with Arrow, if Arrow is certain to return the same values as Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rw_sql.connectors.delta.plain_files import is_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEGACY, _VERSION = b"org.apache.spark.legacy", b"org.apache.spark.version"
"""The keys by which Spark recognizes a file whose times it converts from the Julian calendar. ``_LEGACY`` is the
beginning of the keys that mark such a file. ``_VERSION`` is the key for the version of Spark that wrote the file; all
versions before 3 used the Julian calendar."""

_DAYS = (-141_427, 2_932_896)
_MICROS = (-141_427 * 86_400_000_000, 253_402_300_799_999_999)
"""The first and the last date or time that Arrow may read: 15 October 1582, the first day of the Gregorian calendar,
and the end of the year 9999. Spark may convert earlier times, and a table cannot contain later ones."""

_BATCH_ROWS = 65_536

_FORMS = {
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
}
"""Arrow types that differ only in the memory that they need. delta-rs stores the type of its values in the file."""


def is_readable(kind: pa.DataType) -> bool:
    """True for the types of columns that Arrow and Spark read alike; False for all nested types."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or kind in (pa.string(), pa.binary())
    )


def rows_of(path: str, columns: Mapping[str, pa.DataType], *, most_rows: int, most_bytes: int) -> pa.Table | None:
    """The rows of the newest version of a table, with the columns ``columns`` (name → type) in that order.

    Returns None if the table lacks a column or has another type for it. Also returns None if the files alone do not
    determine the table's rows, because the table has partition columns or a feature that readers must support, or if
    :func:`rows_of_files` returns None.
    """
    try:
        table = DeltaTable(path)
    except DeltaError:
        return None
    protocol = table.protocol()
    if not is_plain(protocol.min_reader_version, protocol.reader_features or ()) or table.metadata().partition_columns:
        return None
    # An empty table has no file that would show that a column is missing.
    if not _has_columns(pa.schema(table.schema().to_arrow()), pa.schema(list(columns.items()))):
        return None
    return rows_of_files(table.file_uris(), columns, most_rows=most_rows, most_bytes=most_bytes)


def rows_of_files(
    files: Sequence[str], columns: Mapping[str, pa.DataType], *, most_rows: int, most_bytes: int
) -> pa.Table | None:
    """The rows of local Parquet files, with the columns ``columns`` (name → type) in that order.

    Returns None if a file is not local or cannot be read, or if there are more than ``most_rows`` rows or they need
    more than ``most_bytes`` of memory. Also returns None if a column is missing, has another type, or has times that
    Spark may convert or refuse.
    """
    schema = pa.schema(list(columns.items()))
    if not all(is_readable(field.type) for field in schema):
        return None
    parts: list[pa.Table] = []
    rows_left, bytes_left = most_rows, most_bytes
    try:
        for file in files:
            if not file.startswith("/"):
                return None
            # Not as mapped memory: if a mapped file is cut while it is read, the system ends the process.
            with pq.ParquetFile(file) as opened:
                rows_left -= opened.metadata.num_rows
                if rows_left < 0 or not _is_as_declared(opened, schema):
                    return None
                # A whole row group may need far more memory than its file.
                for batch in opened.iter_batches(batch_size=_BATCH_ROWS, columns=schema.names):
                    part = pa.Table.from_batches([batch]).select(schema.names)
                    bytes_left -= part.nbytes
                    if bytes_left < 0:
                        return None
                    parts.append(part.cast(schema))
    except (OSError, pa.ArrowException):
        return None
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    return rows if all(_has_usual_times(column) for column in rows.columns) else None


def _is_as_declared(file: pq.ParquetFile, schema: pa.Schema) -> bool:
    """True if the file has the columns of the schema with their types, and Spark does not convert its times."""
    marks = file.metadata.metadata or {}
    if any(key.startswith(_LEGACY) for key in marks) or marks.get(_VERSION, b"").startswith((b"1.", b"2.")):
        return False
    return _has_columns(file.schema_arrow, schema)


def _has_columns(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """True if each column of ``wanted`` is in ``stored`` once, with the same type."""
    for field in wanted:
        places = stored.get_all_field_indices(field.name)
        if len(places) != 1 or not _is_same(stored.field(places[0]).type, field.type):
            return False
    return True


def _is_same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    return stored == wanted or stored in _FORMS.get(wanted, ())


def _has_usual_times(column: pa.ChunkedArray[Any]) -> bool:
    """False if a date or time is outside the limits within which Arrow and Spark read the same value; otherwise
    True."""
    is_date = pa.types.is_date(column.type)
    if not (is_date or pa.types.is_timestamp(column.type)):
        return True
    least, greatest = _DAYS if is_date else _MICROS
    ends = pc.min_max(column.cast(pa.int32() if is_date else pa.int64())).as_py()
    return ends["min"] is None or (ends["min"] >= least and ends["max"] <= greatest)
