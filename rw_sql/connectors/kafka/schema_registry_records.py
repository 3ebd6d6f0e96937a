"""Encodes the records of a Kafka sink with a schema registry. The records are Avro, Protobuf or JSON in Confluent's
frame, with separate schemas for key and value."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.formats import MESSAGE
from rw_sql.connectors.schemas import avro_writing, json_schema_writing, protobuf_writing
from rw_sql.connectors.schemas.client import VERIFY_SECONDS, RefusedSchemaError, RegistryClient, RegistryError
from rw_sql.connectors.schemas.options import client_options, needs_schema, subject_of
from rw_sql.connectors.schemas.unwritable import UnwritableError
from rw_sql.connectors.sink import (
    APPEND_ONLY,
    DELETE,
    OP,
    UPDATE_BEFORE,
    Refusal,
    RefusedRowsError,
    SinkError,
    SinkLook,
    TargetUnfitError,
)
from rw_sql.connectors.support.sink_values import json_rows, plain_keys, python_values, to_json, without_deleted_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from rw_sql.connectors.sink import SinkShape

    Encode = Callable[[bytes, Any], bytes]
    """Makes the bytes of a record from its first bytes (Confluent's frame) and the row's values."""


def has_registry(shape: SinkShape) -> bool:
    """True if the encoding of a sink's records needs schemas in a registry."""
    return needs_schema(shape.encode or "", dict(shape.encode_options))


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """The schema of values or keys: its subject, its text, and the columns that it describes."""

    subject: str
    text: str
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RegisteredSchemas:
    """The schemas of a sink's values and keys. ``key`` is None if the records have no key, or if the key is plain text
    or bytes. ``kind`` is the registry's word for the encoding."""

    kind: str
    value: RegisteredSchema
    key: RegisteredSchema | None

    @staticmethod
    def of(shape: SinkShape, topic: str) -> RegisteredSchemas:
        """The schemas for a sink's columns. Raises SqlError for a column that the encoding cannot represent."""
        given = dict(shape.encode_options)
        space, _, name = given.get(MESSAGE, "").rpartition(".")
        space = space if name else avro_writing.namespace_of(topic)
        kind = shape.encode or ""
        keys = {} if shape.key_encode is not None else {key: shape.columns[key] for key in shape.keys}
        return RegisteredSchemas(
            kind,
            RegisteredSchema(
                subject_of(given, topic), _text(kind, name or "Value", space, shape.columns), shape.columns
            ),
            # Confluent's own serializers use this name for the keys' subject too, regardless of the strategy for the
            # values' subject.
            RegisteredSchema(f"{topic}-key", _text(kind, "Key", space, keys), keys) if keys else None,
        )

    @property
    def both(self) -> list[RegisteredSchema]:
        """The schema of the values and, if there is one, the schema of the keys."""
        return [self.value, *([self.key] if self.key is not None else [])]


def _text(kind: str, name: str, space: str, columns: Mapping[str, Any]) -> str:
    match kind:
        case "AVRO":
            return json.dumps(avro_writing.schema_of(name, space, columns))
        case "PROTOBUF":
            return protobuf_writing.schema_text(f"{space}.{name}".lstrip("."), columns)
        case _:
            return json_schema_writing.schema_text(f"{space}.{name}".lstrip("."), columns)


def look(options: Mapping[str, str], shape: SinkShape, topic: str) -> SinkLook:
    """Checks that the registry responds and would accept the schemas, without registering them."""
    client = RegistryClient(client_options(options))
    schemas = RegisteredSchemas.of(shape, topic)
    try:
        for schema in schemas.both:
            reason = client.incompatibility(schema.subject, schemas.kind, schema.text)
            if reason is not None:
                return SinkLook(
                    misfit=f'the schema is not compatible with subject "{schema.subject}": {reason}',
                    hint="select columns that fit the registered schema, or write to another topic",
                )
    except RegistryError as error:
        return SinkLook(error=f"the schema registry: {error}")
    return SinkLook()


class RegisteredRecords:
    """Encodes the rows of batches as records.

    The constructor registers the schemas, and raises SinkError if they cannot be registered. The schemas are registered
    again every VERIFY_SECONDS, because a re-created registry lacks the schemas, or has them under different ids.
    """

    def __init__(self, options: Mapping[str, str], shape: SinkShape, topic: str) -> None:
        self._shape = shape
        self._schemas = RegisteredSchemas.of(shape, topic)
        self._client = RegistryClient(client_options(options))
        try:
            self._register(is_quick=False)
        except RegistryError as error:
            raise SinkError(f"the schema registry does not answer: {error}") from error
        self._encoders = [_encoder(self._schemas.kind, schema) for schema in self._schemas.both]

    def _register(self, *, is_quick: bool) -> None:
        kind = self._schemas.kind
        self._registered_at = time.monotonic()
        try:
            ids = [
                self._client.register(schema.subject, kind, schema.text, is_quick=is_quick)
                for schema in self._schemas.both
            ]
        except RefusedSchemaError as error:
            raise TargetUnfitError(f"the registry refuses the schema: {error}") from error
        place = protobuf_writing.FIRST_MESSAGE if kind == "PROTOBUF" else b""
        self._heads = [b"\0" + id_.to_bytes(4, "big") + place for id_ in ids]

    def _register_if_due(self) -> None:
        if time.monotonic() < self._registered_at + VERIFY_SECONDS:
            return
        with suppress(RegistryError):  # without a response, the schemas stay in use
            self._register(is_quick=True)

    def numbered(self, rows: pa.Table) -> Iterator[tuple[int, tuple[bytes | None, bytes | None]]]:
        """The records (key, value) of a batch, each with the index of its row.

        Raises RefusedRowsError for rows that the encoding cannot represent. Raises SinkError if a registry that was
        created again refuses the schemas.
        """
        self._register_if_due()
        shape = self._shape
        operations = rows.column(OP).to_pylist()
        given = without_deleted_values(rows, shape.keys)
        values, *given_keys = (self._rows(given, list(schema.columns)) for schema in self._schemas.both)
        keys: Iterator[Any]
        if shape.key_encode is not None:
            keys = iter(plain_keys(rows, shape.keys[0]))
        else:
            keys = given_keys[0] if given_keys else iter([None] * rows.num_rows)
        refused: list[Refusal] = []
        for index, (operation, key, value) in enumerate(zip(operations, keys, values, strict=True)):
            if operation == UPDATE_BEFORE or (operation == DELETE and shape.type == APPEND_ONLY):
                continue
            try:
                record = (
                    key if key is None or shape.key_encode is not None else self._encoders[1](self._heads[1], key),
                    None if operation == DELETE else self._encoders[0](self._heads[0], value),
                )
            except UnwritableError as error:
                refused.append(Refusal(index=index, reason=str(error)))
            else:
                yield index, record
        if refused:
            raise RefusedRowsError(refused)

    def _rows(self, rows: pa.Table, columns: Sequence[str]) -> Iterator[Any]:
        if self._schemas.kind == "JSON":
            return json_rows(rows, columns, with_nan_text=False)
        return zip(*(python_values(rows.column(name), name) for name in columns), strict=True)


def _encoder(kind: str, schema: RegisteredSchema) -> Encode:
    match kind:
        case "AVRO":
            return avro_writing.row_encoder(json.loads(schema.text))
        case "PROTOBUF":
            return protobuf_writing.row_encoder(list(schema.columns.items()))
        case _:
            return _json_record


def _json_record(head: bytes, row: dict[str, Any]) -> bytes:
    try:
        return head + to_json(row)
    except ValueError:  # NaN or infinity: the schema requires a number, but JSON has no such numbers
        column = next(name for name, value in row.items() if not _is_json(value))
        raise UnwritableError(f"{column}: a number of JSON cannot be NaN or infinite") from None


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except ValueError:
        return False
    return True
