"""Decodes JSON records with Arrow, one block of records at a time.

Arrow's parser decodes a block in a fifth of the time that ``from_json`` needs. However, Arrow's parser accepts fewer
values than ``from_json``, because it does not convert numbers to strings or strings to numbers. If one value does not
fit its column, Arrow's parser cannot read the whole block. Therefore, this module decodes only *certain* records:
records for which ``from_json`` would surely return the same values. All other records are left to
:mod:`rw_sql.runtime.decoding.plain_values`, which also determines the errors.

Spark sends this module by value to its Python processes, which may not have rw_sql, so it imports only Arrow and NumPy.

The text of a record is the result of :func:`rw_sql.runtime.decoding.json_text.with_end`, followed by a newline. The
name of the last member of this text is random. Each object that is read from a block must have this member, and a block
must contain as many objects as records. These two conditions ensure that each object is exactly one record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_READS = 64
"""The maximum number of attempts to read parts of a block. If a record is still unread after these attempts, its result
does not count as certain."""

_FEWEST = 32
"""A part of a block with at most this many records is not divided further."""

_PLAIN_BYTES, _MOST_BYTES, _MOST_NESTED = 900, 50_000, 900
"""Text that does not exceed these sizes is within the limits of ``from_json``. These limits are 1,000 characters for a
number, 1,000 nested levels, and 50,000 characters for a name."""

_LONG_NUMBER = "[0-9]{900}"
_DAY = r"(?:000[2-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-[0-9]{2}-[0-9]{2}"
"""The pattern of a day in the years 2 to 9998. Such a day is within the range of years that a column can store,
regardless of the time zone."""

_MOMENT = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_NO_NUMBER = r"[:,\[][ \t\r\n]*-?(?:NaN|Inf)"
"""Matches numbers that are not valid JSON. Arrow's parser accepts such numbers, even in members that are not
columns."""

_COLON = r"[ \t\r\n]*:"
_MEMBER = re.compile(rf'"([A-Za-z0-9_\u017f\u212a]+)"{_COLON}')
"""Matches the names of members that may be the name of a column in another case. In Unicode, two letters beyond ASCII
become an ASCII letter if they are written in another case: ``ſ`` and the Kelvin sign."""


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Decodes blocks of JSON records.

    ``schema`` are the columns. The names of columns, and of the fields of structures, consist of ASCII letters, digits
    and underscores, and no two names differ only in case. Dates and times are read only from strings in the most common
    form, and only as values of columns. ``end`` is the name of the last member of each record, and ``suffix`` is the
    text with which each record ends.
    """

    schema: pa.Schema
    end: str
    suffix: str

    def read(self, texts: pa.Array) -> tuple[pa.Table, np.ndarray]:
        """Returns the rows of the records that are certain, and a mask of these records.

        ``texts`` is of type BINARY. The rows are in the order of the records.
        """
        known = np.zeros(len(texts), dtype=bool)
        if not len(texts):
            return self.schema.empty_table(), known
        begins = pc.starts_with(texts, b'{"')
        shaped = pc.fill_null(pc.and_(begins, pc.ends_with(texts, self.suffix.encode())), False)
        at = np.flatnonzero(shaped.to_numpy(zero_copy_only=False))
        part = texts if len(at) == len(texts) else texts.take(pa.array(at))
        work = _Work(self)
        work.read(part, at)
        for places in work.places:
            known[places] = True
        return pa.concat_tables([self.schema.empty_table(), *work.rows]), known


@dataclass(slots=True)
class _Work:
    """The parts of one block that were read so far, with the rows of these parts and the places of their records in the
    block."""

    reader: BlockReader
    rows: list[pa.Table] = field(default_factory=list)
    places: list[np.ndarray] = field(default_factory=list)
    reads: int = 0

    def read(self, texts: pa.Array, at: np.ndarray) -> None:
        """Reads ``texts``, which are the records at the places ``at`` of the block. If the records cannot be read
        together, divides them and reads each part."""
        if not len(texts) or self.reads >= _MOST_READS:
            return
        self.reads += 1
        found = self._parsed(texts)
        if found is not None:
            table, sure = found
            self.rows.append(table if sure.all() else table.filter(pa.array(sure)))
            self.places.append(at[sure])
        elif len(texts) > _FEWEST:
            half = len(texts) // 2
            self.read(texts.slice(0, half), at[:half])
            self.read(texts.slice(half), at[half:])

    def _parsed(self, texts: pa.Array) -> tuple[pa.Table, np.ndarray] | None:
        """Returns the rows of the records, and whether each record is certain. Returns None if at least one of the
        records cannot be read."""
        reader, data = self.reader, _bytes_of(texts)
        whole = data.to_pybytes()
        # Arrow's parser ends a string at a zero byte.
        if data.size > _MOST_BLOCK or b"\0" in whole:
            return None
        try:
            strings = texts.cast(pa.string())  # raises an error if the bytes are not UTF-8
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=_as_written(reader.schema).append(pa.field(reader.end, pa.bool_())),
                    unexpected_field_behavior="ignore",
                ),
            )
            ends = table.column(reader.end)
            if table.num_rows != len(texts) or ends.null_count:
                return None
            exact = _are_plain(strings, whole) & _are_exact(table, strings)
            return _converted(table, reader.schema, exact), exact
        except pa.ArrowInvalid:
            return None


def _as_written(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, pa.string() if _form_of(field.type) else field.type) for field in schema])


def _form_of(kind: pa.DataType) -> str | None:
    """Returns the pattern for strings that are converted to a type; None if values of the type are not read from
    strings."""
    if pa.types.is_date(kind):
        return f"^{_DAY}$"
    if pa.types.is_timestamp(kind):
        return f"^{_MOMENT}{_ZONE if kind.tz else ''}$"
    return None


def _converted(table: pa.Table, schema: pa.Schema, exact: np.ndarray) -> pa.Table:
    """The table with the types of ``schema``. Sets ``exact`` to false for rows with a string in another form.

    Raises ArrowInvalid for a day or a time that does not exist.
    """
    columns = []
    for wanted in schema:
        values, form = table.column(wanted.name), _form_of(wanted.type)
        if form is not None:
            fits = pc.match_substring_regex(values, form)
            exact &= _mask(pc.fill_null(fits, True))
            values = pc.if_else(fits, values, pa.scalar(None, pa.string())).cast(wanted.type)
        columns.append(values)
    return pa.table(columns, schema=schema)


_MOST_BLOCK = 2**30
"""The maximum number of bytes in a block, which Arrow counts in 32 bits."""


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """Returns the bytes of all texts, one after the other, without copying them."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


def _are_plain(strings: pa.Array, whole: bytes) -> np.ndarray:
    """True for records whose JSON has no escaped characters and is within the limits of ``from_json``. ``whole``
    contains all records, one after the other."""
    plain = np.ones(len(strings), dtype=bool)
    if b"\\u" in whole:
        plain &= ~_mask(pc.match_substring(strings, "\\u"))
    if b"NaN" in whole or b"Inf" in whole:
        plain &= ~_mask(pc.match_substring_regex(strings, _NO_NUMBER))
    lengths = pc.binary_length(strings).to_numpy(zero_copy_only=False)
    long = np.flatnonzero(lengths > _PLAIN_BYTES)
    if len(long):
        texts = strings.take(pa.array(long))
        nested = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
        plain[long] &= (lengths[long] <= _MOST_BYTES) & _mask(pc.less(nested, _MOST_NESTED))
        plain[long] &= ~_mask(pc.match_substring_regex(texts, _LONG_NUMBER))
    return plain


def _are_exact(table: pa.Table, strings: pa.Array) -> np.ndarray:
    """True for rows for which ``from_json`` would return the same values under the same names."""
    exact = np.ones(table.num_rows, dtype=bool)
    nulls: dict[str, np.ndarray] = {}
    for name, values, rows in _members(table):
        if pa.types.is_floating(values.type):
            # Jackson reads -0 as an integer without a sign.
            numbers = values.to_numpy(zero_copy_only=False)
            exact[rows[np.isinf(numbers) | ((numbers == 0) & np.signbit(numbers))]] = False
        # The member at the end of each record is a column too, but it is never NULL.
        if name and values.null_count:
            nulls.setdefault(name, np.zeros(table.num_rows, dtype=bool))[rows[_mask(values.is_null())]] = True
    if nulls:
        exact &= _names_match(strings, nulls)
    return exact


def _names_match(strings: pa.Array, nulls: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns False for a record if a column of the record is NULL, and the record may contain a member whose name
    differs from the column's name only in case. Returns True for all other records. ``nulls`` maps each name to a mask
    of the records in which its column is NULL."""
    match = np.ones(len(strings), dtype=bool)
    at = np.flatnonzero(np.logical_or.reduce(list(nulls.values())))
    texts, member = strings.take(pa.array(at)), rf'"(?:{"|".join(sorted(nulls))})"{_COLON}'
    either = pc.count_substring_regex(texts, f"(?i){member}")
    odd = ~_mask(pc.equal(either, pc.count_substring_regex(texts, member)))
    # These records contain some of the names in another case. But perhaps none of these names is NULL in the same
    # record.
    by_name = {name.lower(): mask for name, mask in nulls.items()}
    for row, text in zip(at[odd], texts.filter(pa.array(odd)).to_pylist(), strict=True):
        written = {_folded(name) for name in _MEMBER.findall(text) if name not in nulls}
        match[row] = not any(by_name[name][row] for name in written & by_name.keys())
    return match


def _folded(name: str) -> str:
    return name.replace("\u017f", "s").lower()


def _members(table: pa.Table) -> Iterator[tuple[str, pa.Array, np.ndarray]]:
    """Returns the columns of a table, the fields of the structures in them, and the items of the arrays in them. Each
    element of the result has a name (empty for items), the values, and the row of each value."""
    every = np.arange(table.num_rows)
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield from _parts_of(name, column.combine_chunks(), every)


def _parts_of(name: str, values: pa.Array, rows: np.ndarray) -> Iterator[tuple[str, pa.Array, np.ndarray]]:
    yield name, values, rows
    if pa.types.is_struct(values.type):
        for at, field in enumerate(values.type):
            yield from _parts_of(field.name, pc.struct_field(values, [at]), rows)
    elif pa.types.is_list(values.type):
        yield from _parts_of("", values.flatten(), rows[pc.list_parent_indices(values).to_numpy()])


def _mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    array = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    made: np.ndarray = np.asarray(array, dtype=bool)
    return made
