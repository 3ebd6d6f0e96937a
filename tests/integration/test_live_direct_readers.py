"""Views that read a source directly: their state survives every move, and their rows match the predictions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import add_partitions, create_topic, delete_topic, produce
from rw_sql.runtime.direct import align_checkpoint as settling
from rw_sql.runtime.views import job as view_module
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

BEGIN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
VIEWS = ("totals", "windows", "joined")


def row(id_: int, second: int) -> dict[str, object]:
    at = BEGIN + timedelta(seconds=second)
    return {"id": id_, "kind": ("even", "odd")[id_ % 2], "ts": at.isoformat().replace("+00:00", "Z")}


@dataclass(slots=True)
class Oracle:
    """The expected rows of the views, from the records that each reader should have read."""

    reads: Counter[int] = field(default_factory=Counter)
    windows: Counter[tuple[int, str]] = field(default_factory=Counter)

    def read(self, records: Iterable[tuple[int, int]], *, watermark: int = -(2**31)) -> None:
        """Adds records (id, second); windows that ended before the watermark (in seconds) accept no more of them."""
        for id_, second in records:
            self.reads[id_] += 1
            begin = second // 60 * 60
            if begin + 60 > watermark:
                self.windows[begin, ("even", "odd")[id_ % 2]] += 1

    def totals(self) -> list[tuple[str, int, int]]:
        kinds = (
            (kind, [id_ for id_ in self.reads.elements() if id_ % 2 == odd]) for odd, kind in enumerate(("even", "odd"))
        )
        return [(kind, len(ids), sum(ids)) for kind, ids in kinds if ids]

    def require(self, session: AttachedSession) -> None:
        session.sql("FLUSH")
        assert session.rows_of("totals", "kind, n, total") == self.totals()
        begins = {
            (int((w.replace(tzinfo=UTC) - BEGIN).total_seconds()), kind): n for w, kind, n in session.rows_of("windows")
        }
        assert begins == dict(self.windows)
        joined = Counter(id_ for id_, name in session.rows_of("joined") if name == f"n{id_}")
        assert joined == self.reads


def create(session: AttachedSession, bootstrap: str, topic: str, names: str) -> None:
    session.allow_unsafe()
    session.run(
        "SET statement_timeout = '180s'",
        "SET streaming_use_shared_source = false",
        "CREATE SOURCE s (id INT, kind VARCHAR, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) "
        f"WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{bootstrap}') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE o (id INT, name VARCHAR) WITH (connector = 'kafka', "
        f"topic = '{names}', properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW totals AS SELECT kind, count(*) AS n, sum(id) AS total FROM s GROUP BY kind",
        "CREATE MATERIALIZED VIEW windows AS SELECT minute.start AS w, kind, count(*) AS n "
        "FROM (SELECT window(ts, '1 minute') AS minute, kind FROM s) GROUP BY minute, kind",
        "CREATE MATERIALIZED VIEW joined AS WITH named AS (SELECT id, name FROM o) "
        "SELECT s.id, named.name FROM named JOIN s ON s.id = named.id",
    )


def query_ids(session: AttachedSession) -> dict[str, str]:
    """The id of each view's streaming query, which is stored in its checkpoint: state is kept as long as the id
    stays."""
    found = {}
    for name in VIEWS:
        record = session.attached._runtime.context.metastore.snapshot().find("materialized_view", name)
        assert record is not None
        warehouse = session.attached._runtime.context.warehouse
        found[name] = warehouse.read_text(f"{warehouse.view_checkpoint(record.id, record.generation)}/metadata")
    return found


def newest_operation(session: AttachedSession) -> int:
    return int(session.sql("SHOW UNSAFE OPERATIONS")[0].operation)


@pytest.mark.usefixtures("quick_discovery")
def test_a_topic_moved_and_offsets_injected_keep_the_state(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    names, other = f"{topic_name}.names", f"{topic_name}.other"
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, names, 1)
    create_topic(broker.bootstrap, other, 1)
    produce_json(broker.bootstrap, names, [{"id": id_, "name": f"n{id_}"} for id_ in range(200)])
    first = [[(10 * partition + at, 10 * at) for at in range(10)] for partition in (0, 1)]
    for partition, records in enumerate(first):
        produce_json(broker.bootstrap, topic_name, [row(*record) for record in records], partition)
    create(session, broker.bootstrap, topic_name, names)
    oracle = Oracle()
    oracle.read([*first[0], *first[1]])
    oracle.require(session)
    ids = query_ids(session)
    # Back: six records are read again by every view, two of them too late for their window.
    session.run("PAUSE SOURCE s")
    assert {session.job(name).state for name in VIEWS} == {"PAUSED"}
    session.run("INJECT SOURCE OFFSETS s VALUES ('0' = 4) ALLOW DUPLICATES")
    preview = session.questions[-1].preview
    assert preview.count("DUPLICATES 6") == 2 * len(VIEWS)
    assert "LATE: rows before 2026-03-01 10:01:20" in preview
    session.run("RESUME SOURCE s")
    oracle.read(first[0][4:], watermark=80)
    oracle.require(session)
    # To another topic, while it runs.
    moved = [(100 + at, 200 + 10 * at) for at in range(5)]
    produce_json(broker.bootstrap, other, [row(*record) for record in moved])
    session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{other}')")
    operation = newest_operation(session)
    oracle.read(moved)
    oracle.require(session)
    # Moves back to each reader's old position.
    later = [(30, 300), (31, 310)]
    produce_json(broker.bootstrap, topic_name, [row(*record) for record in later], 0)
    session.run(f"UNDO OPERATION {operation}")
    oracle.read(later)
    oracle.require(session)
    # A partition that is added later is read from its first record.
    add_partitions(broker.bootstrap, topic_name, 3)
    produce_json(broker.bootstrap, topic_name, [row(40, 320)], 2)
    oracle.read([(40, 320)])
    oracle.require(session)
    fragments = {row.fragment for row in session.sql("SHOW SOURCE SPLITS s")}
    assert len(fragments) == len(VIEWS)
    told = session.sql("SHOW SOURCE CONTINUITY s")
    assert {row.fragment for row in told} == fragments
    repeated = [row for row in told if row.kind == "INJECT SOURCE OFFSETS" and row.predicted == "DUPLICATES 6"]
    assert [(row.duplicates, row.gaps, row.status) for row in repeated] == [(6, 0, "AS PREDICTED")] * len(VIEWS)
    assert {row.status for row in told if row.kind == "READING"} == {"UNBROKEN"}
    # Another process would find the same: nothing is read twice, and the state is kept.
    session.detach()
    again = AttachedSession(session.spark, session.warehouse)
    try:
        produce_json(broker.bootstrap, topic_name, [row(50, 330)], 1)
        oracle.read([(50, 330)])
        oracle.require(again)
        assert query_ids(again) == ids
        assert again.job("totals").lag == 0
    finally:
        again.detach()


def test_two_sources_of_one_group_and_a_foreign_consumer_in_it_get_every_record(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    group = f"{topic_name}.group"
    create_topic(broker.bootstrap, topic_name, 2)
    for partition in (0, 1):
        produce_json(broker.bootstrap, topic_name, [{"id": 10 * partition + at} for at in range(10)], partition)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(settings)
    foreign = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    foreign.subscribe([topic_name])
    seen: Counter[bytes] = Counter()

    def consume(expected: int) -> bool:
        message = foreign.poll(0.5)
        if message is not None and message.error() is None:
            seen[message.value() or b""] += 1
        return seen.total() >= expected

    def committed() -> list[int]:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic_name, p) for p in (0, 1)])
        found = admin.list_consumer_group_offsets([request])[group].result()
        return [partition.offset for partition in found.topic_partitions or ()]

    session.sql("SET statement_timeout = '180s'")
    try:
        wait_until(lambda: consume(5), "the foreign consumer has read something")
        foreign.commit(offsets=[TopicPartition(topic_name, 0, 3), TopicPartition(topic_name, 1, 1)], asynchronous=False)
        for name, shared in (("a", "true"), ("b", "false"), ("c", "false")):
            session.run(
                f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
                f"properties.bootstrap.server = '{broker.bootstrap}', shared = '{shared}', group.id = '{group}') "
                "FORMAT PLAIN ENCODE JSON",
                f"CREATE MATERIALIZED VIEW of_{name} AS SELECT id FROM {name}",
            )
        produce_json(broker.bootstrap, topic_name, [{"id": 20 + at} for at in range(10)], 1)
        for name in "abc":
            assert Counter(id_ for (id_,) in session.flushed_rows_of(f"of_{name}")) == Counter(range(30))
        wait_until(lambda: consume(30), "the foreign consumer gets every record")
        assert set(seen.values()) == {1}
        assert committed() == [3, 1]
    finally:
        foreign.close()


class BrokenOffError(Exception):
    """Replaces a kill between two steps: no later step runs."""


def test_a_move_that_is_interrupted_at_any_step_is_completed(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": at} for at in range(20)])
    session.allow_unsafe()
    session.run(
        "SET statement_timeout = '180s'",
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', shared = 'false', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id % 2 AS odd, count(*) AS n, sum(id) AS total FROM s GROUP BY id % 2",
    )
    reads = Counter(range(20))
    passed: list[str] = []
    armed: list[str] = []

    held: list[str] = []

    def fault(name: str) -> None:
        if name in held:
            raise BrokenOffError(name)
        if armed and armed[0] == name:
            passed.append(armed.pop())
            if name == "view.after_batch":
                held.append("view.before_claim")  # no further try before the source is paused
            raise BrokenOffError(name)

    monkeypatch.setattr(settling, "fault", fault)
    monkeypatch.setattr(view_module, "fault", fault)

    def require() -> None:
        expected = [
            (odd, len(ids), sum(ids)) for odd in (0, 1) if (ids := [i for i in reads.elements() if i % 2 == odd])
        ]
        assert session.flushed_rows_of("m", "odd, n, total") == expected

    require()
    end = 20
    for point in (
        "reader.after_journal",
        "reader.after_rewrite",
        # The rows are in the view and Spark has not recorded them: the batch is finished before the move.
        "view.after_batch",
    ):
        if point == "view.after_batch":
            armed.append(point)
            produce_json(broker.bootstrap, topic_name, [{"id": end}])
            reads[end] += 1
            end += 1
            wait_until(lambda: bool(passed) and passed[-1] == "view.after_batch", "the batch was interrupted")
        session.run("PAUSE SOURCE s", f"INJECT SOURCE OFFSETS s VALUES ('0' = {end - 5}) ALLOW DUPLICATES, GAPS")
        held.clear()
        armed.append("reader.before_finish" if point == "view.after_batch" else point)
        session.run("RESUME SOURCE s")
        wait_until(lambda: not armed and session.job("m").state == "RUNNING", f"the start after {point} is tried again")
        reads += Counter(range(end - 5, end))
        require()
    assert passed[-2:] == ["view.after_batch", "reader.before_finish"]


def test_a_reader_of_a_topic_that_was_made_again_stalls_until_it_is_reset(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": at} for at in range(5)])
    session.allow_unsafe()
    session.run(
        "SET statement_timeout = '180s'",
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', shared = 'false', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )
    produce(broker.bootstrap, topic_name, [b"not JSON"])
    assert session.flushed_rows_of("m") == [(at,) for at in range(5)]
    delete_topic(broker.bootstrap, topic_name)
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": 100 + at} for at in range(9)])
    wait_until(lambda: session.job("m").state == "STALLED", "the reader stalls")
    assert "RECREATED" in session.job("m").reason
    counted = {row.name: row.value for row in session.sql("SHOW METRICS") if "source" in row.labels}
    assert counted["rw_sql_decode_errors_total"] == 1
    assert session.rows_of("m") == [(at,) for at in range(5)]
    session.run("RESET SOURCE SPLITS s")
    assert session.flushed_rows_of("m") == [*((at,) for at in range(5)), *((100 + at,) for at in range(9))]
