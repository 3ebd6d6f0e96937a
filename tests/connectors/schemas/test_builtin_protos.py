"""Protobuf schemas that import the files of Confluent's registry, and schemas that cannot be compiled."""

from __future__ import annotations

import base64
import importlib

import pytest
from google.protobuf import descriptor_pb2

from rw_sql.connectors.schemas.builtin_protos import builtin_protos
from rw_sql.connectors.schemas.protobuf import Messages, compiled
from rw_sql.errors import SqlError

PRICED = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/date.proto";
message Order {
  google.type.Date day = 1;
  confluent.type.Decimal price = 2 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }] }];
}
"""
GOOGLE = tuple(name for name in builtin_protos() if name.startswith("google/"))


def descriptors(stored: str) -> descriptor_pb2.FileDescriptorSet:
    found = descriptor_pb2.FileDescriptorSet()
    found.ParseFromString(base64.b64decode(stored))
    return found


def without_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """Removes the names of the fields in JSON, which only protoc adds."""
    for field in message.field:
        field.ClearField("json_name")
    for inner in message.nested_type:
        without_json_names(inner)


def test_a_schema_imports_the_files_of_the_registry_without_references() -> None:
    assert dict(Messages(compiled(PRICED), "shop.Order").columns()) == {
        "day": 'STRUCT<"year" INT, "month" INT, "day" INT>',
        "price": 'STRUCT<"value" BYTEA, "precision" BIGINT, "scale" INT>',
    }


def test_a_reference_takes_precedence_over_the_file_of_the_registry() -> None:
    own = 'syntax = "proto3"; package google.type; message Date { string text = 1; }'
    stored = compiled(PRICED, (("google/type/date.proto", own),))
    assert dict(Messages(stored, "shop.Order").columns())["day"] == 'STRUCT<"text" CHARACTER VARYING>'


@pytest.mark.parametrize("name", GOOGLE)
def test_the_fields_are_those_of_google(name: str) -> None:
    module = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    theirs = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(theirs)
    stored = compiled(f'syntax = "proto3"; import "{name}";')
    ours = next(file for file in descriptors(stored).file if file.name == name)
    for message in ours.message_type:
        without_json_names(message)
    assert list(ours.message_type) == list(theirs.message_type)
    assert list(ours.enum_type) == list(theirs.enum_type)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; import "nosuch/x.proto"; message M { int32 a = 1; }', "nosuch/x.proto: File not found."),
        ('syntax = "proto3";\nmessage M { int32 a = ; }', "line 2: Expected field number."),
    ],
)
def test_the_message_contains_the_reason_of_protoc(text: str, reason: str) -> None:
    with pytest.raises(SqlError) as told:
        compiled(text)
    assert told.value.message == f"the Protobuf schema cannot be compiled: {reason}"


def test_a_descriptor_set_without_its_imports_is_refused() -> None:
    whole = descriptors(compiled(PRICED))
    alone = descriptor_pb2.FileDescriptorSet(file=[whole.file[-1]])
    messages = Messages(base64.b64encode(alone.SerializeToString()).decode(), "shop.Order")
    for _ in range(2):
        with pytest.raises(SqlError) as told:
            messages.columns()
        assert told.value.code == "RW212"
        assert told.value.message.startswith("the descriptor set is not complete: ")
        assert told.value.hint == "protoc --include_imports --descriptor_set_out=schema.pb schema.proto makes one"
