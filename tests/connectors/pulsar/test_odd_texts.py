"""Messages whose key or properties are not UTF-8. Without a broker."""

from __future__ import annotations

from typing import Any

from rw_sql.connectors.pulsar.reader import raw_message, table_of


class MessageId:
    """A message's id, as pulsar-client returns it."""

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return 2

    def batch_index(self) -> int:
        return -1

    def serialize(self) -> bytes:
        return b"id"

    def __str__(self) -> str:
        return "(1,2,0,-1)"


class Message:
    """A message of pulsar-client, which decodes texts when they are asked for."""

    def __init__(self, key: bytes, properties: dict[bytes, bytes]) -> None:
        self._key, self._properties = key, properties

    def message_id(self) -> MessageId:
        return MessageId()

    def has_null_value(self) -> bool:
        return False

    def data(self) -> bytes:
        return b"value"

    def partition_key(self) -> str:
        return self._key.decode()

    def properties(self) -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in self._properties.items()}

    def publish_timestamp(self) -> int:
        return 1000


def test_a_key_or_properties_that_are_not_utf_8_are_null() -> None:
    messages: list[Any] = [
        Message(b"k", {b"a": b"1"}),
        Message(b"\xff", {b"a": b"2"}),
        Message(b"l", {b"a": b"3", b"b": b"\xff"}),
        Message(b"", {b"\xff": b"4"}),
    ]
    table = table_of("t", [raw_message(each) for each in messages])
    assert table["key"].to_pylist() == [b"k", None, b"l", None]
    assert table["headers"].to_pylist() == [[{"key": "a", "value": b"1"}], [{"key": "a", "value": b"2"}], None, None]
    assert table["value"].to_pylist() == [b"value"] * 4
