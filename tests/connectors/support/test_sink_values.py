"""The batches of sinks as JSON, as Kafka records, and with one row per key."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rw_sql.connectors.kafka.schema_registry_records import RegisteredRecords
from rw_sql.connectors.kafka.sink import records
from rw_sql.connectors.schemas.client import RegistryClient
from rw_sql.connectors.sink import DELETE, INSERT, OP, UPDATE, UPDATE_BEFORE, RefusedRowsError
from rw_sql.connectors.support.sink_values import json_rows, last_per_key, to_json, without_deleted_values
from tests.support.sink_batches import batch, shape


def decoded(found: list[tuple[bytes | None, bytes | None]]) -> list[tuple[Any, Any]]:
    return [tuple(None if raw is None else json.loads(raw) for raw in record) for record in found]  # type: ignore[misc]


def test_plain_records_have_the_primary_key_as_their_key_or_none() -> None:
    rows = batch((1, "a"), (2, None), (3, "c", DELETE))
    assert decoded(list(records(rows, shape(), now_ms=0))) == [
        (None, {"id": 1, "word": "a"}),
        (None, {"id": 2, "word": None}),
    ]
    assert [key for key, _ in decoded(list(records(rows, shape("append-only", "id"), now_ms=0)))] == [
        {"id": 1},
        {"id": 2},
    ]


def test_upsert_records_tell_a_deletion_by_their_key_alone() -> None:
    rows = batch((1, "a"), (1, "b", UPDATE), (1, "b", DELETE))
    assert decoded(list(records(rows, shape("upsert", "id"), now_ms=0))) == [
        ({"id": 1}, {"id": 1, "word": "a"}),
        ({"id": 1}, {"id": 1, "word": "b"}),
        ({"id": 1}, None),
    ]


def test_debezium_records_hold_the_row_before_and_after() -> None:
    rows = batch(
        (1, "a"), (1, "a", UPDATE_BEFORE), (2, "x", UPDATE_BEFORE), (2, "y", UPDATE), (1, "b", UPDATE), (1, "b", DELETE)
    )
    found = decoded(list(records(rows, shape("debezium", "id"), now_ms=5)))
    told = [value and [value["payload"][part] for part in ("op", "before", "after", "ts_ms")] for _, value in found]
    assert told == [
        ["c", None, {"id": 1, "word": "a"}, 5],
        ["u", {"id": 2, "word": "x"}, {"id": 2, "word": "y"}, 5],
        ["u", {"id": 1, "word": "a"}, {"id": 1, "word": "b"}, 5],
        ["d", {"id": 1, "word": "b"}, None, 5],
        None,
    ]
    assert [key["payload"]["id"] for key, _ in found] == [1, 2, 1, 1, 1]
    fields = found[0][1]["schema"]["fields"]
    assert [field["field"] for field in fields] == ["before", "after", "source", "op", "ts_ms"]
    assert [(field["field"], field["type"]) for field in fields[0]["fields"]] == [("id", "int32"), ("word", "string")]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 8, 0, 0, 5, UTC), "2026-01-31T08:00:00.000005Z"),
        (pa.timestamp("us"), datetime(2026, 1, 31, 8), "2026-01-31T08:00:00.000000"),
        (pa.date32(), date(2026, 1, 31), "2026-01-31"),
        (pa.decimal128(20, 2), Decimal("1e3"), "1000.00"),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.float64(), 0.1, 0.1),
        (pa.bool_(), True, True),
        (pa.int64(), 2**60, 2**60),
        (pa.list_(pa.decimal128(4, 1)), [Decimal("1.5"), None], ["1.5", None]),
        (pa.list_(pa.int32()), [1, None], [1, None]),
        (pa.map_(pa.string(), pa.date32()), [("d", date(2026, 1, 1)), ("n", None)], {"d": "2026-01-01", "n": None}),
        (pa.map_(pa.int32(), pa.int32()), [(1, 2)], {"1": 2}),
        (
            pa.struct([("at", pa.date32()), ("in", pa.struct([("b", pa.binary())]))]),
            {"at": date(2026, 1, 1), "in": {"b": b"x"}},
            {"at": "2026-01-01", "in": {"b": "eA=="}},
        ),
        (pa.string(), None, None),
    ],
)
def test_values_in_json(kind: pa.DataType, value: object, shown: object) -> None:
    rows = pa.table({"c": pa.array([value], kind)})
    (row,) = json_rows(rows, ["c"])
    assert json.loads(to_json(row)) == {"c": shown}


def test_the_last_row_of_every_key_stays_in_order() -> None:
    rows = batch((1, "a"), (2, "b"), (None, "c"), (1, "d"), (None, "e"), (3, "f"))
    assert [(row["id"], row["word"]) for row in last_per_key(rows, ["id"]).to_pylist()] == [
        (2, "b"),
        (1, "d"),
        (None, "e"),
        (3, "f"),
    ]
    assert last_per_key(rows, ["id", "word"]).equals(rows)
    assert last_per_key(rows, []).equals(rows)


NESTED_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.string()), [["a"], ["b"], None, ["a"], [None], [], None]),
    "struct": (pa.struct([("x", pa.int32())]), [{"x": 1}, {"x": 2}, None, {"x": 1}, {"x": None}, {"x": 3}, None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("b", 1)], None, [("a", 1)], [("a", 2)], [], None]),
}


@pytest.mark.parametrize("name", NESTED_KEYS)
def test_the_last_row_of_every_nested_key(name: str) -> None:
    kind, keys = NESTED_KEYS[name]
    rows = pa.table({"k": pa.array(keys, kind), "n": range(len(keys))})
    assert last_per_key(rows, ["k"])["n"].to_pylist() == [1, 3, 4, 5, 6]
    assert last_per_key(rows.append_column("m", pa.array([1, 1, 2, 1, 1, 1, 1])), ["m", "k"])["n"].to_pylist() == [
        1, 2, 3, 4, 5, 6
    ]  # fmt: skip


def test_the_last_row_of_nested_keys_for_which_python_has_no_value() -> None:
    days = pa.array([3_000_000, 19_000, 3_000_000, 3_000_001], pa.int32()).cast(pa.date32())
    words = pa.array([b"\xff", b"a", b"\xff", b"\xff"]).view(pa.string())
    offsets = pa.array([0, 1, 2, 3, 4], pa.int32())
    nested = (
        pa.ListArray.from_arrays(offsets, days),
        pa.StructArray.from_arrays([days, words], ["day", "word"]),
        pa.MapArray.from_arrays(offsets, words, days),
    )
    for keys in nested:
        rows = pa.table({"k": keys, "n": range(4)})
        assert last_per_key(rows, ["k"])["n"].to_pylist() == [1, 2, 3]


def test_numbers_that_are_equal_keys() -> None:
    numbers = [0.0, -0.0, float("nan"), float("nan"), None, float("inf"), 1.5]
    rows = pa.table({"k": pa.array(numbers, pa.float32()), "n": range(len(numbers))})
    assert last_per_key(rows, ["k"])["n"].to_pylist() == [1, 3, 4, 5, 6]


def test_a_text_that_is_not_utf_8_is_a_refused_row() -> None:
    rows = pa.table({"word": pa.array([b"good", b"\xff\xfe", None]).view(pa.string())})
    with pytest.raises(RefusedRowsError) as caught:
        list(json_rows(rows, ["word"]))
    assert [(told.index, told.column, told.reason) for told in caught.value.refusals] == [
        (1, "word", "a text is not UTF-8")
    ]


def test_a_deletion_is_a_record_although_python_has_no_value_for_the_deleted_row() -> None:
    """Otherwise, the row that was written before would stay."""
    words = pa.array([b"good", b"\xff", b"\xff"]).view(pa.string())
    rows = pa.table({"id": pa.array([1, 1, 2], pa.int32()), "word": words, OP: [UPDATE, DELETE, DELETE]})
    assert decoded(list(records(rows, shape("upsert", "id"), now_ms=0))) == [
        ({"id": 1}, {"id": 1, "word": "good"}),
        ({"id": 1}, None),
        ({"id": 2}, None),
    ]
    with pytest.raises(RefusedRowsError) as refused:
        list(records(rows.set_column(2, OP, pa.array([UPDATE, DELETE, UPDATE])), shape("upsert", "id"), now_ms=0))
    assert [(each.index, each.column) for each in refused.value.refusals] == [(2, "word")]
    with pytest.raises(RefusedRowsError) as refused:
        list(records(rows, shape("upsert", "word"), now_ms=0))
    assert [each.index for each in refused.value.refusals] == [1, 2]


def odd(*rows: tuple[int, bool, str]) -> pa.Table:
    """Rows (id, whether Python has no value for the word, operation)."""
    words = pa.array([b"\xff" if is_odd else b"good" for _, is_odd, _ in rows]).view(pa.string())
    return pa.table({"id": pa.array([row[0] for row in rows], pa.int32()), "word": words, OP: [row[2] for row in rows]})


def payloads(rows: pa.Table, *keys: str) -> list[tuple[Any, ...]]:
    found = decoded(list(records(rows, shape("debezium", *keys), now_ms=0)))
    return [
        tuple(value and value["payload"][part] for part in ("op", "before", "after"))
        for _, value in found
        if value is not None
    ]


def test_a_debezium_update_of_a_row_that_was_refused_creates_the_row() -> None:
    """The old row is not refused again, because it is not written."""
    good = {"id": 1, "word": "good"}
    assert payloads(odd((1, True, UPDATE_BEFORE), (1, False, UPDATE)), "id") == [("c", None, good)]
    # The sink has skipped the update between the two: the topic has the row before it.
    skipped = odd((1, False, UPDATE_BEFORE), (1, True, UPDATE_BEFORE), (1, False, UPDATE))
    assert payloads(skipped, "id") == [("u", good, good)]
    assert payloads(odd((1, True, DELETE)), "id") == [("d", {"id": 1, "word": None}, None)]


def test_a_debezium_row_that_cannot_be_written_is_refused_once() -> None:
    rows = odd((1, True, UPDATE_BEFORE), (1, True, UPDATE), (2, True, DELETE), (3, True, INSERT))
    for keys, refused_rows in ((("id",), [1, 3]), (("word",), [1, 2, 3])):
        with pytest.raises(RefusedRowsError) as refused:
            payloads(rows, *keys)
        assert [each.index for each in refused.value.refusals] == refused_rows


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
def test_a_deletion_with_a_schema_registry_needs_only_the_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RegistryClient, "register", lambda *_, **__: 1)
    options = {"message": "shop.Row"} if kind == "PROTOBUF" else {}
    of = shape("upsert", "id", encode=kind, **options)
    made = RegisteredRecords({"schema.registry": "http://localhost:1"}, of, "t")
    words = pa.array([b"good", b"\xff"]).view(pa.string())
    rows = pa.table({"id": pa.array([1, 1], pa.int32()), "word": words, OP: [UPDATE, DELETE]})
    (_, (key, value)), (index, deletion) = made.numbered(rows)
    assert key is not None
    assert value is not None
    assert (index, deletion) == (1, (key, None))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.binary(), b"x"),
        (pa.decimal128(4, 1), Decimal("1.5")),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 8, tzinfo=UTC)),
        (pa.list_(pa.date32()), [date(2026, 1, 1), None]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        (pa.struct([("at", pa.date32())]), {"at": date(2026, 1, 1)}),
    ],
)
def test_a_deleted_row_has_only_its_key(kind: pa.DataType, value: object) -> None:
    values = pa.chunked_array([pa.array([value], kind), pa.array([None, value, value], kind)])
    rows = pa.table({"id": [1, 2, 3, 4], "value": values, OP: [UPDATE, UPDATE, DELETE, UPDATE]})
    left = without_deleted_values(rows, ["id"])
    assert left.schema == rows.schema
    assert left["value"].to_pylist() == [value, None, None, value]
    assert left.drop_columns(["value"]).equals(rows.drop_columns(["value"]))
    kept = rows.filter(pa.array([True, True, False, True]))
    assert without_deleted_values(kept, ["id"]) is kept
