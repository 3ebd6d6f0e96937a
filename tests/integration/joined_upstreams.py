"""The upstreams of a join: two topics with Avro records of users, two streams of NATS, and an Iceberg table.

The module stores all written records in Python, and which of these records a source must have read.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, produce
from tests.connectors.iceberg.lake import NAME, Lake
from tests.support.avro_records import AvroWriter, record_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.nats_server import NatsServer

T = TypeVar("T")

_USERS, _LATE_USERS = range(40), range(1000, 1010)
"""The ids of the users. The records of the late users are in the partition that is added to a topic."""

_KEY = record_schema("Key", {"id": "long"})
_OLD_KEY = record_schema("Key", {"id": "int", "part": "string"})
_OLD = record_schema("User", {"id": "int", "name": "string", "score": "int"})
_FIELDS: dict[str, Any] = {
    "id": "long",
    "name": {"type": ["null", "string"], "default": None},
    "score": {"type": "long", "default": 0},
    "tier": {"type": "string", "default": "none"},
}
_ITEMS = pa.schema([("item", pa.int64()), ("price", pa.int64())])
_NO_ID = b"\0\x7f\xff\xff\xff\x02"


def fields_of(stage: int) -> dict[str, Any]:
    """The fields of a user in the schema of a stage. Each stage adds one field with a default."""
    added = {
        f"extra_{at}": {"type": "long", "default": at} if at % 2 else {"type": "string", "default": f"d{at}"}
        for at in range(stage)
    }
    return {**_FIELDS, **added}


def schemas_of(stage: int) -> list[dict[str, Any]]:
    """The schemas of the writers of a stage. The last schema is the table's schema after REFRESH SCHEMA."""
    fields = fields_of(stage)
    wide = {"gone": {"type": "array", "items": "string"}, **dict(reversed(fields.items()))}
    return [_OLD, record_schema("User", wide), record_schema("User", fields)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A record of a user. ``written`` are the written fields, or None for a delete."""

    id: int
    written: Mapping[str, Any] | None

    def row(self, stage: int) -> dict[str, Any] | None:
        """The row that the table makes from the record with the schema of a stage."""
        if self.written is None:
            return None
        found = {}
        for name, kind in fields_of(stage).items():
            found[name] = self.written[name] if name in self.written else kind["default"]
        return found


@dataclass(slots=True)
class Reading(Generic[T]):
    """The expected reads of one source.

    ``splits`` contains all records of the source's upstreams, with None for a record that cannot be decoded. ``first``
    is the offset of a split's first record. ``positions`` are the next offsets of the splits that the source reads.
    ``log`` contains the records that the source has read, each with the stage at the time of the read.
    """

    first: int
    splits: dict[str, list[T | None]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    log: list[tuple[T | None, int]] = field(default_factory=list)

    def end(self, split: str) -> int:
        """The offset after a split's last record."""
        return self.first + len(self.splits[split])

    def begin(self, *splits: str) -> None:
        """Makes the source read only these splits, from their first records."""
        self.positions = dict.fromkeys(splits, self.first)

    def read_on(self, stage: int) -> None:
        """Makes the source read all of its splits to their ends."""
        for split, at in self.positions.items():
            self.log += [(record, stage) for record in self.splits[split][max(0, at - self.first) :]]
            self.positions[split] = self.end(split)

    @property
    def rows(self) -> list[T]:
        """The rows of a table or view to which every record adds one row."""
        return [record for record, _ in self.log if record is not None]

    @property
    def errors(self) -> int:
        """The number of reads of records that cannot be decoded."""
        return sum(record is None for record, _ in self.log)


class JoinedUpstreams:
    """Writes to the upstreams at random. ``name`` begins the names of topics and streams.

    The sources read the first of ``topics`` and the first of ``streams``. ``stage`` is the stage of the writers' newest
    schema.
    """

    def __init__(
        self, *, bootstrap: str, registry: str, nats: NatsServer, folder: Path, name: str, dice: random.Random
    ) -> None:
        self.bootstrap, self.registry, self.nats, self.random = bootstrap, registry, nats, dice
        self.writer = AvroWriter(registry)
        self.topics, self.streams = [f"{name}.a", f"{name}.b"], [f"{name}a", f"{name}b"]
        self.partitions = dict.fromkeys(self.topics, 2)
        self.stage = self.serial = self.items = 0
        self.users: Reading[UserRecord] = Reading(0)
        self.clicks: Reading[tuple[int, int, int]] = Reading(1)
        self.prices: Reading[list[tuple[int, int]]] = Reading(1)
        self.lake = Lake(folder=folder)
        for topic in self.topics:
            create_topic(self.bootstrap, topic, 2)
            self.users.splits |= {f"{topic}:{part}": [] for part in range(2)}
        for stream in self.streams:
            self.nats.create(stream, f"{stream}.>")
            self.clicks.splits[stream] = []
        self.prices.splits[NAME] = []
        self.lake.create(_ITEMS)
        self._register()
        self.read_topic()
        self.read_stream()
        self.prices.begin(NAME)

    def read_topic(self) -> None:
        """Makes the table of users read the first topic, from its first records."""
        topic = self.topics[0]
        self.users.begin(*(f"{topic}:{part}" for part in range(self.partitions[topic])))

    def read_stream(self) -> None:
        """Makes the source of clicks read the first stream, from its first message."""
        self.clicks.begin(self.streams[0])

    def add_partition(self) -> bool:
        """Adds a partition to the first topic. The partition is read from its first record. Returns False if a
        partition was already added to the topic."""
        topic = self.topics[0]
        if self.partitions[topic] > 2:
            return False
        self.partitions[topic] = 3
        add_partitions(self.bootstrap, topic, 3)
        self.users.splits[f"{topic}:2"] = []
        self.users.positions[f"{topic}:2"] = 0
        return True

    def add_field(self) -> None:
        """Makes writers use a new version of their schema from now on."""
        self.stage += 1
        self._register()

    def _register(self) -> None:
        """Registers the schemas of the stage. The table's schema is registered last, because it must be the newest
        schema."""
        for topic in self.topics:
            self.writer.register(f"{topic}-key", _OLD_KEY)
            self.writer.register(f"{topic}-key", _KEY)
            for schema in schemas_of(self.stage):
                self.writer.register(f"{topic}-value", schema)

    def write(self) -> None:
        """Writes some records to each of the upstreams."""
        self._write_users(self.random.choice(self.topics[:1] * 4 + self.topics[1:]))
        stream = self.random.choice(self.streams[:1] * 4 + self.streams[1:])
        messages = [self._click(stream) for _ in range(self.random.randrange(4))]
        self.nats.publish(f"{stream}.x", messages)
        if self.random.random() < 0.4 or not self.items:
            self._append_prices()

    def _write_users(self, topic: str) -> None:
        made = []
        for _ in range(self.random.randrange(5)):
            late = self.partitions[topic] > 2 and self.random.random() < 0.2
            id_ = self.random.choice(_LATE_USERS if late else _USERS)
            part = 2 if late else id_ % 2
            record, raw = self._user(topic, id_, part)
            made.append(raw)
            self.users.splits[f"{topic}:{part}"].append(record)
        produce(self.bootstrap, topic, made)

    def _user(self, topic: str, id_: int, part: int) -> tuple[UserRecord | None, Record]:
        """A record of a user, and the record's bytes, written with a random schema."""
        dice, lot = self.random, self.random.random()
        key = dice.choice([(_KEY, {"id": id_}), (_OLD_KEY, {"id": id_, "part": "x"})])
        if lot < 0.04:
            framed_key = self.writer.framed(f"{topic}-key", *key)
            return None, Record(key=framed_key, value=dice.choice([_NO_ID, b"{}"]), partition=part)
        if lot < 0.2:
            return UserRecord(id=id_, written=None), self.writer.record(topic, None, None, key=key, partition=part)
        self.serial += 1
        value: dict[str, Any] = {
            "id": id_,
            "name": dice.choice([f"name {self.serial}", ""]),
            "score": self.serial,
            "tier": dice.choice(["gold", "silver"]),
            "gone": ["x"] * dice.randrange(3),
            **{f"extra_{at}": self.serial if at % 2 else f"e{self.serial}" for at in range(self.stage)},
        }
        schema = dice.choice(schemas_of(dice.randrange(self.stage + 1)))
        if schema is not _OLD and dice.random() < 0.2:
            value["name"] = None
        written = {each["name"]: value[each["name"]] for each in schema["fields"]}
        return UserRecord(id=id_, written=written), self.writer.record(topic, schema, written, key=key, partition=part)

    def _click(self, stream: str) -> bytes:
        if self.random.random() < 0.04:
            self.clicks.splits[stream].append(None)
            return b"not JSON"
        self.serial += 1
        id_, item = self.random.choice(_USERS), self.random.randrange(self.items + 3)
        self.clicks.splits[stream].append((id_, item, self.serial))
        return json.dumps({"id": id_, "item": item, "n": self.serial}).encode()

    def _append_prices(self) -> None:
        rows = []
        for _ in range(self.random.randrange(1, 4)):
            rows.append((self.items, self.random.randrange(1000)))
            self.items += 1
        self.prices.splits[NAME].append(rows)
        self.lake.table().append(pa.Table.from_pylist([{"item": i, "price": p} for i, p in rows], _ITEMS))
