"""Protobuf schemas: columns, and messages as Protobuf's own library writes them."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import any_pb2, message_factory, wrappers_pb2

from rw_sql.connectors.schemas.protobuf import Messages, NoMessageError, compiled, written_types
from rw_sql.errors import SqlError

SCHEMA = """
syntax = "proto3";
package shop;
import "geo/place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";
enum State { NEW = 0; PAID = 1; }
message Order {
  int32 id = 1;
  uint64 big = 2;
  optional string note = 3;
  State state = 4;
  repeated double prices = 5;
  map<string, int64> counts = 6;
  geo.Place place = 7;
  oneof choice { bool yes = 8; bytes raw = 9; }
  google.protobuf.Timestamp at = 10;
  google.protobuf.Any more = 11;
  repeated Line lines = 12;
  float f = 13;
  fixed32 u = 14;
  message Line { string sku = 1; optional int32 n = 2; }
}
message Node { Node next = 1; int32 n = 2; }
"""
PLACE = 'syntax = "proto3"; package geo; message Place { string city = 1; sint64 zip = 2; }'


@pytest.fixture(scope="module")
def stored() -> str:
    return compiled(SCHEMA, (("geo/place.proto", PLACE),))


def test_columns_are_risingwave_s(stored: str) -> None:
    assert dict(Messages(stored, "shop.Order").columns()) == {
        "id": "INT",
        "big": "NUMERIC(20, 0)",
        "note": "CHARACTER VARYING",
        "state": "CHARACTER VARYING",
        "prices": "DOUBLE[]",
        "counts": "MAP(CHARACTER VARYING, BIGINT)",
        "place": 'STRUCT<"city" CHARACTER VARYING, "zip" BIGINT>',
        "yes": "BOOLEAN",
        "raw": "BYTEA",
        "at": 'STRUCT<"seconds" BIGINT, "nanos" INT>',
        "more": "JSONB",
        "lines": 'STRUCT<"sku" CHARACTER VARYING, "n" INT>[]',
        "f": "REAL",
        "u": "BIGINT",
    }


def test_what_no_column_can_be_is_refused(stored: str) -> None:
    with pytest.raises(SqlError, match=r"circular reference detected: shop.Node -> shop.Node. Adding"):
        Messages(stored, "shop.Node").columns()
    assert Messages(stored, "shop.Node", frozenset({"shop.Node"})).columns() == (("next", "JSONB"), ("n", "INT"))
    with pytest.raises(SqlError, match=r"Cannot find message shop.Ordr in schema") as told:
        Messages(stored, "shop.Ordr").columns()
    assert told.value.hint == 'did you mean "shop.Order"?'
    with pytest.raises(SqlError, match="not a descriptor set"):
        Messages(base64.b64encode(b"no").decode(), "shop.Order").columns()
    with pytest.raises(SqlError, match="cannot be compiled"):
        compiled("message")


def message(stored: str, **values: Any) -> Any:
    """A message of the library's own class."""
    messages = Messages(stored, "shop.Order")
    return message_factory.GetMessageClass(messages.descriptor)(**values)


def test_values_are_those_that_were_written(stored: str) -> None:
    names = [name for name, _ in Messages(stored, "shop.Order").columns()]
    read = Messages(stored, "shop.Order").reader(names, is_framed=False)
    packed = any_pb2.Any()
    packed.Pack(wrappers_pb2.StringValue(value="x"))
    full = message(
        stored, id=-5, big=2**64 - 1, note="", state=1, prices=[1.5, -2.0], counts={"b": 2, "a": 1},
        place={"city": "Ulm", "zip": -1}, raw=b"\0\xff", at={"seconds": 5, "nanos": 6},
        more={"type_url": "", "value": b""},
        lines=[{"sku": "a"}, {"sku": "b", "n": 0}], f=0.5, u=2**32 - 1,
    )  # fmt: skip
    row = read(full.SerializeToString())
    assert row.pop("more") == "{}"
    assert row == {
        "id": -5, "big": Decimal(2**64 - 1), "note": "", "state": "PAID", "prices": [1.5, -2.0],
        "counts": [("a", 1), ("b", 2)], "place": {"city": "Ulm", "zip": -1}, "yes": None, "raw": b"\0\xff",
        "at": {"seconds": 5, "nanos": 6}, "lines": [{"sku": "a", "n": None}, {"sku": "b", "n": 0}], "f": 0.5,
        "u": 2**32 - 1,
    }  # fmt: skip
    empty = read(b"")
    assert (empty["id"], empty["big"], empty["note"], empty["state"], empty["place"]) == (0, 0, None, "NEW", None)
    assert (empty["yes"], empty["raw"], empty["prices"], empty["counts"]) == (None, None, [], [])


def test_frames_and_what_cannot_be_read(stored: str) -> None:
    read = Messages(stored, "shop.Order").reader(["id"], is_framed=True)
    data = message(stored, id=7).SerializeToString()
    for indexes in (b"\0", b"\x02\0", b"\x04\x02\0"):
        assert read(b"\0\0\0\0\1" + indexes + data) == {"id": 7}
    for bad, reason in (
        (b"x", "magic byte"),
        (b"\0\0\0", "4-byte schema ID"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff", "message indexes"),
        (b"\0\0\0\0\1\0\x08", "not a message shop.Order"),
    ):
        with pytest.raises(NoMessageError, match=reason):
            read(bad)
    unknown = Messages(stored, "shop.Order").reader(["state"], is_framed=False)
    with pytest.raises(NoMessageError, match=r"shop.Order.state has no value 7"):
        unknown(message(stored, state=7).SerializeToString())


SEVERAL = """
syntax = "proto3";
package shop;
message Order { int32 id = 1; }
message Payment {
  int32 amount = 1;
  map<string, int32> fees = 2;
  message Card { int32 number = 1; }
}
"""


def test_a_message_of_another_type_is_no_row() -> None:
    """Messages of different types often have the same bytes: only the frame tells them apart."""
    stored = compiled(SEVERAL)
    types: dict[bytes, Any] = {b"\0\0\0\0\1": written_types(stored), b"\0\0\0\0\2": "schema 2 cannot be read: why"}
    data = b"\x08\x07"

    def read(name: str, head: bytes) -> dict[str, Any]:
        column = {"shop.Order": "id", "shop.Payment": "amount"}.get(name, "number")
        return Messages(stored, name).reader([column], is_framed=True, types=types)(head + data)

    for head in (b"\0\0\0\0\1\0", b"\0\0\0\0\1\2\0"):
        assert read("shop.Order", head) == {"id": 7}
        with pytest.raises(
            NoMessageError, match=r"according to schema 1, the record is a message shop.Order, not a message shop.P"
        ):
            read("shop.Payment", head)
    assert read("shop.Payment", b"\0\0\0\0\1\2\2") == {"amount": 7}
    # The message that protoc makes for a map is counted by some writers.
    for path in (b"\4\2\0", b"\4\2\2"):
        assert read("shop.Payment.Card", b"\0\0\0\0\1" + path) == {"number": 7}
    for head, reason in (
        (b"\0\0\0\0\1\2\4", "the record is no message of that schema, not a message shop.Order"),
        (b"\0\0\0\0\2\0", "schema 2 cannot be read: why"),
        (b"\0\0\0\0\3\0", "schema 3 is not in the registry"),
    ):
        with pytest.raises(NoMessageError, match=reason):
            read("shop.Order", head)


WIDE = """
syntax = "proto3";
package wide;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/timestamp.proto";
message Event { int32 id = 1; google.protobuf.Any more = 2; Inner inner = 3; }
message Inner {
  google.protobuf.Timestamp at = 1;
  google.protobuf.Duration took = 2;
  google.protobuf.FieldMask mask = 3;
}
"""
OLD = """
syntax = "proto2";
package old;
message Row {
  optional int32 id = 1;
  optional string name = 2;
  repeated string tags = 3;
  map<string, string> words = 4;
  optional Part part = 5;
  message Part { required int32 n = 1; optional string word = 2; }
}
"""
BAD = b"\xff"


@pytest.mark.parametrize(
    "values",
    [
        {"inner": {"at": {"seconds": 10**15}}},
        {"inner": {"at": {"nanos": -1}}},
        {"inner": {"took": {"seconds": 10**15}}},
        {"inner": {"mask": {"paths": ["aB"]}}},
        {"more": {"type_url": "t/wide.Inner", "value": BAD}},
        {"more": {"type_url": "t/none.Inner", "value": b""}},
        {"more": {"type_url": "t/google.protobuf.Timestamp", "value": b"\x08\xff\xff\xff\xff\xff\xff\x7f"}},
    ],
)
def test_what_json_cannot_express_is_an_error_of_its_record(values: dict[str, Any]) -> None:
    messages = Messages(compiled(WIDE), "wide.Event", frozenset({"wide.Inner"}))
    data = message_factory.GetMessageClass(messages.descriptor)(id=1, **values).SerializeToString()
    with pytest.raises(NoMessageError, match="a message cannot be written as JSON"):
        messages.reader(["id", "more", "inner"], is_framed=False)(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x12\x01" + BAD, "old.Row.name is not UTF-8"),
        (b"\x1a\x01a\x1a\x01" + BAD, "old.Row.tags is not UTF-8"),
        (b"\x22\x06\x0a\x01a\x12\x01" + BAD, "value is not UTF-8"),
        (b"\x22\x06\x0a\x01" + BAD + b"\x12\x01b\x22\x06\x0a\x01a\x12\x01b", "is not UTF-8"),
        (b"\x2a\x05\x08\x01\x12\x01" + BAD, "old.Row.Part.word is not UTF-8"),
        (b"\x2a\x03\x12\x01a", "the message has no value for part.n"),
    ],
)
def test_what_proto2_lets_a_writer_send(data: bytes, reason: str) -> None:
    """proto2 checks neither the text of strings nor, in this library, that required fields exist."""
    read = Messages(compiled(OLD), "old.Row").reader(["id", "name", "tags", "words", "part"], is_framed=False)
    good = read(b"\x12\x02\xc3\xa4\x22\x06\x0a\x01a\x12\x01b\x2a\x02\x08\x05")
    assert good == {
        "id": None, "name": "\u00e4", "tags": [], "words": [("a", "b")], "part": {"n": 5, "word": None}
    }  # fmt: skip
    with pytest.raises(NoMessageError, match=reason):
        read(data)
