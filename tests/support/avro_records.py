"""Writes records as a writer with a schema registry does: registered schemas, and Avro by its own library."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastavro

from rw_sql.cli.servers.kafka_topics import Record
from rw_sql.connectors.schemas.client import RegistryClient

if TYPE_CHECKING:
    from collections.abc import Mapping


def parsed(schema: Any) -> Any:
    """A schema in the form that fastavro uses; ``schema`` itself is not changed."""
    return fastavro.parse_schema(json.loads(json.dumps(schema)))


def encoded(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary form, without a frame."""
    into = io.BytesIO()
    fastavro.schemaless_writer(into, parsed(schema), value)
    return into.getvalue()


def decoded(data: bytes, writer: Any, reader: Any) -> Any:
    """The value that fastavro reads from ``data``, which was written with the schema ``writer``, by the schema
    ``reader``."""
    return fastavro.schemaless_reader(io.BytesIO(data), parsed(writer), parsed(reader))


@dataclass(slots=True)
class AvroWriter:
    """A writer that registers its schemas, and puts their ids before its records."""

    url: str
    ids: dict[tuple[str, str], int] = field(default_factory=dict)

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """The id of a schema under a subject."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if (subject, text) not in self.ids:
            self.ids[subject, text] = RegistryClient({"schema.registry": self.url}).register(subject, kind, text)
        return self.ids[subject, text]

    def framed(self, subject: str, schema: Any, value: Any) -> bytes:
        """A value in Confluent's frame."""
        return b"\0" + self.register(subject, schema).to_bytes(4, "big") + encoded(schema, value)

    def record(
        self,
        topic: str,
        schema: Any,
        value: Any,
        *,
        key: tuple[Any, Any] | None = None,
        raw_key: bytes | None = None,
        partition: int | None = None,
    ) -> Record:
        """A record. ``key`` consists of the schema and the value of the record's key. A record without a value is a
        tombstone."""
        written = raw_key if key is None else self.framed(f"{topic}-key", *key)
        framed = None if value is None else self.framed(f"{topic}-value", schema, value)
        return Record(value=framed, key=written, partition=partition)


def record_schema(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record's schema. A field is a type, or a dict with ``type`` and ``default``."""
    listed = [
        {"name": key, **(kind if isinstance(kind, dict) and "default" in kind else {"type": kind})}
        for key, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": listed}
