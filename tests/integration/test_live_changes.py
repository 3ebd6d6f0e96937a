"""Tables with change streams from a real broker, compared with a dict to which the same changes are applied."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

FORMATS = ("UPSERT", "DEBEZIUM", "MAXWELL", "CANAL")
KEYS = 40

Row = dict[str, Any]


@dataclass(slots=True)
class Upstream:
    """A database table that changes at random, and the records that describe its changes."""

    format: str
    random: Random
    rows: dict[int, Row] = field(default_factory=dict)

    def history(self, changes: int) -> list[Record]:
        """That many changes, and the records that describe them."""
        told: list[Record] = []
        for _ in range(changes):
            told += self._change()
        # A value that is no event changes nothing.
        return [*told, Record(key=b'{"id": 1}', value=b'{"op": "c", "type": "insert"')]

    def _change(self) -> list[Record]:
        id = self.random.randint(1, KEYS)
        old = self.rows.get(id)
        word = self.random.random()
        if old is None or word < 0.5:
            new = {"id": id, "name": self.random.choice(("a", "ü\n", None)), "amount": self.random.randint(-99, 99) / 4}
            self.rows[id] = new
            return self._written(old, new)
        free = [other for other in range(1, KEYS + 1) if other not in self.rows]
        if word < 0.7 and free:
            other = self.random.choice(free)
            new = {**old, "id": other}
            del self.rows[id]
            self.rows[other] = new
            return self._written(old, new)
        del self.rows[id]
        return self._written(old, None)

    def _written(self, old: Row | None, new: Row | None) -> list[Record]:
        event: Row
        is_other_key = old is not None and new is not None and old["id"] != new["id"]
        match self.format:
            case "UPSERT":
                gone = [_record(old, None)] if old is not None and (new is None or is_other_key) else []
                return [*gone, *([_record(new, new)] if new is not None else [])]
            case "DEBEZIUM":
                if is_other_key:
                    return [*self._written(old, None), *self._written(None, new)]
                op = "u" if old and new else "c" if new else "d"
                event = {"before": old, "after": new, "op": op, "source": {"table": "t"}, "ts_ms": 1}
                value = {"schema": None, "payload": event} if self.random.random() < 0.5 else event
                return [_record(new or old, value), *([_record(old, None)] if new is None else [])]
            case "MAXWELL":
                event = {"database": "d", "table": "t", "type": _word(old, new), "data": new or old}
                if old and new:
                    event["old"] = {name: old[name] for name in old if old[name] != new[name]}
                return [_record({"pk.id": (old or new or {})["id"]}, event)]
            case _:
                row, was = _texts(new or old or {}), _texts(old or {})
                event = {"data": [row], "isDdl": False, "type": _word(old, new).upper(), "old": None}
                if old and new:
                    event["old"] = [{name: was[name] for name in was if was[name] != row[name]}]
                return [_record(None, event)]

    def expected(self) -> list[tuple[Any, ...]]:
        """The rows, as the table must have them."""
        return [(id, row["name"], Decimal(str(row["amount"]))) for id, row in sorted(self.rows.items())]


def _word(old: Row | None, new: Row | None) -> str:
    return "update" if old and new else "insert" if new else "delete"


def _texts(row: Row) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}


def _record(key: Row | None, value: Any) -> Record:
    told = None if key is None else {name: key[name] for name in key if name in ("id", "pk.id")}
    return Record(
        key=None if told is None else json.dumps(told).encode(),
        value=None if value is None else json.dumps(value).encode(),
        # If keys may change, an upstream's tables are one stream, because changes of a key must not overtake each
        # other.
        partition=0 if told is None or "pk.id" in told else None,
    )


def test_change_streams_against_a_dict(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    random = Random(8)
    upstreams = {format.lower(): Upstream(format, random) for format in FORMATS}
    for name, upstream in upstreams.items():
        topic = f"{topic_name}.{name}"
        create_topic(broker.bootstrap, topic, 2)
        produce(broker.bootstrap, topic, upstream.history(150))
        session.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR, amount NUMERIC(10, 2)) WITH (connector = 'kafka', "
            f"topic = '{topic}', properties.bootstrap.server = '{broker.bootstrap}') "
            f"FORMAT {upstream.format} ENCODE JSON"
        )
    session.sql("CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(amount) AS total FROM debezium")
    for more in (60, 0):
        session.sql("FLUSH")
        for name, upstream in upstreams.items():
            assert session.rows_of(name, "id, name, amount") == upstream.expected(), name
        followed = upstreams["debezium"].expected()
        assert session.rows_of("sums") == [(len(followed), sum((amount for _, _, amount in followed), Decimal(0)))]
        for name, upstream in upstreams.items() if more else ():
            produce(broker.bootstrap, f"{topic_name}.{name}", upstream.history(more))
    for name in upstreams:
        reasons = [row.reason for row in session.sql(f"SELECT reason FROM `{name}$errors`")]
        assert len(reasons) == 2, name


def test_what_did_not_change_stays_in_a_live_table(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    gone = "__debezium_unavailable_value"

    def event(op: str, after: Row | None, before: Row | None = None) -> Record:
        key = {"id": (after or before or {})["id"]}
        value = {"op": op, "before": before, "after": after}
        return Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())

    produce(
        broker.bootstrap,
        topic_name,
        [
            event("c", {"id": 1, "body": "long", "n": 1}),
            event("u", {"id": 1, "body": gone, "n": 2}),
            event("u", {"id": 1, "body": gone, "n": 3}),
            event("c", {"id": 2, "body": "two", "n": 1}),
            event("u", {"id": 3, "body": gone, "n": 5}),
            event("c", {"id": 4, "body": "moves", "n": 1}),
            event("u", {"id": 5, "body": gone, "n": 2}, {"id": 4, "body": None, "n": 1}),
            Record(key=b"no JSON", value=None),
        ],
    )
    session.run(
        "CREATE TABLE docs (id INT PRIMARY KEY, text VARCHAR FROM body, n INT DEFAULT 7, letters INT AS length(text)) "
        f"WITH (connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}') "
        "FORMAT DEBEZIUM ENCODE JSON",
        "CREATE MATERIALIZED VIEW texts AS SELECT id, upper(text) AS t FROM docs",
        "FLUSH",
    )
    columns = "id, text, n, letters"
    assert session.rows_of("docs", columns) == [
        (1, "long", 3, 4),
        (2, "two", 1, 3),
        (3, None, 5, None),
        (5, "moves", 2, 5),
    ]
    assert session.rows_of("texts") == [(1, "LONG"), (2, "TWO"), (3, None), (5, "MOVES")]
    (unknown,) = session.sql("SELECT * FROM `docs$errors`")
    assert bytes(unknown.bytes) == b'{"id":3}'
    assert unknown.reason == 'column "body": the value did not change, and no record that was read has it: NULL'

    produce(
        broker.bootstrap,
        topic_name,
        [
            event("u", {"id": 2, "body": gone, "n": 2}),
            event("u", {"id": 3, "body": "known", "n": 6}),
            event("u", {"id": 1, "body": None, "n": 4}),
        ],
    )
    session.sql("FLUSH")
    assert session.rows_of("docs", columns) == [
        (1, None, 4, None),
        (2, "two", 2, 3),
        (3, "known", 6, 5),
        (5, "moves", 2, 5),
    ]
    assert session.sql("SELECT * FROM `docs$errors`") == []
