"""Converts the rows of a batch to the form that a sink's target requires. For example, a function converts values to
JSON, and another keeps only the last row of each key."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.sink import DELETE, OP, UPDATE_BEFORE, Refusal, RefusedRowsError
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    Converter = Callable[[Any], Any]
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")


def json_rows(rows: pa.Table, columns: Sequence[str], *, with_nan_text: bool = True) -> Iterator[dict[str, Any]]:
    """Yields each row as a dict of JSON values, in the order of the rows.

    Timestamps with a zone become ISO 8601 text in UTC with microseconds; TIMESTAMP and DATE become text without a zone.
    NUMERIC becomes text, because most readers parse a JSON number as a float. BYTEA becomes base64 text. If
    ``with_nan_text`` is true, NaN and infinities become text. Otherwise, they remain floats, for which :func:`to_json`
    raises ValueError.
    """
    if not columns:
        yield from ({} for _ in range(rows.num_rows))
        return
    taken = [(name, rows.column(name), _converter(rows.schema.field(name).type, with_nan_text)) for name in columns]
    values = [
        [value if value is None or convert is None else convert(value) for value in python_values(column, name)]
        for name, column, convert in taken
    ]
    names = [name for name, _, _ in taken]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def to_json(value: Any) -> bytes:
    """Encodes a result of :func:`json_rows` as compact JSON in UTF-8. Raises ValueError for NaN and infinities."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain_keys(rows: pa.Table, column: str) -> list[bytes]:
    """Returns the keys for ``KEY ENCODE TEXT`` or ``KEY ENCODE BYTES``: bytes are unchanged, and any other value
    becomes UTF-8 text.

    Raises RefusedRowsError if a key is NULL.
    """
    values = python_values(rows.column(column), column)
    missing = [at for at, value in enumerate(values) if value is None]
    if missing:
        raise RefusedRowsError([Refusal(index=at, column=column, reason="its key is NULL") for at in missing])
    return [value if isinstance(value, bytes) else _plain(value).encode() for value in values]


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_values(rows: pa.Table, name: str) -> list[Any]:
    """One column as JSON values."""
    convert = _converter(rows.schema.field(name).type)
    values = python_values(rows.column(name), name)
    return [value if value is None or convert is None else convert(value) for value in values]


def python_values(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Returns a column's values as Python objects. Raises RefusedRowsError for values that Spark allows but Python
    does not: dates and times outside the years 1 to 9999, and strings that are not UTF-8."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        refusals = [
            Refusal(index=at, column=name, reason=reason)
            for at, value in enumerate(column)
            if (reason := _unreadable(value)) is not None
        ]
        if not refusals:
            raise
        raise RefusedRowsError(refusals) from None


def _unreadable(value: pa.Scalar[Any]) -> str | None:
    """The reason why Python cannot represent a value; None if it can."""
    try:
        value.as_py()
    except UnicodeDecodeError:
        return "a text is not UTF-8"
    except (ValueError, OverflowError):
        return "a date or time lies outside of the years 1 to 9999"
    return None


def refused_rows(
    rows: pa.Table, attempt: Callable[[pa.Table], Refusal | None], *, only_first: bool = False
) -> list[Refusal]:
    """Finds the rows that a target refuses, by bisection.

    ``attempt`` is a function that tries to write some rows. It either writes all of them and returns None, or writes
    none of them and returns the refusal of one row. If it gets a single row, its refusal must have all details;
    otherwise, details may be missing. If ``only_first`` is true, the search ends at the first refused row. Indexes in
    the result refer to ``rows``.
    """
    found: list[Refusal] = []

    def dig(start: int, end: int) -> None:
        if start >= end or (only_first and found):
            return
        told = attempt(rows.slice(start, end - start))
        if told is None:
            return
        if end - start == 1:
            found.append(replace(told, index=start))
            return
        middle = (start + end) // 2
        dig(start, middle)
        dig(middle, end)

    dig(0, rows.num_rows)
    return found


def _converter(kind: pa.DataType, with_nan_text: bool = True) -> Converter | None:
    """Returns the function that converts values of a type to JSON values; None if the values need no conversion."""
    if pa.types.is_timestamp(kind):
        return _zoned if kind.tz else lambda at: str(at.isoformat(timespec="microseconds"))
    if pa.types.is_date(kind):
        return lambda day: str(day.isoformat())
    if pa.types.is_decimal(kind):
        return lambda number: format(number, "f")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda raw: base64.b64encode(raw).decode()
    if pa.types.is_floating(kind):
        if not with_nan_text:
            return None
        return lambda number: number if math.isfinite(number) else _unordinary(number)
    if pa.types.is_map(kind):
        return _map_converter(kind, with_nan_text)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _converter(kind.value_type, with_nan_text)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(field.type, with_nan_text) for field in kind}
        return lambda row: {
            name: value if value is None or (convert := fields[name]) is None else convert(value)
            for name, value in row.items()
        }
    return None


def _zoned(at: Any) -> str:
    text = str(at.isoformat(timespec="microseconds"))
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def _unordinary(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _map_converter(kind: pa.DataType, with_nan_text: bool) -> Converter:
    key, item = _converter(kind.key_type), _converter(kind.item_type, with_nan_text)

    def convert(pairs: Any) -> dict[str, Any]:
        return {
            _key_text(name if key is None else key(name)): value if value is None or item is None else item(value)
            for name, value in pairs
        }

    return convert


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def last_per_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns the last row of each key, in the original order. NULL is a key value like any other. 0.0 and -0.0 are
    the same key, except inside nested values."""
    if rows.num_rows < 2 or not keys:
        return rows
    at = "__at"
    columns = {key: comparable(rows.column(key)) for key in keys}
    numbered = pa.table({**columns, at: pa.array(range(rows.num_rows), pa.int64())})
    # Finds the last row by the maximum index, because several threads add the rows to their groups in any order.
    last = numbered.group_by(list(keys)).aggregate([(at, "max")]).column(f"{at}_max")
    return rows if len(last) == rows.num_rows else rows.take(last.take(pc.sort_indices(last)))


def comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in a form that Arrow accepts as a group key. Nested values become text; equal values have equal
    text. Among floating-point numbers, 0.0 and -0.0 become equal, and all NaN values become equal."""
    kind = values.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, kind), pc.add(values, pa.scalar(0.0, kind)))
    if not pa.types.is_nested(kind):
        return values
    try:
        texts = [repr(value) for value in values.to_pylist()]
    except (ValueError, OverflowError):  # See python_values.
        texts = [repr(_exact_parts(value)) for value in values]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _exact_parts(value: pa.Scalar[Any]) -> Any:
    """Converts a value to Python objects. Dates and times become numbers, and strings become bytes. Unlike
    ``as_py``, this function accepts every value."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _exact_parts(part) for name, part in value.items()}
    if pa.types.is_map(kind):
        return [(_exact_parts(entry["key"]), _exact_parts(entry["value"])) for entry in value.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_exact_parts(part) for part in value.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes()
    return value.value if pa.types.is_temporal(kind) else value.as_py()


def without_deleted_values(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """In deleted rows, replaces the values of all columns except ``keys`` with NULL. The target thus cannot refuse a
    delete because of a value that it does not need."""
    is_gone = pc.equal(rows.column(OP), DELETE)
    if not pc.any(is_gone).as_py():
        return rows
    for at, name in enumerate(rows.column_names):
        if name != OP and name not in keys:
            field = rows.schema.field(at)
            values = pc.if_else(is_gone, pa.scalar(None, field.type), rows.column(at))
            rows = rows.set_column(at, field.with_nullable(True), values)
    return rows


def without_unreadable_old_values(rows: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, frozenset[int]]:
    """In deleted rows and ``update_before`` rows, replaces values that Python cannot represent with NULL. Values of
    deleted rows in the columns ``keys`` are not replaced. Also returns the indexes of the changed rows."""
    is_deleted = pc.equal(rows.column(OP), DELETE)
    is_before = pc.equal(rows.column(OP), UPDATE_BEFORE)
    at = pa.array(range(rows.num_rows), pa.int64())
    found: set[int] = set()
    for number, name in enumerate(rows.column_names):
        is_old = is_before if name in keys else pc.or_(is_before, is_deleted)
        column = rows.column(name)
        try:
            python_values(column, name)
        except RefusedRowsError as error:
            refused = pc.is_in(at, value_set=pa.array([each.index for each in error.refusals], pa.int64()))
            is_replaced = pc.and_(refused, is_old)
            found.update(at.filter(is_replaced).to_pylist())
            field = rows.schema.field(number).with_nullable(True)
            rows = rows.set_column(number, field, pc.if_else(is_replaced, pa.scalar(None, field.type), column))
    return rows, frozenset(found)


def split_by_op(rows: pa.Table, op: str) -> tuple[pa.Table, pa.Table]:
    """Returns first the rows whose operation is not ``op``, and then the rows whose operation is ``op``. Both tables
    lack the column :data:`OP`."""
    is_op = pc.equal(rows.column(OP), op)
    return rows.filter(pc.invert(is_op)).drop_columns([OP]), rows.filter(is_op).drop_columns([OP])
