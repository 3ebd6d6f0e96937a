"""Decodes JSON records with Arrow, one block of records at a time.

Arrow's parser decodes a block in a fifth of the time that Spark's ``from_json`` needs. However, Arrow's parser accepts
fewer values, because it does not convert numbers to strings or strings to numbers. If a single value does not fit its
column, Arrow's parser fails for the entire block. Therefore, this module decodes only *certain* records. A record is
certain if ``from_json`` would definitely return the same values as Arrow's parser. All other records are left to
:mod:`rw_sql.runtime.decoding.plain_values`, which also determines the errors.

Spark sends the code of this module to its Python processes, in which rw_sql may not be installed. Therefore, the module
imports only Arrow and NumPy.

The text of a record is the result of :func:`rw_sql.runtime.decoding.json_text.with_end`, followed by a newline. The
function ``with_end`` adds a member with a random name at the end of the record. Each object that is read from a block
must have this member, and the number of objects must equal the number of records. These two conditions ensure that each
object is exactly one record.
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
"""The maximum number of attempts to read a block or parts of it. A record that is still unread after these attempts
does not count as certain."""

_FEWEST = 32
"""If a part with at most this number of records cannot be read, it is not divided further."""

_PLAIN_BYTES, _MOST_BYTES, _MOST_NESTED = 900, 50_000, 900
"""A record that does not exceed these sizes is within the limits of ``from_json``, which are 1,000 characters for a
number, 50,000 characters for a name, and 1,000 nested levels. ``_PLAIN_BYTES`` is the size of a record that needs no
further check. ``_MOST_BYTES`` is the maximum size of a longer record, and ``_MOST_NESTED`` is its maximum number of
opening brackets."""

_LONG_NUMBER = "[0-9]{900}"
_DAY = r"(?:000[2-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-[0-9]{2}-[0-9]{2}"
"""The pattern of a day in the years 2 to 9998. In every time zone, such a day is in the years 1 to 9999, which a column
can store."""

_MOMENT = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_NO_NUMBER = r"[:,\[][ \t\r\n]*-?(?:NaN|Inf)"
"""Matches the beginning of NaN or Infinity after a colon, comma or bracket. NaN and Infinity are not valid JSON, but
Arrow's parser accepts them, even in members that are not columns."""

_COLON = r"[ \t\r\n]*:"
_MEMBER = re.compile(rf'"([A-Za-z0-9_\u017f\u212a]+)"{_COLON}')
"""Matches the names of members that may differ from the name of a column only in case. The pattern includes ``ſ`` and
the Kelvin sign, because these are the only other characters that become an ASCII letter in another case."""


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Decodes blocks of JSON records to the columns ``schema``.

    The names of columns, and of the fields of structures, must consist of ASCII letters, digits and underscores, and no
    two names may differ only in case. A date or time is read only if it is the value of a column, and a string in the
    form YYYY-MM-DD or YYYY-MM-DD HH:MM:SS. In a time, T may replace the space, and a fraction of a second may follow. A
    point in time must end with its zone. ``end`` is the name of the last member of each record, and ``suffix`` is the
    text with which each record ends.
    """

    schema: pa.Schema
    end: str
    suffix: str

    def read(self, texts: pa.Array) -> tuple[pa.Table, np.ndarray]:
        """Returns the rows of the certain records, and a mask that is True for these records.

        ``texts`` are the texts of the records, with the type BINARY. The rows have the order of the records.
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
    """The state of reading one block. ``rows`` are the rows of the parts that have been read. ``places`` are the places
    in the block of the records from which these rows come. ``reads`` is the number of attempts."""

    reader: BlockReader
    rows: list[pa.Table] = field(default_factory=list)
    places: list[np.ndarray] = field(default_factory=list)
    reads: int = 0

    def read(self, texts: pa.Array, at: np.ndarray) -> None:
        """Reads ``texts``, which are the records at the places ``at`` of the block. If Arrow's parser fails for these
        records, divides them into halves and reads each half."""
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
        """Returns the rows of the records, and a mask that is True for certain records. Returns None if Arrow's parser
        cannot read at least one of the records."""
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
    """Returns the pattern of the strings that this module converts to the type ``kind``; None if this module does not
    read this type from strings."""
    if pa.types.is_date(kind):
        return f"^{_DAY}$"
    if pa.types.is_timestamp(kind):
        return f"^{_MOMENT}{_ZONE if kind.tz else ''}$"
    return None


def _converted(table: pa.Table, schema: pa.Schema, exact: np.ndarray) -> pa.Table:
    """Returns ``table`` with the types of ``schema``. Sets ``exact`` to False for each row in which the string of a
    date or time does not match its pattern.

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
"""The maximum number of bytes in a block. Arrow's parser stores the size of a block in 32 bits."""


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """Returns the bytes of all texts in succession, without copying them."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


def _are_plain(strings: pa.Array, whole: bytes) -> np.ndarray:
    """True for records that contain neither Unicode escapes nor the numbers that ``_NO_NUMBER`` matches, and that are
    within the limits of ``from_json``. ``whole`` contains the bytes of all records in succession."""
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
    """True for rows whose values ``from_json`` would return under the same names. A row is not exact if it contains an
    infinite number or -0. It is also not exact if :func:`_names_match` is False."""
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
    """Returns a mask with one value for each record. The value is False if a column of the record is NULL, and the
    record may contain a member whose name differs from the column's name only in case. Otherwise, the value is True.
    ``nulls`` maps the names of columns and fields to masks of the records in which they are NULL."""
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
    """Yields the columns of a table, the fields of their structures, and the items of their arrays. Each element
    consists of a name (empty for items), the values, and the number of the row of each value."""
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
