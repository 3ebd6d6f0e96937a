"""Generates rows. Each row depends only on the seed, the split and the offset.

Spark's workers receive this module by value, because rw_sql is not necessarily installed there. Therefore, the module
imports only constants from other modules of rw_sql.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from rw_sql.connectors.support.records.record_columns import HEADERS, RECORD_SCHEMA
except ModuleNotFoundError:
    # rw-sql check, which only makes plans, also runs where these packages are not installed.
    pass
else:
    _LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

INTEGER_LIMITS = {"SMALLINT": 2**15 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}
_BATCH_ROWS = 20_000
_BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    """The plan for one field.

    ``kind`` is INTEGER, REAL, DOUBLE, NUMERIC, TEXT, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, STRUCT or ARRAY. ``low``
    and ``high`` are the bounds of numbers, or the first and last number of a sequence. For NUMERIC, they are in units
    of the last digit. A date or time is at most ``past_us`` microseconds before ``base_us`` (microseconds since 1970);
    if ``base_us`` is None, before the timestamp of the row. ``path`` is the field's full name. The random values of the
    field depend on ``seed``; if ``seed`` is None, they depend on ``path``.
    """

    name: str
    path: str
    kind: str
    is_sequence: bool = False
    low: float = 0
    high: float | None = None
    scale: int = 0
    length: int = 0
    seed: int | None = None
    null: float = 0.0
    base_us: int | None = None
    past_us: int = 0
    fields: tuple[FieldPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """The plan for the rows of a source. ``total`` is the maximum number of rows in all splits together; None for no
    limit. ``origin_us`` is the first row's timestamp, in microseconds since 1970."""

    splits: int
    seed: int
    fields: tuple[FieldPlan, ...]
    origin_us: int
    step_us: float
    total: int | None = None

    def to_json(self) -> str:
        """Returns the plan as a JSON text for :func:`row_plan`."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def split_total(self, index: int) -> int | None:
        """The number of rows in one split; None if the number is unlimited."""
        return None if self.total is None else max(0, -((index - self.total) // self.splits))


def row_plan(text: str) -> RowPlan:
    """Parses the text of :meth:`RowPlan.to_json`."""
    given: dict[str, Any] = json.loads(text)
    return RowPlan(**{**given, "fields": tuple(_field_plan(field) for field in given["fields"])})


@dataclass(frozen=True, slots=True)
class SplitRange:
    """The rows of one split at the offsets ``[start, end)``. ``index`` is the split's index."""

    split: str
    index: int
    start: int
    end: int


def make_batches(plan: RowPlan, ranges: Iterable[SplitRange]) -> Iterator[pa.RecordBatch]:
    """Generates the rows of the ranges, in the order of the ranges. Each record batch has at most _BATCH_ROWS rows and
    about _BATCH_BYTES bytes."""
    size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, sum(map(_width, plan.fields)))))
    waiting: list[SplitRange] = []
    room = size
    for given in ranges:
        at = given.start
        while at < given.end:
            taken = min(room, given.end - at)
            waiting.append(SplitRange(given.split, given.index, at, at + taken))
            at, room = at + taken, room - taken
            if room == 0:
                yield make_batch(plan, waiting)
                waiting, room = [], size
    if waiting:
        yield make_batch(plan, waiting)


def make_batch(plan: RowPlan, ranges: Sequence[SplitRange]) -> pa.RecordBatch:
    """The rows of the ranges, with the columns of :meth:`~rw_sql.connectors.base.Connector.read_stream`.

    All ranges share one record batch, because each record batch costs 30 µs.
    """
    lengths = np.array([given.end - given.start for given in ranges], dtype=np.int64)
    count = int(lengths.sum())
    ends = np.cumsum(lengths)
    moved = np.array([given.start for given in ranges], dtype=np.int64) - (ends - lengths)
    offsets = np.arange(count, dtype=np.int64) + np.repeat(moved, lengths)
    rows = offsets * plan.splits + np.repeat(np.array([given.index for given in ranges], dtype=np.int64), lengths)
    times = plan.origin_us + np.floor(rows * plan.step_us).astype(np.int64)
    places = np.repeat(np.arange(len(ranges), dtype=np.int32), lengths)
    ids = pa.DictionaryArray.from_arrays(pa.array(places), pa.array([given.split for given in ranges])).cast(
        pa.string()
    )
    return pa.RecordBatch.from_arrays(
        [
            ids,
            pa.array(offsets),
            pa.nulls(count, pa.binary()),
            _object(plan.fields, rows, times, plan.seed).cast(pa.binary()),
            ids,
            pa.array(times, type=pa.timestamp("us", tz="UTC")),
            pa.nulls(count, HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )


def _field_plan(given: dict[str, Any]) -> FieldPlan:
    return FieldPlan(**{**given, "fields": tuple(_field_plan(field) for field in given["fields"])})


def _width(field: FieldPlan) -> int:
    inner = sum(map(_width, field.fields))
    match field.kind:
        case "TEXT":
            return len(field.name) + 6 + field.length
        case "ARRAY":
            return len(field.name) + 6 + field.length * inner
        case _:
            return len(field.name) + 32 + inner


def _object(fields: tuple[FieldPlan, ...], rows: NDArray[np.int64], times: NDArray[np.int64], seed: int) -> pa.Array:
    if not fields:
        return pa.array(["{}"] * len(rows), type=pa.string())
    parts: list[Any] = []
    for position, field in enumerate(fields):
        lead = "{" if position == 0 else ","
        parts += [lead + json.dumps(field.name, ensure_ascii=False) + ":", _values(field, rows, times, seed)]
    return pc.binary_join_element_wise(*parts, "}", "")


def _values(field: FieldPlan, rows: NDArray[np.int64], times: NDArray[np.int64], seed: int) -> pa.Array:
    """The JSON texts of a field's values in these rows."""
    drawn = _draw(field, rows, seed)
    texts = _texts(field, rows, times, drawn, seed)
    if field.null > 0:
        is_null = _share(_mix(drawn ^ np.uint64(0xA5A5A5A5A5A5A5A5))) < field.null
        texts = pc.if_else(pa.array(is_null), pa.scalar("null"), texts)
    return texts


def _texts(
    field: FieldPlan, rows: NDArray[np.int64], times: NDArray[np.int64], drawn: NDArray[np.uint64], seed: int
) -> pa.Array:
    match field.kind:
        case "INTEGER":
            return pa.array(_whole(field, rows, drawn)).cast(pa.string())
        case "NUMERIC":
            return _decimal(_whole(field, rows, drawn), field.scale)
        case "REAL":
            return pa.array(_real(field, rows, drawn).astype(np.float32)).cast(pa.string())
        case "DOUBLE":
            return pa.array(_real(field, rows, drawn)).cast(pa.string())
        case "BOOLEAN":
            return pa.array((drawn >> np.uint64(63)).astype(bool)).cast(pa.string())
        case "TEXT":
            return _between('"', _letters(drawn, field.length), '"')
        case "STRUCT":
            return _object(field.fields, rows, times, seed)
        case "ARRAY":
            return _list(field, rows, times, seed)
        case _:
            return _time(field, times, drawn)


def _list(field: FieldPlan, rows: NDArray[np.int64], times: NDArray[np.int64], seed: int) -> pa.Array:
    (element,) = field.fields
    if field.length == 0:
        return pa.array(["[]"] * len(rows), type=pa.string())
    items = []
    for position in range(field.length):
        # Each element of an array has its own seed, because with the same seed all elements would be equal.
        items.append(_values(element, rows, times, seed + 0x51ED27 * (position + 1)))
    return _between("[", pc.binary_join_element_wise(*items, ","), "]")


def _time(field: FieldPlan, times: NDArray[np.int64], drawn: NDArray[np.uint64]) -> pa.Array:
    past = np.floor(_share(drawn) * (field.past_us + 1)).astype(np.int64)
    base = times if field.base_us is None else np.full(len(times), field.base_us, dtype=np.int64)
    made = pa.array(base - past, type=pa.timestamp("us"))
    if field.kind == "DATE":
        return _between('"', made.cast(pa.date32(), safe=False).cast(pa.string()), '"')
    text = pc.utf8_replace_slice(made.cast(pa.string()), start=10, stop=11, replacement="T")
    return _between('"', text, '"' if field.kind == "TIMESTAMP" else 'Z"')


def _whole(field: FieldPlan, rows: NDArray[np.int64], drawn: NDArray[np.uint64]) -> NDArray[np.int64]:
    low = int(field.low)
    if field.is_sequence:
        return np.int64(low) + rows * np.int64(10**field.scale)
    high = low if field.high is None else int(field.high)
    width = high - low + 1
    if width >= 2**64:
        return drawn.astype(np.int64)
    moved: NDArray[np.uint64] = drawn % np.uint64(width) + np.uint64(low % 2**64)
    return moved.astype(np.int64)


def _real(field: FieldPlan, rows: NDArray[np.int64], drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    if field.is_sequence:
        return float(field.low) + rows.astype(np.float64)
    high = field.low if field.high is None else field.high
    return field.low + _share(drawn) * (high - field.low)


def _decimal(units: NDArray[np.int64], scale: int) -> pa.Array:
    if scale == 0:
        return pa.array(units).cast(pa.string())
    size = np.abs(units)
    sign = pc.if_else(pa.array(units < 0), pa.scalar("-"), pa.scalar(""))
    whole = pa.array(size // 10**scale).cast(pa.string())
    part = pc.utf8_lpad(pa.array(size % 10**scale).cast(pa.string()), scale, "0")
    return pc.binary_join_element_wise(sign, whole, ".", part, "")


def _letters(drawn: NDArray[np.uint64], length: int) -> pa.Array:
    count = len(drawn)
    blocks = -(-length // 8)
    made = np.empty((count, blocks), dtype=np.uint64)
    for block in range(blocks):
        made[:, block] = _mix(drawn + np.uint64((block + 1) * 0x9E3779B9))
    octets = made.view(np.uint8).reshape(count, blocks * 8)[:, :length] if blocks else np.empty((count, 0), np.uint8)
    data = _LETTERS[(octets.astype(np.uint16) * np.uint16(62)) >> np.uint16(8)]
    ends = np.arange(count + 1, dtype=np.int32) * length
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(np.ascontiguousarray(data).tobytes())]
    )


def _between(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _draw(field: FieldPlan, rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    named = f"{seed}/{field.path if field.seed is None else field.seed}"
    key = int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest(), "little")
    return _mix(rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key))


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Computes the output step of splitmix64 (Steele, Lea, Flood 2014), which maps similar inputs to dissimilar
    outputs."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _share(drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Maps 64-bit numbers to uniform values in [0, 1)."""
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
