"""Reads a small Delta table into memory with Arrow, if Arrow certainly returns the same values as Spark."""

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
"""Keys in the metadata of a file. If a file has such a key, Spark may convert the times in the file from the Julian
calendar. ``_LEGACY`` is the prefix of the keys that mark such a file. The value of the key ``_VERSION`` is the version
of Spark that wrote the file. All versions before 3 used the Julian calendar."""

_DAYS = (-141_427, 2_932_896)
_MICROS = (-141_427 * 86_400_000_000, 253_402_300_799_999_999)
"""The first and the last date or time that Arrow may read: 15 October 1582, the first day of the Gregorian calendar,
and the end of the year 9999. Spark may convert earlier times, and a table cannot contain later times."""

_BATCH_ROWS, _BATCH_BYTES = 65_536, 16 << 20
"""The maximum number of rows that are decoded at once, and their approximate maximum size in bytes."""

_READ_BYTES = 1 << 20
"""The size in bytes of the buffer with which a dictionary is read from a file."""

_FORMS = {
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
}
"""Maps each Arrow type of texts to the other Arrow types with the same values. These types differ only in the layout of
their values in memory. The columns of a file may have any of these types, because delta-rs stores the Arrow type of a
column in the file."""


def is_readable(kind: pa.DataType) -> bool:
    """True for the column types that Arrow and Spark read in the same way. Nested types are not among them."""
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

    Returns None if the table lacks a column or has another type for it, or if :func:`rows_of_files` returns None. Also
    returns None if the table has partition columns or a feature that readers must support, because the files alone then
    do not determine the rows.
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

    Returns None if a file is not local or cannot be read, if there are more than ``most_rows`` rows, or if the rows
    need more than ``most_bytes`` of memory. Also returns None if a column is missing, has another type, has a type for
    which :func:`is_readable` returns False, has times that Spark may convert or refuse, or has strings that are not
    UTF-8.
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
            # The file is not memory-mapped. If a memory-mapped file is truncated while it is read, the operating system
            # ends the process.
            with pq.ParquetFile(file) as opened:
                rows_left -= opened.metadata.num_rows
                if rows_left < 0 or not _is_as_declared(opened, schema):
                    return None
                if _least_bytes(opened.metadata, schema) > bytes_left:
                    return None
                for group in range(opened.metadata.num_row_groups):
                    # A whole row group may need far more memory than its file.
                    most = _rows_at_once(file, opened.metadata, group, schema)
                    for batch in opened.iter_batches(batch_size=most, row_groups=[group], columns=schema.names):
                        part = pa.Table.from_batches([batch]).select(schema.names)
                        bytes_left -= part.nbytes
                        if bytes_left < 0:
                            return None
                        parts.append(part.cast(schema))
    except (OSError, pa.ArrowException):
        return None
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    return rows if all(_has_usual_times(column) and _is_utf_8(column) for column in rows.columns) else None


def _least_bytes(file: pq.FileMetaData, schema: pa.Schema) -> int:
    """The approximate minimum size in bytes of a file's rows in memory. The rows need more memory if the file stores
    equal texts only once, in a dictionary."""
    groups = (_texts_of(file, group, schema) for group in range(file.num_row_groups))
    texts = sum(column.total_uncompressed_size for group in groups for column in group)
    return int(file.num_rows * _fixed_bits(schema) // 8 + texts)


def _rows_at_once(path: str, file: pq.FileMetaData, group: int, schema: pa.Schema) -> int:
    """The number of rows of a row group that can be decoded at once with about _BATCH_BYTES of memory, even if each row
    has the longest text of each dictionary."""
    rows = max(1, file.row_group(group).num_rows)
    texts = _texts_of(file, group, schema)
    row_bytes = _fixed_bits(schema) // 8 + sum(column.total_uncompressed_size for column in texts) // rows
    # No text is longer than the whole column in the file.
    large = [each for each in texts if each.has_dictionary_page and rows * each.total_uncompressed_size > _BATCH_BYTES]
    names = [column.path_in_schema for column in large]
    if names:
        with pq.ParquetFile(path, metadata=file, read_dictionary=names, buffer_size=_READ_BYTES) as opened:
            for first in opened.iter_batches(batch_size=1, row_groups=[group], columns=names):
                row_bytes += sum(_longest(column) for column in first.columns)
                break  # Arrow returns the whole dictionary together with the first row.
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, int(row_bytes))))


def _texts_of(file: pq.FileMetaData, group: int, schema: pa.Schema) -> list[pq.ColumnChunkMetaData]:
    """The metadata of the columns of a row group whose values are texts or bytes, and thus differ in length."""
    names = {field.name for field in schema if field.type in _FORMS}
    found = file.row_group(group)
    columns = (found.column(number) for number in range(found.num_columns))
    return [column for column in columns if column.path_in_schema in names]


def _fixed_bits(schema: pa.Schema) -> int:
    """The size in bits that a row's values need in memory, not counting texts and bytes."""
    return sum(field.type.bit_width for field in schema if field.type not in _FORMS)


def _longest(column: pa.Array[Any]) -> int:
    """The length in bytes of the longest text in a column's dictionary."""
    texts: pa.Array[Any] = column.dictionary if isinstance(column, pa.DictionaryArray) else column
    return int(pc.max(pc.binary_length(texts.cast(pa.large_binary()))).as_py() or 0)


def _is_as_declared(file: pq.ParquetFile, schema: pa.Schema) -> bool:
    """True if the file has all columns of the schema with the same types, and no metadata because of which Spark may
    convert the file's times."""
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


def _is_utf_8(column: pa.ChunkedArray[Any]) -> bool:
    """False if a column of strings has a string that is not UTF-8; otherwise True."""
    if pa.types.is_string(column.type):
        try:
            column.cast(pa.binary()).cast(pa.string())  # Arrow checks strings only if they are made of bytes.
        except pa.ArrowInvalid:
            return False
    return True
