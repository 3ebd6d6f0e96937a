"""Converts many rows of text cells to JSON text at once with NumPy. A Python loop over the cells would take ten times
as long.

A cell is a range of bytes in a buffer. The rows of pgoutput (documentation, "Logical Replication Message Formats") and
the lines of ``COPY … TO STDOUT`` are both converted to :class:`Cells`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]

TEXT, NULL, UNCHANGED = ord("t"), ord("n"), ord("u")
"""The kinds of a cell, as encoded in pgoutput."""

_BINARY = ord("b")
_BLOCK_BYTES = 1 << 18
"""The size in bytes of the rows that are built at once. With this size, the arrays of indexes for these rows fit into
the processor's cache."""


class BrokenTupleError(ValueError):
    """Raised if the bytes do not have the format of rows."""


@dataclass(slots=True)
class Cells:
    """The cells of rows with the same columns. Each cell is a part of ``buffer``. In ``kinds``, ``starts`` and
    ``lengths``, the first index is the column and the second index is the row.

    ``is_escaped`` is true if backslashes in the buffer already form escapes that are valid in JSON.
    """

    buffer: Bytes
    kinds: NDArray[np.uint8]
    starts: Numbers
    lengths: Numbers
    is_escaped: bool = False

    def __len__(self) -> int:
        return int(self.kinds.shape[1])

    def pick(self, rows: NDArray[Any]) -> Cells:
        """Selects rows by a mask or by indexes."""
        return Cells(self.buffer, self.kinds[:, rows], self.starts[:, rows], self.lengths[:, rows], self.is_escaped)

    def columns(self, indexes: Sequence[int]) -> Cells:
        """Selects columns."""
        at = list(indexes)
        return Cells(self.buffer, self.kinds[at], self.starts[at], self.lengths[at], self.is_escaped)

    def value(self, column: int, row: int) -> bytes | None:
        """The bytes of one cell; None for NULL and for an unchanged value."""
        if self.kinds[column, row] != TEXT:
            return None
        start = int(self.starts[column, row])
        return self.buffer[start : start + int(self.lengths[column, row])].tobytes()

    def fill_unchanged(self, old: Cells, rows: Numbers) -> None:
        """Fills in the values that an update omitted. ``old`` has the rows before the update, in the same buffer.

        ``rows`` has, for each row of ``old``, the index of the updated row.
        """
        fits = (self.kinds[:, rows] == UNCHANGED) & (old.kinds == TEXT)
        for column, at in zip(*np.nonzero(fits), strict=True):
            row = rows[at]
            self.kinds[column, row] = TEXT
            self.starts[column, row] = old.starts[column, at]
            self.lengths[column, row] = old.lengths[column, at]


def walk(buffer: Bytes, positions: Numbers, columns: int) -> tuple[Cells, Numbers]:
    """Parses the rows (TupleData) at these positions. Also returns the positions after the rows.

    Raises BrokenTupleError.
    """
    count = len(positions)
    kinds = np.empty((columns, count), dtype=np.uint8)
    starts = np.empty((columns, count), dtype=np.int64)
    lengths = np.empty((columns, count), dtype=np.int64)
    at, size = positions, len(buffer)
    if size < _LEAST_BUFFER:
        buffer = np.concatenate((buffer, np.zeros(_LEAST_BUFFER, dtype=np.uint8)))
    try:
        told = (buffer[at].astype(np.int64) << 8) | buffer[at + 1]
        if (told != columns).any():
            raise BrokenTupleError(f"a row has {int(told[told != columns][0])} columns instead of {columns}")
        at = at + 2
        last = len(buffer) - 1
        for column in range(columns):
            kind = buffer[at]
            has_value = kind == TEXT
            if not has_value.all() and not (has_value | (kind == NULL) | (kind == UNCHANGED)).all():
                raise BrokenTupleError("a row has a value in binary form" if (kind == _BINARY).any() else "broken row")
            here = np.minimum(at, last - 4)
            length = (
                (buffer[here + 1].astype(np.int64) << 24)
                | (buffer[here + 2].astype(np.int64) << 16)
                | (buffer[here + 3].astype(np.int64) << 8)
                | buffer[here + 4]
            )
            length *= has_value
            start = at + 1 + 4 * has_value
            kinds[column], starts[column], lengths[column] = kind, start, length
            at = start + length
    except IndexError as error:
        raise BrokenTupleError("a row ends early") from error
    if count and int(at.max()) > size:
        raise BrokenTupleError("a row ends early")
    return Cells(buffer, kinds, starts, lengths), at


def split_lines(text: bytes, columns: int) -> Cells:
    """Parses the rows of ``COPY … TO STDOUT`` in text format. Raises BrokenTupleError."""
    if b"\\v" in text:
        text = _vertical_tabs(text)
    buffer = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero((buffer == 9) | (buffer == 10))
    if len(ends) % columns or (buffer[ends[columns - 1 :: columns]] != 10).any():
        raise BrokenTupleError(f"a line does not have {columns} columns")
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    lengths = ends - starts
    kinds = np.full(len(ends), TEXT, dtype=np.uint8)
    short = np.flatnonzero(lengths == 2)
    nulls = short[(buffer[starts[short]] == 92) & (buffer[starts[short] + 1] == 78)]  # \N
    kinds[nulls] = NULL
    lengths[nulls] = 0
    shape = (-1, columns)
    return Cells(
        buffer,
        np.ascontiguousarray(kinds.reshape(shape).T),
        np.ascontiguousarray(starts.reshape(shape).T),
        np.ascontiguousarray(lengths.reshape(shape).T),
        is_escaped=True,
    )


def _vertical_tabs(text: bytes) -> bytes:
    r"""Replaces ``\v``, the only escape of COPY that JSON does not have, with ``\u000b``."""
    import re

    return re.sub(rb"\\(.)", lambda found: rb"\u000b" if found[1] == b"v" else found[0], text, flags=re.DOTALL)


_UNESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"u000b": b"\v"}


def unescaped(value: bytes) -> bytes:
    """The unescaped value of a cell from :func:`split_lines`."""
    import re

    if b"\\" not in value:
        return value
    return re.sub(rb"\\(u000b|.)", lambda found: _UNESCAPED.get(found[1], found[1]), value, flags=re.DOTALL)


def _escape_table(*, with_backslash: bool) -> tuple[Bytes, list[bytes]]:
    """Returns the length of each byte's escaped form in JSON, and the escaped forms."""
    texts = [bytes([byte]) for byte in range(256)]
    for byte in [*range(32), 34, *([92] if with_backslash else [])]:
        texts[byte] = json.dumps(chr(byte))[1:-1].encode()
    return np.array([len(text) for text in texts], dtype=np.uint8), texts


_TABLES = {False: _escape_table(with_backslash=True), True: _escape_table(with_backslash=False)}


def _escape(cells: Cells) -> Cells:
    """Returns the cells with the escapes that JSON requires. If escapes are needed, the result uses a new, longer
    buffer."""
    sizes, texts = _TABLES[cells.is_escaped]
    buffer = cells.buffer
    special = sizes[buffer] > 1
    if not special.any():
        return cells
    total = np.zeros(len(buffer) + 1, dtype=np.int64)
    np.cumsum(special, out=total[1:])
    flat_starts, flat_lengths = cells.starts.ravel(), cells.lengths.ravel()
    which = np.flatnonzero(total[flat_starts + flat_lengths] > total[flat_starts])
    if not len(which):
        return cells
    old_starts, old_lengths = flat_starts[which], flat_lengths[which]
    data = buffer[_ranges(old_starts, old_lengths)]
    repeats = sizes[data].astype(np.int64)
    new_ends = np.cumsum(repeats)
    grown = np.repeat(data, repeats)
    for byte in np.unique(data[repeats > 1]):
        text = np.frombuffer(texts[byte], dtype=np.uint8)
        at = np.flatnonzero(data == byte)
        begin = new_ends[at] - repeats[at]
        for offset, written in enumerate(text):
            grown[begin + offset] = written
    ends = np.concatenate(([0], new_ends))[np.cumsum(old_lengths)]
    new_starts = np.concatenate(([0], ends[:-1]))
    starts, lengths = flat_starts.copy(), flat_lengths.copy()
    starts[which] = new_starts + len(buffer)
    lengths[which] = ends - new_starts
    return Cells(
        np.concatenate((buffer, grown)),
        cells.kinds,
        starts.reshape(cells.starts.shape),
        lengths.reshape(cells.lengths.shape),
        cells.is_escaped,
    )


def _ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The indexes in all ranges, concatenated."""
    ends = np.cumsum(lengths)
    made = np.repeat(starts - (ends - lengths), lengths)
    made += np.arange(len(made))
    return made


def converted(cells: Cells, converters: Mapping[int, Callable[[str], str]]) -> Cells:
    """Returns the cells after converting the values of some columns. ``converters`` maps each of these columns to the
    function that converts its values.

    If a function raises ValueError, this error gets the attribute ``cell`` with the pair (column, row), and is raised
    again.
    """
    if not converters or not len(cells):
        return cells
    starts, lengths = cells.starts.copy(), cells.lengths.copy()
    pieces: list[bytes] = []
    size = len(cells.buffer)
    for column, convert in converters.items():
        for row in np.flatnonzero(cells.kinds[column] == TEXT):
            raw = cells.value(column, int(row)) or b""
            if cells.is_escaped:
                raw = unescaped(raw)
            try:
                made = convert(raw.decode())
            except ValueError as error:
                error.cell = (column, int(row))  # type: ignore[attr-defined]
                raise
            piece = made.encode()
            if cells.is_escaped:
                piece = piece.replace(b"\\", b"\\\\")
            pieces.append(piece)
            starts[column, row], lengths[column, row] = size, len(piece)
            size += len(piece)
    buffer = np.concatenate((cells.buffer, np.frombuffer(b"".join(pieces), dtype=np.uint8)))
    return Cells(buffer, cells.kinds, starts, lengths, cells.is_escaped)


def json_rows(cells: Cells, names: Sequence[str]) -> pa.Array:
    """Returns one JSON object per row, which maps column names to text or null and omits unchanged columns. Raises
    BrokenTupleError if a value is not UTF-8. The ``row`` attribute of this error is the first row with such a value."""
    count = len(cells)
    if not count:
        return pa.array([], pa.string())
    size = int(cells.lengths.sum()) // count + sum(map(len, names)) + 8 * len(names)
    step = max(16, _BLOCK_BYTES // max(1, size))
    literals = _Literals.of(tuple(names))
    if count <= step:
        return _validated(_json_block(cells, literals), 0)
    blocks = [
        _validated(_json_block(cells.pick(np.arange(first, min(first + step, count))), literals), first)
        for first in range(0, count, step)
    ]
    return pa.concat_arrays(blocks)


@dataclass(slots=True)
class _Literals:
    """The JSON text between the values of two columns, such as ``","b":"``.

    The text before a column depends on the column and on a number, the *form*. The form is 3 × (1 if the previous value
    has a quote to close, otherwise 0) + (0 if the column has a value, 1 for NULL, 2 for an unchanged value). ``starts``
    and ``sizes`` are indexed by [column, form]. An additional column after the last column denotes the end of the row.
    """

    data: Bytes
    starts: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, names: tuple[str, ...]) -> _Literals:
        known = _KNOWN.get(names)
        if known is not None:
            return known
        forms: list[list[bytes]] = []
        for name in names:
            key = json.dumps(name, ensure_ascii=False).encode()
            plain = [b"," + key + b':"', b"," + key + b":null", b""]
            forms.append([*plain, *(b'"' + text for text in plain)])
        forms.append([b"}", b"}", b"}", b'"}', b'"}', b'"}'])
        flat = [text for form in forms for text in form]
        sizes = np.array([len(text) for text in flat], dtype=np.int64)
        made = cls(
            np.frombuffer(b"".join(flat), dtype=np.uint8),
            (np.cumsum(sizes) - sizes).reshape(-1, 6),
            sizes.reshape(-1, 6),
        )
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[names] = made
        return made


_KNOWN: dict[tuple[str, ...], _Literals] = {}
_MOST_KNOWN = 1000
_LEAST_BUFFER = 16
"""The minimum size of a buffer in bytes. A smaller buffer is extended, because a cell's kind and length are read
together. The buffer is also extended for a NULL at its end, although a NULL has no length.
"""

_MOST_BYTES = (1 << 31) - 1
"""Arrow's size limit in bytes for the strings of one array."""


def _json_block(cells: Cells, literals: _Literals) -> tuple[Bytes, Numbers]:
    """Returns the JSON text of the rows as bytes, and the end of each row in these bytes."""
    count, columns = len(cells), int(cells.kinds.shape[0])
    first, end = int(cells.starts.min()), int((cells.starts + cells.lengths).max())
    part = Cells(cells.buffer[first:end], cells.kinds, cells.starts - first, cells.lengths, cells.is_escaped)
    if end - first > 8 * int(cells.lengths.sum()) + 4096:
        part = _compacted(cells)
    part = _escape(part)
    source = np.concatenate((literals.data, part.buffer))
    shift = len(literals.data)
    starts = np.empty((count, 2 * columns + 1), dtype=np.int64)
    lengths = np.empty((count, 2 * columns + 1), dtype=np.int64)
    open_quote = np.zeros(count, dtype=np.int64)
    for column in range(columns):
        kind = part.kinds[column]
        form = (kind == NULL) + 2 * (kind == UNCHANGED)
        at = form + 3 * open_quote
        starts[:, 2 * column] = literals.starts[column][at]
        lengths[:, 2 * column] = literals.sizes[column][at]
        starts[:, 2 * column + 1] = part.starts[column] + shift
        lengths[:, 2 * column + 1] = part.lengths[column]
        open_quote = (form == 0).astype(np.int64)
    starts[:, -1] = literals.starts[-1][3 * open_quote]
    lengths[:, -1] = literals.sizes[-1][3 * open_quote]
    flat = lengths.ravel()
    made = source[_ranges(starts.ravel(), flat)]
    ends = np.cumsum(lengths.sum(axis=1))
    begins = np.concatenate(([0], ends[:-1]))
    made[begins[ends - begins > 1]] = 123  # Replaces the comma before the first column with the opening brace.
    return made, ends


def _compacted(cells: Cells) -> Cells:
    """The cells in a separate, smaller buffer, if the cells use only a small part of their present buffer."""
    lengths = cells.lengths.ravel()
    data = cells.buffer[_ranges(cells.starts.ravel(), lengths)]
    starts = (np.cumsum(lengths) - lengths).reshape(cells.starts.shape)
    return Cells(data, cells.kinds, starts, cells.lengths, cells.is_escaped)


def _validated(block: tuple[Bytes, Numbers], first: int) -> pa.Array:
    data, ends = block
    if len(data) > _MOST_BYTES:
        raise BrokenTupleError("a row is longer than 2 GiB as JSON")
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends
    made = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    try:
        made.validate(full=True)
    except pa.ArrowInvalid as error:
        broken = BrokenTupleError("a value is not UTF-8")
        broken.row = first + _first_broken(data, ends)  # type: ignore[attr-defined]
        raise broken from error
    if len(ends) and int(np.diff(offsets).min()) == 1:  # The server sent no value for some row.
        made = pc.if_else(pc.equal(made, "}"), "{}", made)
    return made


def _first_broken(data: Bytes, ends: Numbers) -> int:
    begin = 0
    for row, end in enumerate(ends):
        try:
            data[begin:end].tobytes().decode()
        except UnicodeDecodeError:
            return row
        begin = int(end)
    return 0


def unchanged_names(cells: Cells, names: Sequence[str]) -> pa.Array:
    """The names of the unchanged columns of each row; NULL for a row without unchanged columns."""
    found = cells.kinds == UNCHANGED
    counts = found.sum(axis=0)
    offsets = np.zeros(len(cells) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    _, columns = np.nonzero(found.T)
    values = pa.array(list(names), pa.string()).take(pa.array(columns, pa.int64()))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=pa.array(counts == 0))
