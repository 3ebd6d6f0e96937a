"""Finds the writer schemas of records, and adapts the source's schema to each writer schema."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.schemas import avro, connect_types
from rw_sql.connectors.schemas.client import RegistryClient, RegistryError
from rw_sql.connectors.schemas.logical_types import decimal_of, logical_of
from rw_sql.connectors.schemas.options import client_options, subject_of
from rw_sql.errors import SqlError
from rw_sql.model.definitions import encode_options
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rw_sql.connectors.schemas.client import RegisteredSchema
    from rw_sql.syntax.statements import CreateSource

HEAD_BYTES = 5
"""The length in bytes of a record's *head*, the first part of a record in Confluent's frame. The head consists of a
zero byte and the schema's id."""

WriterIdentity = tuple[bytes, str, str, str | None]

_GRACE_SECONDS = 1.0
"""If the registry lacks an id, a batch repeats the lookup until this number of seconds after this process's first
lookup of the id. The repetition is needed because a registry's server may not find a schema immediately after its
registration."""

_LOOK_SECONDS = 0.1

_MOST_LOOKS = 10_000

_first_looks: dict[tuple[str, int], float] = {}
"""Maps a registry's addresses and an id that this registry lacks to the time when this process first looked up the
id."""

_NOT_KNOWN = r"(?:the key: )?schema ([0-9]+) is not in the registry"


def head_of(id_: int) -> bytes:
    """The head of a record that was written with the schema ``id_``."""
    return b"\0" + id_.to_bytes(4, "big")


_GREATEST_ID = 2**31 - 1
"""Registries number schemas with signed 32-bit integers. If an id is greater, some registries respond with the error
that they also return for a wrong address."""


def id_of(head: bytes) -> int | None:
    """The schema's id in a record's head; None if ``head`` is not Confluent's frame."""
    return int.from_bytes(head[1:], "big") if len(head) == HEAD_BYTES and head[0] == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One writer schema of the registry. ``text`` is the schema. ``reading`` is the reader's schema with the writer's
    time units and decimal scales.

    ``refusal`` is the reason why records with this schema cannot be read; None if they can be read. ``types`` maps each
    path in a Protobuf schema to the names of the message types with this path.
    """

    head: bytes
    text: str = ""
    reading: str = ""
    refusal: str | None = None
    types: Mapping[tuple[int, ...], tuple[str, ...]] = field(default_factory=dict)

    @property
    def identity(self) -> WriterIdentity:
        """A value that is equal for two Avro writers whose records are read in the same way."""
        return self.head, self.text, self.reading, self.refusal


@dataclass(slots=True)
class Writers:
    """The writers of one topic's values or keys. ``reader`` is the source's schema in normal form."""

    client: RegistryClient
    reader: avro.Schema
    _known: dict[bytes, Writer] = field(default_factory=dict)
    _schemas: dict[bytes, RegisteredSchema] = field(default_factory=dict)

    @staticmethod
    def of(options: Mapping[str, str], reader: avro.Schema) -> Writers:
        """Returns the writers for a source. ``options`` are the source's options, with the values of secrets. The
        result does not know any writer yet."""
        return Writers(RegistryClient(client_options(options)), reader)

    @property
    def heads(self) -> tuple[bytes, ...]:
        """The heads of the records of all writers that are known so far."""
        return tuple(self._known)

    def known(self, heads: Iterable[bytes]) -> tuple[Writer, ...]:
        """Returns the writers for all ``heads`` whose schemas the registry has, ordered by head.

        If the registry lacked an id in an earlier call, this call looks the id up again, because its schema may have
        been registered in the meantime. If the registry was re-created and has another schema under an id, the id's
        writer changes. Raises StalledError if the registry does not respond, because records must not become errors
        while the registry is not available.
        """
        asked = sorted(set(heads))
        missing = [head for head in asked if not self._look_up(head)]
        while missing := [head for head in missing if self._is_new(head)]:
            time.sleep(_LOOK_SECONDS)
            missing = [head for head in missing if not self._look_up(head)]
        return tuple(self._known[head] for head in asked if head in self._known)

    def add_versions(self, subject: str) -> None:
        """Loads all versions of a subject. Raises StalledError in the same case as :meth:`known`."""
        try:
            ids = self.client.ids_of(subject)
        except RegistryError as error:
            raise _stalled(error) from error
        self.known(head_of(id_) for id_ in ids)

    def _look_up(self, head: bytes) -> bool:
        """Looks up the schema of a head. Returns False if the registry lacks the schema, otherwise True. The result is
        also True if there is nothing to look up, because the head is not Confluent's or its id is greater than any id
        that a registry assigns."""
        id_ = id_of(head)
        if id_ is None or id_ > _GREATEST_ID:
            return True
        try:
            schema = self.client.schema(id_)
        except RegistryError as error:
            raise _stalled(error) from error
        if schema is None:
            if len(_first_looks) >= _MOST_LOOKS:
                _first_looks.clear()
            _first_looks.setdefault(self._key(id_), time.monotonic())
            return False
        _first_looks.pop(self._key(id_), None)
        if self._schemas.get(head) != schema:
            self._known[head] = self._made(head, id_, schema.kind, schema.text, schema.imports)
            self._schemas[head] = schema
        return True

    def _is_new(self, head: bytes) -> bool:
        """True if this process first looked up a missing id less than ``_GRACE_SECONDS`` ago."""
        first = _first_looks.get(self._key(id_of(head) or 0))
        return first is not None and time.monotonic() < first + _GRACE_SECONDS

    def _key(self, id_: int) -> tuple[str, int]:
        return ",".join(self.client.addresses), id_

    def _made(self, head: bytes, id_: int, kind: str, text: str, imports: tuple[tuple[str, str], ...]) -> Writer:
        if kind != "AVRO":
            return Writer(head=head, refusal=f"schema {id_} is {kind}, not AVRO")
        try:
            schema = avro.normal_form(text, imports)
        except SqlError as error:
            return Writer(head=head, refusal=f"schema {id_} cannot be read: {error.message}")
        alignment = Alignment(avro.definitions(self.reader), avro.definitions(schema))
        reading = alignment.aligned(self.reader, schema, "")
        refusal = f"schema {id_} cannot be read: {alignment.refusal}" if alignment.refusal else None
        return Writer(head=head, text=json.dumps(schema), reading=json.dumps(reading), refusal=refusal)


def subjects_of(statement: CreateSource, options: Mapping[str, str], *, is_key: bool = False) -> tuple[str, ...]:
    """Returns the distinct subjects of a source's values or, if ``is_key`` is true, of a source's keys."""
    topics = [topic.strip() for topic in options.get("topic", "").split(",") if topic.strip()]
    return tuple(dict.fromkeys(subject_of(encode_options(statement), topic, is_key=is_key) for topic in topics))


def heads_in(records: pa.Table, columns: Sequence[str]) -> frozenset[bytes]:
    """The distinct heads of records that are in this process's memory."""
    import pyarrow.compute as pc

    found: set[bytes] = set()
    for name in columns:
        heads = pc.unique(pc.binary_slice(records[name].combine_chunks(), 0, HEAD_BYTES))
        found.update(head for head in heads.to_pylist() if head is not None)
    return frozenset(found)


def heads_of(records: DataFrame, columns: Sequence[str]) -> frozenset[bytes]:
    """The distinct heads of a DataFrame's records. Reads the records."""
    heads = [f.substring(name, 1, HEAD_BYTES) for name in columns]
    found = records.select(f.explode(f.array(*heads)).alias("head")).distinct().collect()
    return frozenset(bytes(row["head"]) for row in found if row["head"] is not None)


def unknown_heads(faults: Iterable[str | None], readers: Sequence[Writers]) -> frozenset[bytes]:
    """Returns the heads of those schemas that ``faults`` report as missing although a registry has them.

    Raises StalledError if the registry does not respond.
    """
    ids = {int(m[1]) for fault in set(faults) if fault is not None and (m := re.fullmatch(_NOT_KNOWN, fault))}
    asked = frozenset(head_of(id_) for id_ in ids)
    return frozenset(writer.head for reader in readers for writer in reader.known(asked))


def _stalled(error: RegistryError) -> StalledError:
    return StalledError(f"REGISTRY does not answer: {error}")


@dataclass(slots=True)
class Alignment:
    """Adapts a reader's schema to the time units and decimal scales of a writer's schema.

    Avro's schema resolution ignores logical types. Without the adaptation, it would interpret a writer's milliseconds
    as the reader's microseconds.
    """

    readers: Mapping[str, avro.Schema]
    writers: Mapping[str, avro.Schema]
    refusal: str | None = None
    _pairs: dict[str, avro.Schema] = field(default_factory=dict)

    def aligned(self, reader: avro.Schema, writer: avro.Schema, path: str) -> avro.Schema:
        """Returns the reader's schema with the writer's units and scales."""
        # A record type may be defined in a field that the writer lacks, and be used in another field.
        self._pair(reader, writer)
        return self._adapted(reader, writer, path)

    def _pair(self, reader: avro.Schema, writer: avro.Schema | None) -> None:
        """Pairs each record type of the reader's schema with the record type of the writer's schema that Avro reads as
        this type."""
        reader, writer = self._of_reader(reader), self._like(reader, writer)
        if isinstance(reader, list):
            for branch in reader:
                self._pair(branch, _branches(writer))
        if not isinstance(reader, dict) or not isinstance(writer, dict):
            return
        match reader["type"], writer["type"]:
            case "record", "record" if reader["name"] not in self._pairs:
                self._pairs[reader["name"]] = writer
                for each in reader["fields"]:
                    self._pair(each["type"], _written(each, writer))
            case "array", "array":
                self._pair(reader["items"], writer["items"])
            case "map", "map":
                self._pair(reader["values"], writer["values"])

    def _adapted(self, reader: avro.Schema, writer: avro.Schema | None, path: str) -> avro.Schema:
        """Returns the reader's schema with the units and scales of ``writer``. The fields of a record type get the
        units and scales of the record type with which :meth:`_pair` has paired it."""
        writer = self._like(reader, writer)
        if isinstance(reader, list):
            return self._adapted_union(reader, _branches(writer), path)
        if not isinstance(reader, dict):
            return reader  # A record type is adapted where it is defined.
        found = writer if isinstance(writer, dict) and writer["type"] == reader["type"] else {}
        match reader["type"]:
            case "record":
                paired = self._pairs.get(reader["name"])
                fields = [
                    {**each, "type": self._adapted(each["type"], _written(each, paired), _joined(path, each["name"]))}
                    for each in reader["fields"]
                ]
                return {**reader, "fields": fields}
            case "array":
                return {**reader, "items": self._adapted(reader["items"], found.get("items"), path)}
            case "map":
                return {**reader, "values": self._adapted(reader["values"], found.get("values"), path)}
        return self._leaf(reader, writer, path) if writer is not None else reader

    def _adapted_union(
        self, reader: Sequence[avro.Schema], writer: Sequence[avro.Schema], path: str
    ) -> list[avro.Schema]:
        """Adapts the branches of a reader's union. Avro reads a writer's branch as the reader's branch of the same
        type. If the reader has no such branch, Avro reads the writer's branch as a reader's branch of a wider type."""
        kinds = [_base(self._of_reader(branch)) for branch in reader]
        adapted = []
        for kind, branch in zip(kinds, reader, strict=True):
            read = [each for each in writer if (had := _base(self._of_writer(each))) == kind or had not in kinds]
            adapted.append(self._adapted(branch, read, path))
        return adapted

    def _of_reader(self, schema: avro.Schema) -> avro.Schema:
        return self.readers.get(schema, schema) if isinstance(schema, str) else schema

    def _of_writer(self, schema: avro.Schema) -> avro.Schema:
        return self.writers.get(schema, schema) if isinstance(schema, str) else schema

    def _like(self, reader: avro.Schema, writer: avro.Schema | None) -> avro.Schema | None:
        """Returns the part of the writer's schema that Avro reads as the reader's schema. If only ``writer`` is a
        union, the result is the branch that fits. Otherwise, the result is ``writer``.

        As in Avro's library, a record type in the writer's union may match although its name differs from the reader's
        name. Its name may be one of the reader's aliases, or the reader's name in another namespace. As a last resort,
        a record type with any name matches. If its name is neither the reader's name nor an alias, a record type
        matches only if the reader's schema lacks its name and the writer's schema lacks the reader's name.
        """
        reader, writer = self._of_reader(reader), self._of_writer(writer)
        if isinstance(reader, list) or not isinstance(writer, list):
            return writer
        branches = [self._of_writer(branch) for branch in writer]
        base = _base(reader)
        if base != "record":
            fits = (base, *{"long": ("int",), "bytes": ("fixed",)}.get(base, ()))
            return next((branch for kind in fits for branch in branches if _base(branch) == kind), None)
        records = {branch["name"]: branch for branch in branches if _base(branch) == "record"}
        name, aliases = reader["name"], reader.get("aliases", ())
        others = [other for other in records if other not in self.readers and name not in self.writers]
        namesakes = [other for other in others if other.rpartition(".")[2] == name.rpartition(".")[2]]
        return next((records[other] for other in (name, *aliases, *namesakes, *others) if other in records), None)

    def _leaf(self, reader: avro.Schema, writer: avro.Schema, path: str) -> avro.Schema:
        names = [connect_types.connect_name(each) for each in (reader, writer)]
        if any(names) and connect_types.count_of(reader) != connect_types.count_of(writer):
            # Avro would read the number, and the column would contain a wrong time.
            self.refusal = f"{path} is {_told(writer)}, which does not fit {_told(reader)}"
            return reader
        one, other = logical_of(reader), logical_of(writer)
        if one is None or other is None or reader == writer:
            return reader
        if one == other:
            return self._decimal(reader, writer, path) if one == "decimal" else reader
        kinds = [(connect_types.TIMES_OF_LOGICAL.get(each) or (each, 0))[0] for each in (one, other)]
        if kinds[0] != kinds[1]:
            self.refusal = f"{path} is {other}, which does not fit {one}"
            return reader
        # A time without a zone and a point in time are both counted from 1970 in UTC. The result therefore has the
        # reader's type with the writer's unit.
        return {**reader, "logicalType": f"{one.rpartition('-')[0]}-{other.rpartition('-')[2]}"}

    def _decimal(self, reader: avro.Schema, writer: avro.Schema, path: str) -> avro.Schema:
        (precision, scale), (had, had_scale) = decimal_of(reader) or (0, 0), decimal_of(writer) or (0, 0)
        if scale == had_scale:
            return reader
        if had_scale > scale or had - had_scale > precision - scale:
            self.refusal = f"{path} is decimal({had}, {had_scale}), which does not fit decimal({precision}, {scale})"
            return reader
        return {**reader, "precision": had, "scale": had_scale}


def _told(schema: avro.Schema) -> str:
    """The most specific name of a type, for use in messages."""
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema.get("connect.name") or schema.get("logicalType") or schema["type"])


def _written(field: Mapping[str, avro.Schema], writer: avro.Schema | None) -> avro.Schema | None:
    """Returns the type that a reader's field has in the writer's record. The field is found by its name or by an alias.
    Returns None if the writer's record lacks the field."""
    if writer is None:
        return None
    types = {each["name"]: each["type"] for each in writer["fields"]}
    return next((types[name] for name in (field["name"], *field.get("aliases", ())) if name in types), None)


def _branches(schema: avro.Schema | None) -> list[avro.Schema]:
    if schema is None:
        return []
    return schema if isinstance(schema, list) else [schema]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _base(schema: avro.Schema) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)
