"""Reads the records of a range of a file as Arrow arrays. A record belongs to the range that contains its offset.

Offsets count bytes of the stored file. A line has the offset of its first byte. In a compressed file, the offsets of
lines are scaled to the stored size, because the decompressed length is unknown in advance. The offset of a row of a
Parquet file is the offset of the row group plus the index of the row in the group. This index is scaled down if the
group has more rows than bytes. Therefore, offsets never decrease from record to record, and stay below the file's size.
If adjacent ranges are read, each record is returned once.

Spark's workers receive this module and ``support.fitting`` by value. This module imports no other module of rw_sql.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rw_sql.connectors.support import fitting as value_fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

CHUNK = 8 * 1024 * 1024
BATCH_ROWS = 50_000
MOST_LINE_BYTES = 128 * 1024 * 1024
_PARQUET_ROWS = 1_000
"""The number of rows of a Parquet file that are decoded at once. Even in a small file, the rows may need much memory,
because a column with a dictionary stores a repeated long value only once."""

_BATCH_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13
_SPARK_VERSION = b"org.apache.spark.version"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
"""The keys by which Spark recognizes a file whose times must be converted from the Julian calendar. The value of
``_SPARK_VERSION`` is the version of Spark that wrote the file. ``_LEGACY_TIMES`` marks times of all types except INT96,
and ``_LEGACY_INT96`` marks times of type INT96."""

_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"')
"""A quoted field of a CSV line."""

NO_VALUE = "\ue0f5\ue0f6\ue0f7\ue0f5"
"""A text that stands for NULL in a CSV field. It consists of private-use characters of Unicode, which ordinary text
does not contain.

An empty field without quotes is NULL too. But a line that consists only of one empty field would be an empty line, and
empty lines are skipped.
"""

Lines = tuple["NDArray[np.int64]", list[bytes]]
"""The offsets of lines, and the lines without line breaks."""


def lines(file: Any, start: int, end: int | None, *, chunk: int = CHUNK) -> Iterator[Lines]:
    """The lines of an open file that begin in ``[start, end)``. If ``end`` is None, the range extends to the file's
    end. Empty lines are skipped.

    The last line needs no line break. A byte-order mark at the beginning and a carriage return before a line break are
    removed. Raises ValueError for a line of more than MOST_LINE_BYTES.
    """
    base = max(0, start - 1)
    if file.seekable():
        file.seek(base)
    # Text before the first line break belongs to a line that began earlier.
    is_inside = start > 0
    held = b""
    while True:
        read = file.read(chunk)
        data = held + read
        found = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(found == _NEWLINE)
        if not read and data and (len(ends) == 0 or ends[-1] != len(data) - 1):
            ends = np.append(ends, len(data))
        if len(ends) == 0:
            if not read:
                return
            _require_short(data)
            held = data
            continue
        begins = np.concatenate(([0], ends[:-1] + 1))
        if is_inside:
            begins, of_lines, is_inside = begins[1:], ends[1:], False
        else:
            of_lines = ends
        if end is not None:
            begins = begins[begins < end - base]
            of_lines = of_lines[: len(begins)]
        yield from _cut(data, found, begins, of_lines, base)
        after = int(ends[-1]) + 1
        base, held = base + after, data[after:]
        if not read or (end is not None and base >= end):
            return


def _require_short(line: bytes) -> None:
    if len(line) > MOST_LINE_BYTES:
        raise ValueError(
            f"it has a line of more than {MOST_LINE_BYTES >> 20} MiB, which rw_sql does not read: a line is a record"
        )


def _cut(
    data: bytes, found: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64], base: int
) -> Iterator[Lines]:
    if len(begins) == 0:
        return
    tops = ends - ((ends > begins) & (found[ends - 1] == _RETURN))
    bottoms = begins
    if base == 0 and begins[0] == 0 and data.startswith(_BOM):
        bottoms = begins.copy()
        bottoms[0] = min(len(_BOM), int(tops[0]))
    kept = tops > bottoms
    places, bottoms, tops = (begins + base)[kept], bottoms[kept], tops[kept]
    for at in range(0, len(places), BATCH_ROWS):
        part = slice(at, at + BATCH_ROWS)
        cut = [data[low:high] for low, high in zip(bottoms[part].tolist(), tops[part].tolist(), strict=True)]
        yield places[part], cut


def compressed_lines(
    opened: Callable[[], Any], size: int, start: int, end: int, *, chunk: int = CHUNK
) -> Iterator[Lines]:
    """The lines of a compressed file whose scaled offsets are in ``[start, end)``. ``opened`` is a function that opens
    the file and returns its decompressed content. ``size`` is the compressed size.

    The file is decompressed twice, because scaling needs the decompressed length, which is known only after the first
    pass.
    """
    inside = 0
    with opened() as file:
        while read := file.read(chunk):
            inside += len(read)
    if inside == 0:
        return
    with opened() as file:
        for begins, texts in lines(file, 0, None, chunk=chunk):
            places = np.minimum((begins / inside * size).astype(np.int64), max(0, size - 1))
            low, high = np.searchsorted(places, [start, end])
            if high > low:
                yield places[low:high], texts[low:high]
            if len(places) and places[-1] >= end:
                return


def ranks(places: NDArray[np.int64], before: tuple[int, int] = (-1, 0)) -> tuple[NDArray[np.int64], tuple[int, int]]:
    """Returns, for each record of a batch, the number of earlier records with the same offset.

    ``before`` contains the last offset and rank of the previous batch. The second result contains the last offset and
    rank of this batch, for use with the next batch. All records with the same offset are in one range, so the ranks do
    not depend on how a file is divided into ranges.
    """
    if len(places) == 0:
        return places, before
    at = np.arange(len(places), dtype=np.int64)
    is_other = np.concatenate(([True], places[1:] != places[:-1]))
    found = at - np.maximum.accumulate(np.where(is_other, at, 0))
    if places[0] == before[0]:
        found[: int(np.searchsorted(places, places[0], "right"))] += before[1] + 1
    return found, (int(places[-1]), int(found[-1]))


def header_of(file: Any) -> bytes:
    """Reads the first line of a file that has just been opened. Returns the line without its byte-order mark and its
    line break."""
    first: bytes = file.readline(MOST_LINE_BYTES + 1)
    _require_short(first)
    return first.removeprefix(_BOM).rstrip(b"\r\n")


def column_order(header: bytes, columns: Sequence[str], delimiter: str) -> list[int | None] | None:
    """The index of each column in a header line; None for a missing column. A column is matched by its exact name or,
    if no field has this name, without regard to case.

    If the header has exactly these columns in this order, lines need no reordering, and the result is None.
    """
    names = [_unquoted(field).decode("utf-8", "replace").strip() for field in _header_fields(header, delimiter)]
    folded = {name.lower(): at for at, name in reversed(list(enumerate(names)))}
    exact = {name: at for at, name in reversed(list(enumerate(names)))}
    order = [exact.get(column, folded.get(column.lower())) for column in columns]
    return None if order == list(range(len(names))) else order


def width_of(header: bytes, delimiter: str) -> int:
    """The number of fields in a header line."""
    return len(_header_fields(header, delimiter))


def _header_fields(header: bytes, delimiter: str) -> list[bytes]:
    found = fields_of(header, delimiter.encode())
    return [header] if found is None else found


def _unquoted(field: bytes) -> bytes:
    bare = field.strip()
    return bare[1:-1].replace(b'""', b'"') if _QUOTED.fullmatch(bare) else field


def reordered(texts: list[bytes], order: list[int | None], count: int, delimiter: str) -> list[bytes]:
    """Returns the lines with their fields in another order. Fields keep their text and their quotes.

    ``order`` and ``count`` are the results of :func:`column_order` and :func:`width_of`. If a line has another number
    of fields than the header, or if :func:`fields_of` returns None for the line, the result contains, in place of this
    line, a line that cannot be decoded. A carriage return at the end of a line is removed, as decoding would do. If the
    header has none of the columns, the file has other columns or no header. In this case, no returned line can be
    decoded.
    """
    made = []
    separator = delimiter.encode()
    if all(at is None for at in order):
        return [text + separator * len(order) for text in texts]
    for text in texts:
        line = text.removesuffix(b"\r")
        fields = fields_of(line, separator) if line else None
        if fields is None:
            made.append(text)
        elif len(fields) != count:
            made.append(line if len(fields) != len(order) else line + separator)
        else:
            made.append(separator.join(b"" if at is None else fields[at] for at in order) or NO_VALUE.encode())
    return made


def fields_of(line: bytes, separator: bytes) -> list[bytes] | None:
    """The fields of a CSV line as written, with their quotes. Returns None if the line cannot be decoded, because a
    quote is not closed, text follows a closing quote, or a carriage return is outside quotes."""
    if b'"' not in line:
        return None if b"\r" in line else line.split(separator)
    found: list[bytes] = []
    at = 0
    while True:
        stop = line.find(separator, at)
        if line.startswith(b'"', at):
            quoted = _QUOTED.match(line, at)
            stop = -1 if quoted is None else quoted.end()
            if stop < 0 or not (stop == len(line) or line.startswith(separator, stop)):
                return None
        elif line.find(b"\r", at, stop if stop >= 0 else len(line)) >= 0:
            return None
        if stop < 0 or stop == len(line):
            return [*found, line[at:]]
        found.append(line[at:stop])
        at = stop + len(separator)


def parquet_rows(
    file: Any, size: int, start: int, end: int, row: pa.StructType, *, is_strict: bool = False
) -> Iterator[tuple[NDArray[np.int64], pa.StructArray, pa.StringArray]]:
    """Yields the rows of a Parquet file whose offsets are in ``[start, end)``, in batches. Each batch consists of the
    offsets, the rows as structs, and the error of each row (NULL for a row that could be read).

    A column is matched by its exact name or, if no column has this name, without regard to case. A missing column is
    NULL; if ``is_strict`` is true, it is an error.
    """
    # By default, times of the type INT96 would be nanoseconds, which overflow before 1678 and after 2262.
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    groups = _row_groups(parquet.metadata, size)
    names = parquet.schema_arrow.names
    chosen = value_fitting.matches([kept.name for kept in row], names)
    if is_strict and (missing := [name for name, found in chosen.items() if found is None]):
        raise ValueError(f"it has no column {missing[0]}")
    wanted = [found for found in chosen.values() if found is not None]
    julian = _julian_columns(parquet)
    for number, (begin, length, rows) in enumerate(groups):
        if begin >= end or begin + length <= start or rows == 0:
            continue
        at = 0
        # If the file has none of the requested columns, another column is read, because PyArrow returns no batches
        # without columns.
        decoded = parquet.iter_batches(batch_size=_PARQUET_ROWS, row_groups=[number], columns=wanted or names[:1])
        for batch in _joined(decoded):
            of_group = np.arange(at, at + batch.num_rows, dtype=np.int64)
            of_batch = begin + (of_group if rows <= length else (of_group / rows * length).astype(np.int64))
            at += batch.num_rows
            low, high = np.searchsorted(of_batch, [start, end])
            if high > low:
                yield of_batch[low:high], *_as_row(batch.slice(low, high - low), row, chosen, julian)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combines batches of rows into larger batches, each with at most BATCH_ROWS rows and about _BATCH_BYTES bytes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for encoded in batches:
        # A dictionary hides the size of long values that repeat.
        columns = [value_fitting.plain_form(column) for column in encoded.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=encoded.schema.names)
        held.append(batch)
        size += batch.nbytes
        if size >= _BATCH_BYTES or len(held) * _PARQUET_ROWS >= BATCH_ROWS:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, size = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _row_groups(metadata: pq.FileMetaData, size: int) -> list[tuple[int, int, int]]:
    """The row groups in the order of the file. For each group, the result contains the group's offset, the number of
    bytes up to the next group or the file's end, and the number of rows."""
    begins = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        places = [
            group.column(at).dictionary_page_offset or group.column(at).data_page_offset
            for at in range(group.num_columns)
        ]
        begins.append(min(places, default=0))
    ends = [*begins[1:], size]
    return [
        (begin, max(1, end - begin), metadata.row_group(number).num_rows)
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]


def _julian_columns(parquet: pq.ParquetFile) -> frozenset[str]:
    """The columns whose dates and times before 15 October 1582 are in the Julian calendar.

    If Spark writes Julian dates and times to a file, it also writes a mark into the file's metadata. The first versions
    of Spark always wrote Julian dates and times, but no mark. Their files are recognized by the version number of
    Spark.
    """
    marks = parquet.metadata.metadata or {}
    version = marks.get(_SPARK_VERSION, b"")
    is_plain = _LEGACY_TIMES in marks or version.startswith((b"1.", b"2."))
    is_int96 = _LEGACY_INT96 in marks or version.startswith((b"1.", b"2.", b"3.0."))
    if not is_plain and not is_int96:
        return frozenset()
    leaves = [parquet.schema.column(at) for at in range(len(parquet.schema))]
    paths = {leaf.path for leaf in leaves if (is_int96 if leaf.physical_type == "INT96" else is_plain)}
    names = parquet.schema_arrow.names
    return frozenset(name for name in names if name in paths or any(path.startswith(f"{name}.") for path in paths))


def _as_row(
    batch: pa.RecordBatch, row: pa.StructType, chosen: dict[str, str | None], julian: frozenset[str]
) -> tuple[pa.StructArray, pa.StringArray]:
    faults = pa.nulls(batch.num_rows, pa.string())
    columns = []
    for wanted in row:
        found = chosen[wanted.name]
        if found is None:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
            continue
        given = batch.column(batch.schema.names.index(found))
        is_julian = found in julian
        values, is_misfit = value_fitting.fitted(given, wanted.type, is_julian=is_julian)
        columns.append(values)
        if is_misfit.any():
            told = f"column {wanted.name}: a value of type {given.type} does not fit"
            if pa.types.is_string(wanted.type) and value_fitting.is_text(given.type):
                told = f"column {wanted.name}: {value_fitting.NO_UTF_8}"
            told += "; the file counts days before 15 October 1582 by the Julian calendar" if is_julian else ""
            faults = pc.coalesce(faults, pc.if_else(pa.array(is_misfit), told, pa.scalar(None, pa.string())))
    return pa.StructArray.from_arrays(columns, fields=list(row)), faults
