"""Kafka sources whose small batches are written by a thread, and large ones by a streaming query."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from rw_sql.cli.servers.kafka_topics import Record, create_topic, delete_records, delete_topic, produce
from rw_sql.connectors.kafka.fetcher import KafkaFetcher
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.jobs import batch_mode
from tests.integration.attached import READER, AttachedSession, has_thread, produce_json, queries, restarted, wait_until
from tests.support.ageing import PAUSES

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ID = "(id INT)"


def create(
    session: AttachedSession, broker: BrokerInfo, topic: str, columns: str = ID, more: str = "", name: str = "s"
) -> None:
    session.run(
        f"CREATE SOURCE {name} {columns} WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}'{more}) FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW v_{name} AS SELECT * FROM {name}",
    )


def ids(session: AttachedSession) -> list[int]:
    return [id_ for (id_,) in session.flushed_rows_of("v_s", "id")]


def has_rows(session: AttachedSession, count: int) -> bool:
    return len(ids(session)) >= count


@pytest.fixture
def topic(broker: BrokerInfo, topic_name: str) -> str:
    create_topic(broker.bootstrap, topic_name, 2)
    return topic_name


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of more than 30 records is not small."""
    for module in READER:
        monkeypatch.setattr(module, "SMALL_ROWS", 30)
    monkeypatch.setattr(batch_mode, "MOST_NEEDED", 2)


def test_a_source_has_no_query_for_small_batches(
    session: AttachedSession, broker: BrokerInfo, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ingest, "_start_query", None)
    create(session, broker, topic)
    session.allow_unsafe()
    for number in range(3):
        produce_json(broker.bootstrap, topic, [{"id": number * 3 + each} for each in range(3)])
        assert ids(session) == list(range(number * 3 + 3))
        assert has_thread(session, "s")
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "RESUME SOURCE s")
    assert ids(session) == sorted([*range(9)] * 2)
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")
    produce_json(broker.bootstrap, topic, [{"id": 9}])
    assert ids(session) == [*sorted([*range(9)] * 2), 9]
    assert has_thread(session, "s")
    assert session.job("s").restarts == 0


def test_a_large_backlog_is_read_by_a_query(
    session: AttachedSession, broker: BrokerInfo, topic: str, few: None
) -> None:
    produce_json(broker.bootstrap, topic, [{"id": number} for number in range(100)])
    create(session, broker, topic)
    assert ids(session) == list(range(100))
    for number in range(100, 103):
        produce_json(broker.bootstrap, topic, [{"id": number}])
        assert ids(session) == list(range(number + 1))
    wait_until(lambda: has_thread(session, "s"), "the thread has taken the query's place")
    produce_json(broker.bootstrap, topic, [{"id": number} for number in range(103, 200)])
    assert ids(session) == list(range(200))
    assert not has_thread(session, "s")


@pytest.mark.long
def test_random_sizes_moves_and_restarts(
    session: AttachedSession, broker: BrokerInfo, topic: str, few: None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches go back and forth between the thread and the query, and every record is read once."""
    random, made, left = Random(seed), 0, 0
    leave = batch_mode.BatchMode.leave

    def noted(mode: batch_mode.BatchMode, reason: batch_mode.LeftToSparkError) -> None:
        nonlocal left
        left += mode.job == session.job("s").job
        leave(mode, reason)

    monkeypatch.setattr(batch_mode.BatchMode, "leave", noted)
    create(session, broker, topic)
    for step in range(30):
        count = random.choice((0, 1, 5, 20, 60, 200))
        produce_json(broker.bootstrap, topic, [{"id": made + each} for each in range(count)])
        made += count
        if (chance := random.random()) < 0.15:
            session = restarted(session, random.choice([0.0, *PAUSES.values()]))
        elif chance < 0.3:
            session.run("PAUSE SOURCE s", "RESUME SOURCE s")
        elif chance < 0.7:
            assert ids(session) == list(range(made)), step
    assert ids(session) == list(range(made))
    assert left


def test_a_fetcher_that_gives_up_is_replaced_by_a_query_and_returns(
    session: AttachedSession, broker: BrokerInfo, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, broker, topic)
    produce_json(broker.bootstrap, topic, [{"id": 0}])
    assert ids(session) == [0]
    assert has_thread(session, "s")
    with monkeypatch.context() as patched:
        patched.setattr(KafkaFetcher, "arrived", lambda *_, **__: None)
        wait_until(lambda: session.job("s").job in queries(session), "the query has taken the thread's place")
    for number in range(1, 5):
        produce_json(broker.bootstrap, topic, [{"id": number}])
        assert ids(session) == list(range(number + 1))
    wait_until(lambda: has_thread(session, "s"), "the thread has taken the query's place")
    assert session.job("s").restarts == 0


def test_transactions_and_their_markers(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    create(session, broker, topic, more=", properties.isolation.level = 'read_committed'")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    kept = []
    for number in range(8):  # two partitions, each with a record and a marker per transaction
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, json.dumps({"id": number * 2 + partition}), partition=partition)
        producer.flush()  # An abort discards records that were not sent.
        if number % 3:
            producer.commit_transaction()
            kept += [number * 2, number * 2 + 1]
        else:
            producer.abort_transaction()
        # A transaction's markers may be written after the commit has returned.
        wait_until(partial(has_rows, session, len(kept)), "the rows")
        assert ids(session) == kept
    wait_until(lambda: set(session.positions("s").values()) == {16}, "the positions after the last markers")
    assert has_thread(session, "s")


@pytest.mark.parametrize("encode", ["CSV (without_header = 'true')", "JSON", "BYTES"])
@pytest.mark.parametrize("include", ["", "INCLUDE key AS k INCLUDE partition AS p INCLUDE offset AS o"])
def test_records_of_other_formats(
    session: AttachedSession, broker: BrokerInfo, topic: str, encode: str, include: str
) -> None:
    columns = "(value BYTEA)" if encode == "BYTES" else ID
    session.run(
        f"CREATE SOURCE s {columns} {include} WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE {encode}",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM s",
    )
    expected: list[tuple[Any, ...]] = []
    for number in range(4):
        text = {"J": f'{{"id": {number}}}', "C": f"{number}", "B": f"{number}"}[encode[0]].encode()
        produce(broker.bootstrap, topic, [Record(value=text, key=b"%d" % number, partition=number % 2)])
        value: object = text if encode == "BYTES" else number
        expected.append((value, *((b"%d" % number, str(number % 2), str(number // 2)) if include else ())))
        assert [tuple(map(_plain, row)) for row in session.flushed_rows_of("v")] == expected
    assert has_thread(session, "s")


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


def test_headers_and_a_rate_limit_keep_the_query(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    create(session, broker, topic, "(id INT) INCLUDE header AS h")
    create(session, broker, topic, more=", source_rate_limit = 1000", name="r")
    produce_json(broker.bootstrap, topic, [{"id": 1}])
    assert ids(session) == [1]
    assert {session.job("s").job, session.job("r").job} <= queries(session)


def test_a_deleted_topic_stalls_the_source(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    session.allow_unsafe()
    session.let_no_job_rest()
    create(session, broker, topic)
    produce_json(broker.bootstrap, topic, [{"id": 1}])
    assert ids(session) == [1]
    delete_topic(broker.bootstrap, topic)
    wait_until(lambda: session.job("s").reason.startswith("MISSING"), "the missing topic in SHOW JOBS")
    create_topic(broker.bootstrap, topic, 2)
    wait_until(lambda: session.job("s").reason.startswith("RECREATED"), "the new topic in SHOW JOBS")
    session.run("RESET SOURCE SPLITS s ALLOW GAPS")
    produce_json(broker.bootstrap, topic, [{"id": 2}])
    assert ids(session) == [1, 2]


def test_records_that_expire_before_they_are_read(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    create(session, broker, topic)
    produce_json(broker.bootstrap, topic, [{"id": 1}], partition=0)
    assert ids(session) == [1]
    session.run("PAUSE SOURCE s")
    produce_json(broker.bootstrap, topic, [{"id": 2}, {"id": 3}], partition=0)
    delete_records(broker.bootstrap, topic, {0: 2})
    session.run("RESUME SOURCE s")
    wait_until(lambda: session.job("s").reason.startswith("EXPIRED"), "the expired records in SHOW JOBS")
