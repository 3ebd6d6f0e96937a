"""Reads the records of a range of a file as Arrow arrays. A record belongs to the range that contains its offset.

Offsets count bytes of the stored file. A line has the offset of its first byte. In a compressed file, the offsets of
lines are scaled to the stored size, because the decompressed length is unknown in advance. The rows of a Parquet row
group are counted from the offset of the group. Offsets therefore increase in record order and stay below the file's
size, and reading adjacent ranges returns each record once.

It imports no other module of the package, because Spark's workers receive it by value.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

CHUNK = 8 * 1024 * 1024
BATCH_ROWS = 50_000
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13

NO_VALUE = "\ue0f5\ue0f6\ue0f7\ue0f5"
"""A field of a CSV line that is NULL. The characters have no meaning in Unicode, so no text contains them.

Usually, an empty field without quotes is NULL; a line of one such field would be empty and count as no line.
"""

_QUOTED = f"{NO_VALUE}\ue0f8"

Lines = tuple["NDArray[np.int64]", list[bytes]]
"""The offsets of lines, and the lines without line ends."""


def lines(file: Any, start: int, end: int | None, *, chunk: int = CHUNK) -> Iterator[Lines]:
    """The lines that begin in ``[start, end)`` of an open file; if ``end`` is None, up to the file's end. Empty lines
    are skipped.

    The last line needs no line end. A byte-order mark at the beginning and a carriage return before a line end are
    removed.
    """
    base = max(0, start - 1)
    file.seek(base)
    # Text before the first line end belongs to a line that began earlier.
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
    """The lines of a compressed file whose scaled offset is in ``[start, end)``. ``opened`` opens and decompresses the
    file.

    The file is decompressed twice: scaling needs the exact full length before the first line gets its offset.
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


def header_of(file: Any) -> bytes:
    """The first line of a file, without its line end."""
    file.seek(0)
    first: bytes = file.readline()
    return first.removeprefix(_BOM).rstrip(b"\r\n")


def column_order(header: bytes, columns: Sequence[str], delimiter: str) -> list[int | None] | None:
    """The index of each column in a header line, matched by exact name, otherwise case-insensitively; None for a
    missing column.

    Returns None if the header has exactly these columns in this order, so that lines need no reordering.
    """
    names = next(csv.reader([header.decode("utf-8", "replace")], delimiter=delimiter), [])
    names = [name.strip() for name in names]
    folded = {name.lower(): at for at, name in reversed(list(enumerate(names)))}
    exact = {name: at for at, name in reversed(list(enumerate(names)))}
    order = [exact.get(column, folded.get(column.lower())) for column in columns]
    return None if order == list(range(len(names))) else order


def reordered(texts: list[bytes], order: list[int | None], count: int, delimiter: str) -> list[bytes]:
    """Lines with their fields reordered. An empty field keeps its quotes, which distinguish it from NULL.

    A line whose number of fields differs from the header's, or whose last quoted field does not end, stays malformed.
    """
    made = []
    # Python's default limit is 128 KiB.
    csv.field_size_limit(2**31 - 1)
    for text in texts:
        fields = _fields(text.decode("utf-8", "surrogateescape"), delimiter)
        if fields is None:
            made.append(text)
            continue
        if len(fields) != count:
            wrong = text if len(fields) != len(order) else text + delimiter.encode()
            made.append(wrong)
            continue
        if b'""' in text:
            for at in _quoted_empty(text.decode("utf-8", "surrogateescape"), delimiter):
                fields[at] = _QUOTED
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, lineterminator="")
        chosen = ["" if at is None else fields[at] for at in order]
        writer.writerow(chosen if chosen != [""] else [NO_VALUE])
        made.append(out.getvalue().replace(_QUOTED, '""').encode("utf-8", "surrogateescape"))
    return made


def _quoted_empty(line: str, delimiter: str) -> list[int]:
    """The indexes of the fields that are empty and in quotes."""
    found, at, index = [], 0, 0
    while True:
        end = at
        if line.startswith('"', at):
            end = line.find('"', at + 1)
            while end >= 0 and line.startswith('""', end):
                end = line.find('"', end + 2)
            end += 1
            if end == at + 2 and (end == len(line) or line.startswith(delimiter, end)):
                found.append(index)
        at = line.find(delimiter, end) + len(delimiter)
        if at < len(delimiter):
            return found
        index += 1


def _fields(line: str, delimiter: str) -> list[str] | None:
    """The fields of a line; None if the last one is quoted and does not end."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        if "unexpected end" in str(error):
            return None
    return next(csv.reader([line], delimiter=delimiter), [])


def parquet_rows(
    file: Any, size: int, start: int, end: int, row: pa.StructType, *, is_strict: bool = False
) -> Iterator[tuple[NDArray[np.int64], pa.StructArray, pa.StringArray]]:
    """The rows of a Parquet file whose offsets are in ``[start, end)``, as structs, and the error of each row that
    could not be read.

    Columns are matched by exact name, otherwise case-insensitively. A missing column is NULL, or an error if
    ``is_strict`` is set.
    """
    parquet = pq.ParquetFile(file)
    groups = _row_groups(parquet.metadata, size)
    names = parquet.schema_arrow.names
    folded = {name.lower(): name for name in reversed(names)}
    chosen = {kept.name: kept.name if kept.name in names else folded.get(kept.name.lower()) for kept in row}
    if is_strict and (missing := [name for name, found in chosen.items() if found is None]):
        raise ValueError(f"it has no column {missing[0]}")
    wanted = [found for found in chosen.values() if found is not None]
    for number, (begin, length, rows) in enumerate(groups):
        if begin >= end or begin + length <= start or rows == 0:
            continue
        places = begin + np.arange(rows, dtype=np.int64)
        if rows > length:
            places = begin + (np.arange(rows) / rows * length).astype(np.int64)
        at = 0
        # Without columns there would be no batches: a file may have none of the requested ones.
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=[number], columns=wanted or names[:1]):
            of_batch = places[at : at + batch.num_rows]
            at += batch.num_rows
            low, high = np.searchsorted(of_batch, [start, end])
            if high > low:
                yield of_batch[low:high], *_as_row(batch.slice(low, high - low), row, chosen)


def _row_groups(metadata: pq.FileMetaData, size: int) -> list[tuple[int, int, int]]:
    """The row groups in file order: offset, bytes to the next one, number of rows."""
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


def _as_row(
    batch: pa.RecordBatch, row: pa.StructType, chosen: dict[str, str | None]
) -> tuple[pa.StructArray, pa.StringArray]:
    faults: list[str | None] = [None] * batch.num_rows
    columns = []
    for wanted in row:
        found = chosen[wanted.name]
        if found is None:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
            continue
        given = batch.column(batch.schema.names.index(found))
        columns.append(_cast(given, wanted, faults))
    return pa.StructArray.from_arrays(columns, fields=list(row)), pa.array(faults, pa.string())


def _cast(given: pa.Array, wanted: pa.Field, faults: list[str | None]) -> pa.Array:
    options = pc.CastOptions(wanted.type, allow_time_truncate=True)
    try:
        return given.cast(options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cast = []
        for at in range(len(given)):
            try:
                cast.append(given.slice(at, 1).cast(options=options))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                faults[at] = faults[at] or f"column {wanted.name}: a value of type {given.type} does not fit"
                cast.append(pa.nulls(1, wanted.type))
        return pa.concat_arrays(cast)
