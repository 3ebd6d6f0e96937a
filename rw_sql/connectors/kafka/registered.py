"""Records of a Kafka sink with a schema registry: Avro in Confluent's frame, with separate schemas for key and
value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.formats import MESSAGE
from rw_sql.connectors.schemas.avro_writing import encoded_rows, namespace_of, schema_of
from rw_sql.connectors.schemas.client import RefusedSchemaError, RegistryClient, RegistryError
from rw_sql.connectors.schemas.options import client_options, subject_of
from rw_sql.connectors.sink import APPEND_ONLY, DELETE, OP, UPDATE_BEFORE, SinkError, SinkLook, TargetUnfitError
from rw_sql.connectors.support.sink_values import python_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from rw_sql.connectors.sink import SinkShape


@dataclass(frozen=True, slots=True)
class RegisteredSchemas:
    """The schemas of a sink's values and keys, with their subjects. ``key`` is None for records without a key."""

    value_subject: str
    value: Mapping[str, Any]
    key_subject: str
    key: Mapping[str, Any] | None

    @staticmethod
    def of(shape: SinkShape, topic: str) -> RegisteredSchemas:
        """The schemas for a sink's columns. Raises SqlError for a column that Avro cannot represent."""
        given = dict(shape.encode_options)
        space, _, name = given.get(MESSAGE, "").rpartition(".")
        space = space if name else namespace_of(topic)
        columns = shape.columns
        return RegisteredSchemas(
            subject_of(given, topic),
            schema_of(name or "Value", space, columns),
            # As Confluent's own serializers name it, whatever the strategy of values is.
            f"{topic}-key",
            schema_of("Key", space, {key: columns[key] for key in shape.keys}) if shape.keys else None,
        )

    @property
    def pairs(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The subjects and schemas to register."""
        return [(self.value_subject, self.value), *([(self.key_subject, self.key)] if self.key is not None else [])]


def look(options: Mapping[str, str], shape: SinkShape, topic: str) -> SinkLook:
    """Checks that the registry answers and would accept the schemas, without registering them."""
    client = RegistryClient(client_options(options))
    try:
        for subject, schema in RegisteredSchemas.of(shape, topic).pairs:
            reason = client.incompatibility(subject, "AVRO", json.dumps(schema))
            if reason is not None:
                return SinkLook(
                    misfit=f'the schema is not compatible with subject "{subject}": {reason}',
                    hint="select columns that fit the registered schema, or write to another topic",
                )
    except RegistryError as error:
        return SinkLook(error=f"the schema registry: {error}")
    return SinkLook()


class RegisteredRecords:
    """Encodes the rows of batches as records.

    The constructor registers the schemas and raises SinkError if that fails.
    """

    def __init__(self, options: Mapping[str, str], shape: SinkShape, topic: str) -> None:
        self._shape = shape
        self._schemas = RegisteredSchemas.of(shape, topic)
        client = RegistryClient(client_options(options))
        try:
            ids = [client.register(subject, "AVRO", json.dumps(schema)) for subject, schema in self._schemas.pairs]
        except RefusedSchemaError as error:
            raise TargetUnfitError(f"the registry refuses the schema: {error}") from error
        except RegistryError as error:
            raise SinkError(f"the schema registry does not answer: {error}") from error
        self._heads = [b"\0" + id_.to_bytes(4, "big") for id_ in ids]

    def numbered(self, rows: pa.Table) -> Iterator[tuple[int, tuple[bytes | None, bytes | None]]]:
        """The records (key, value) of a batch, each with the index of its row. Raises RefusedRowsError."""
        shape, schemas = self._shape, self._schemas
        operations = rows.column(OP).to_pylist()
        values = encoded_rows(schemas.value, [python_values(rows.column(n), n) for n in shape.columns], self._heads[0])
        keys: Iterator[bytes | None] = iter([None] * rows.num_rows)
        if schemas.key is not None:
            keys = encoded_rows(schemas.key, [python_values(rows.column(n), n) for n in shape.keys], self._heads[1])
        for index, (operation, key, value) in enumerate(zip(operations, keys, values, strict=True)):
            if operation == UPDATE_BEFORE or (operation == DELETE and shape.type == APPEND_ONLY):
                continue
            yield index, (key, None if operation == DELETE else value)
