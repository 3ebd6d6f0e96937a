"""What a sink writes as Protobuf is what Protobuf's own library reads, and what its schema says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.kafka.schema_registry_records import RegisteredRecords, RegisteredSchemas, has_registry
from rw_sql.connectors.kafka.sink import numbered_records
from rw_sql.connectors.schemas.client import RegistryClient
from rw_sql.connectors.schemas.json_schema import columns_of
from rw_sql.connectors.schemas.protobuf import Messages, compiled
from rw_sql.connectors.schemas.protobuf_writing import row_encoder, schema_text
from rw_sql.connectors.schemas.unwritable import UnwritableError
from rw_sql.connectors.sink import DELETE, INSERT, OP, RefusedRowsError, SinkShape
from rw_sql.errors import SqlError
from tests.connectors.schemas.test_avro_writing import COLUMNS, TEXT, TYPES, VALUES, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FLAGS = {"type": "map", "keyType": "boolean", "valueType": COLUMNS["inner"]}
KINDS = {**COLUMNS, "flags": FLAGS, "lines": {"type": "array", "elementType": COLUMNS["inner"]}}
INNER = pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})
ARROW = pa.schema([*TYPES, pa.field("flags", pa.map_(pa.bool_(), INNER)), pa.field("lines", pa.list_(INNER))])
FULL = st.fixed_dictionaries({"a": st.none() | signed(32), "b": st.lists(TEXT, max_size=2)})
ROW = st.fixed_dictionaries(
    {
        **{name: st.none() | value for name, value in VALUES.items()},
        # Protobuf cannot contain NULL within arrays and maps.
        "items": st.none() | st.lists(signed(64), max_size=3),
        "pairs": st.none() | st.dictionaries(TEXT, signed(32), max_size=3),
        "inner": st.none() | FULL,
        "flags": st.none() | st.dictionaries(st.booleans(), FULL, max_size=2),
        "lines": st.none() | st.lists(FULL, max_size=2),
    }
)
MAPS = ("pairs", "flags")


@pytest.fixture(scope="module")
def messages() -> Messages:
    return Messages(compiled(schema_text("a.b.Row", KINDS)), "a.b.Row")


def expected(name: str, value: Any) -> Any:
    """A value as the reader of sources returns it: an absent array or map is empty."""
    if name in ("items", "lines", *MAPS):
        return sorted((value or {}).items()) if name in MAPS else value or []
    if value is None:
        return None
    match name:
        case "day":
            return value.toordinal() - 719_163
        case "at":
            seconds = int(value.replace(microsecond=0).timestamp())
            return {"seconds": seconds, "nanos": value.microsecond * 1000}
        case "local":
            return value.isoformat(timespec="microseconds")
        case "amount" | "wide":
            return format(value, "f")
        case _:
            return value


@given(st.lists(ROW, min_size=1, max_size=3))
def test_every_value_is_read_back(messages: Messages, rows: list[dict[str, Any]]) -> None:
    listed = [{**row, **{m: None if row[m] is None else list(row[m].items()) for m in MAPS}} for row in rows]
    table = pa.Table.from_pylist(listed, schema=ARROW)
    encode = row_encoder(list(KINDS.items()))
    read = messages.reader(list(KINDS), is_framed=True)
    columns = [table.column(name).to_pylist() for name in KINDS]
    for row, values in zip(rows, zip(*columns, strict=True), strict=True):
        found = read(encode(b"\0\0\0\0\7\0", values))
        assert found == {name: expected(name, value) for name, value in row.items()}


def test_the_schema_of_all_types() -> None:
    assert schema_text(
        "Row", {"id": "long", "at": "timestamp", "line": COLUMNS["inner"], "line_message": "string"}
    ) == (
        'syntax = "proto3";\n'
        'import "google/protobuf/timestamp.proto";\n'
        "\n"
        "message Row {\n"
        "  optional int64 id = 1;\n"
        "  optional google.protobuf.Timestamp at = 2;\n"
        "  message line_message_ {\n"
        "    optional int32 a = 1;\n"
        "    repeated string b = 2;\n"
        "  }\n"
        "  optional line_message_ line = 3;\n"
        "  optional string line_message = 4;\n"
        "}"
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a b": "integer"}, 'column "a b" cannot be a field of Protobuf'),
        ({"_a": "integer"}, 'column "_a" cannot be a field of Protobuf'),
        ({"a": "interval day to second"}, 'cannot encode column "a" as Protobuf: interval day to second'),
        ({"a": {"type": "map", "keyType": "double", "valueType": "string"}}, "map with keys of type double"),
        (
            {"a": {"type": "array", "elementType": {"type": "array", "elementType": "string"}}},
            'cannot encode column "a" as Protobuf: array within an array or map',
        ),
    ],
)
def test_what_protobuf_does_not_have_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SqlError) as told:
        schema_text("Row", columns)
    assert message in told.value.message


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (COLUMNS["items"], [1, None]),
        (COLUMNS["pairs"], [("a", None)]),
        (KINDS["lines"], [{"a": 1, "b": [None]}]),
    ],
)
def test_null_within_an_array_or_map_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(UnwritableError, match="cannot contain NULL"):
        row_encoder([("a", kind)])(b"", [value])


def shape(encode: str, columns: Mapping[str, Any], **options: str) -> SinkShape:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return SinkShape(
        name="s",
        type="upsert",
        schema=json.dumps({"type": "struct", "fields": fields}),
        encode=encode,
        keys=("id",),
        encode_options=tuple((key.replace("__", "."), value) for key, value in options.items()),
    )


def test_records_are_framed_and_a_row_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[tuple[str, str]] = []

    def register(_: RegistryClient, subject: str, kind: str, text: str, *, is_quick: bool = False) -> int:
        registered.append((subject, kind))
        return len(registered)

    monkeypatch.setattr(RegistryClient, "register", register)
    of = shape("PROTOBUF", {"id": "long", "tags": COLUMNS["items"]}, message="shop.Order", schema__registry="http://r")
    made = RegisteredRecords({}, of, "orders")
    assert registered == [("orders-value", "PROTOBUF"), ("orders-key", "PROTOBUF")]
    rows = pa.table(
        {"id": [1, 2, 3], "tags": [[5], None, [7, None]], OP: [INSERT, DELETE, DELETE]},
        schema=pa.schema({"id": pa.int64(), "tags": pa.list_(pa.int64()), OP: pa.string()}),
    )
    assert list(made.numbered(rows)) == [
        (0, (b"\0\0\0\0\2\0\x08\1", b"\0\0\0\0\1\0\x08\1\x12\1\5")),
        (1, (b"\0\0\0\0\2\0\x08\2", None)),
        (2, (b"\0\0\0\0\2\0\x08\3", None)),
    ]
    with pytest.raises(RefusedRowsError) as told:
        list(made.numbered(rows.set_column(2, OP, pa.array([INSERT] * 3))))
    assert [(each.index, each.reason) for each in told.value.refusals] == [
        (2, "tags: a repeated field of Protobuf cannot contain NULL")
    ]


@pytest.mark.parametrize(
    ("encode", "column", "kind", "keys"),
    [
        ("TEXT", pa.array([1, -2]), "long", [b"1", b"-2"]),
        ("TEXT", pa.array([True, False]), "boolean", [b"true", b"false"]),
        ("TEXT", pa.array(["a", "ü"]), "string", [b"a", "ü".encode()]),
        ("BYTES", pa.array([b"\0", b""]), "binary", [b"\0", b""]),
    ],
)
def test_keys_may_be_plain(
    monkeypatch: pytest.MonkeyPatch, encode: str, column: pa.Array[Any], kind: str, keys: list[bytes]
) -> None:
    monkeypatch.setattr(RegistryClient, "register", lambda _self, subject, _kind, _text, **_: len(subject))
    rows = pa.table({"id": column, OP: [INSERT, DELETE]})
    options = {"schema__registry": "http://r", "message": "Row"}
    for of in (shape("JSON", {"id": kind}), shape("PROTOBUF", {"id": kind}, **options)):
        plain = replace(of, key_encode=encode)
        if of.encode == "JSON":
            made = list(numbered_records(rows, plain, now_ms=0))
        else:
            assert RegisteredSchemas.of(plain, "t").key is None
            made = list(RegisteredRecords({}, plain, "t").numbered(rows))
        assert [key for _, (key, _) in made] == keys
        assert made[1][1][1] is None
    with pytest.raises(RefusedRowsError, match="its key is NULL"):
        list(numbered_records(pa.table({"id": column.take([0, None]), OP: [INSERT, DELETE]}), plain, now_ms=0))


def test_json_is_framed_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RegistryClient, "register", lambda _self, subject, _kind, _text, **_: len(subject))
    made = RegisteredRecords({}, shape("JSON", {"id": "long", "at": "date"}, schema__registry="http://r"), "t")
    rows = pa.table({"id": [1], "at": pa.array([0], pa.date32()), OP: [INSERT]})
    assert list(made.numbered(rows)) == [
        (0, (b'\0\0\0\0\5{"id":1}', b'\0\0\0\0\7{"id":1,"at":"1970-01-01"}')),
    ]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("double", lambda value: pa.array([value, 1.5])),
        ("float", lambda value: pa.array([value, 1.5], pa.float32())),
        (
            {"type": "array", "elementType": "double", "containsNull": True},
            lambda value: pa.array([[1.0, value], [None]], pa.list_(pa.float64())),
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
            lambda value: pa.array([[("k", value)], [("k", 1.0)]], pa.map_(pa.string(), pa.float64())),
        ),
        (
            {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": True, "metadata": {}}]},
            lambda value: pa.array([{"x": value}, {"x": 1.0}]),
        ),
    ],
    ids=["double", "float", "array", "map", "struct"],
)
def test_a_number_that_json_schema_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: Any, made: Callable[[float], pa.Array[Any]], wrong: float
) -> None:
    monkeypatch.setattr(RegistryClient, "register", lambda _self, subject, _kind, _text, **_: len(subject))
    columns = {"id": "long", "word": "string", "n": kind}
    records = RegisteredRecords({}, shape("JSON", columns, schema__registry="http://r"), "t")
    rows = pa.table({"id": [1, 2], "word": ["NaN", "NaN"], "n": made(wrong), OP: [INSERT, INSERT]})
    with pytest.raises(RefusedRowsError) as told:
        list(records.numbered(rows))
    assert [(each.index, each.reason) for each in told.value.refusals] == [
        (0, "n: a number of JSON cannot be NaN or infinite")
    ]
    # A delete has only the key, and without a registry there is no schema that the text could contradict.
    ((_, (_, value)), _) = records.numbered(rows.set_column(3, OP, pa.array([DELETE, INSERT])))
    assert value is None
    ((_, plain), _) = numbered_records(rows, shape("JSON", columns), now_ms=0)
    assert b"NaN" in (plain[1] or b"").replace(b"Infinity", b"NaN").partition(b'"n":')[2]


def test_json_has_a_schema_of_the_same_columns_if_there_is_a_registry() -> None:
    columns = {**KINDS, "id": "long"}
    assert not has_registry(shape("JSON", columns))
    of = shape("JSON", columns, schema__registry="http://r")
    assert has_registry(of)
    schemas = RegisteredSchemas.of(of, "shop.orders")
    assert (schemas.kind, schemas.value.subject) == ("JSON", "shop.orders-value")
    assert json.loads(schemas.value.text)["title"] == "shop.orders.Value"
    assert schemas.key is not None
    assert columns_of(schemas.key.text) == (("id", "BIGINT"),)
    assert dict(columns_of(schemas.value.text)) == {
        **dict.fromkeys(("small", "n", "big", "id"), "BIGINT"),
        **dict.fromkeys(("f", "d"), "DOUBLE"),
        **dict.fromkeys(("text", "raw", "day", "at", "local", "amount", "wide"), "CHARACTER VARYING"),
        "flag": "BOOLEAN",
        "items": "BIGINT[]",
        # As in RisingWave, an object with any names is JSON.
        "pairs": "JSONB",
        "flags": "JSONB",
        "inner": 'STRUCT<"a" BIGINT, "b" CHARACTER VARYING[]>',
        "lines": 'STRUCT<"a" BIGINT, "b" CHARACTER VARYING[]>[]',
    }
