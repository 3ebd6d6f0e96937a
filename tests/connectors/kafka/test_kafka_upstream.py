"""Looks at real brokers: bounds, times, missing topics, and brokers that respond late or never."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, delete_records, delete_topic, produce
from rw_sql.connectors.kafka import client_pool
from rw_sql.connectors.kafka.admin import BrokerAdmin, BrokerError
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.errors import SqlError
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = pytest.mark.kafka

KAFKA = KafkaConnector()


def options(broker: BrokerInfo, topic: str, **more: str) -> dict[str, str]:
    return {"properties.bootstrap.server": broker.bootstrap, "topic": topic, **more}


def bounds(broker: BrokerInfo, topic: str) -> dict[str, tuple[int, int]]:
    upstream = KAFKA.look(options(broker, topic))
    assert upstream.error is None
    return {split: (found.start, found.end) for split, found in upstream.splits.items()}


def test_bounds_of_every_partition(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 3)
    produce(broker.bootstrap, topic_name, [Record(value=b"x", partition=n % 2) for n in range(7)])
    delete_records(broker.bootstrap, topic_name, {0: 3})
    assert bounds(broker, topic_name) == {
        f"{topic_name}:0": (3, 4),
        f"{topic_name}:1": (0, 3),
        f"{topic_name}:2": (0, 0),
    }


def test_several_topics_and_one_that_is_missing(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, f"{topic_name}.b", 1)
    upstream = KAFKA.look(options(broker, f"{topic_name}, {topic_name}.none, {topic_name}.b"))
    assert upstream.is_reachable
    assert upstream.cluster == broker.cluster_id
    assert upstream.missing == (f"{topic_name}.none",)
    assert set(upstream.splits) == {f"{topic_name}:0", f"{topic_name}:1", f"{topic_name}.b:0"}


def test_a_topic_made_again_under_its_name_has_another_incarnation(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    before = KAFKA.look(options(broker, topic_name)).splits[f"{topic_name}:0"]
    delete_topic(broker.bootstrap, topic_name)
    assert KAFKA.look(options(broker, topic_name)).missing == (topic_name,)
    create_topic(broker.bootstrap, topic_name, 1)
    after = KAFKA.look(options(broker, topic_name)).splits[f"{topic_name}:0"]
    assert before.incarnation is not None
    assert after.incarnation not in (None, before.incarnation)
    assert after.cluster == before.cluster


def test_partitions_that_are_added_appear(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    before = KAFKA.look(options(broker, topic_name)).splits
    add_partitions(broker.bootstrap, topic_name, 3)
    after = KAFKA.look(options(broker, topic_name)).splits
    assert sorted(after) == [f"{topic_name}:{n}" for n in range(3)]
    assert {split.incarnation for split in after.values()} == {before[f"{topic_name}:0"].incarnation}


def test_another_cluster_is_distinguished(broker: BrokerInfo, second_broker: BrokerInfo, topic_name: str) -> None:
    for one in (broker, second_broker):
        create_topic(one.bootstrap, topic_name, 1)
    clusters = [KAFKA.look(options(one, topic_name)).cluster for one in (broker, second_broker)]
    assert clusters == [broker.cluster_id, second_broker.cluster_id]
    assert clusters[0] != clusters[1]


def test_offsets_at_a_time(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    produce(
        broker.bootstrap,
        topic_name,
        [Record(value=b"x", partition=0, timestamp_ms=1_700_000_000_000 + 1000 * n) for n in range(5)],
    )
    splits = [f"{topic_name}:0", f"{topic_name}:1"]

    def at(milliseconds: int) -> list[int]:
        return [KAFKA.offsets_at(options(broker, topic_name), milliseconds, splits)[split] for split in splits]

    assert at(0) == [0, 0]
    assert at(1_700_000_002_000) == [2, 0]
    assert at(1_700_000_002_001) == [3, 0]
    assert at(1_800_000_000_000) == [5, 0]


def test_offsets_of_a_topic_that_is_missing(broker: BrokerInfo, topic_name: str) -> None:
    with pytest.raises(SqlError) as caught:
        KAFKA.offsets_at(options(broker, topic_name), 5, [f"{topic_name}:0"])
    assert caught.value.code == "RW402"


def test_the_end_of_a_transaction_that_is_open_is_not_seen(broker: BrokerInfo, topic_name: str) -> None:
    from confluent_kafka import Producer

    create_topic(broker.bootstrap, topic_name, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"x")
    producer.flush(30)
    split = f"{topic_name}:0"
    uncommitted = {"properties.isolation.level": "read_uncommitted"}
    assert KAFKA.look(options(broker, topic_name)).splits[split].end == 0
    assert KAFKA.look(options(broker, topic_name, **uncommitted)).splits[split].end == 1
    producer.commit_transaction(30)
    deadline = time.monotonic() + 30  # the broker writes the transaction's end after it has answered
    while (end := KAFKA.look(options(broker, topic_name)).splits[split].end) == 0 and time.monotonic() < deadline:
        pass
    assert end == 2


def test_a_topic_that_is_created_again_with_fewer_partitions_is_found_by_the_same_client(
    broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pool, "LIFE_SECONDS", LAST_RESORT_SECONDS * 10)
    other = f"{topic_name}.b"
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, other, 1)
    splits = [f"{topic_name}:0", f"{topic_name}:1", f"{other}:0"]
    assert len(KAFKA.pooled_ends(options(broker, topic_name), splits)) == 3
    delete_topic(broker.bootstrap, topic_name)
    assert KAFKA.pooled_ends(options(broker, topic_name), splits) == {f"{other}:0": 0}
    create_topic(broker.bootstrap, topic_name, 1)
    both = {f"{topic_name}:0": 0, f"{other}:0": 0}
    wait_until(lambda: KAFKA.pooled_ends(options(broker, topic_name), splits) == both, "the new topic")


def test_the_ends_of_many_topics_are_those_of_single_looks(
    broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Producer

    other, missing = f"{topic_name}.b", f"{topic_name}.none"
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, other, 1)
    produce(broker.bootstrap, topic_name, [Record(value=b"x", partition=0) for _ in range(3)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(other, b"x")
    producer.flush(30)
    splits = [f"{topic_name}:0", f"{topic_name}:1", f"{topic_name}:7", f"{other}:0", f"{missing}:0"]
    uncommitted = options(broker, topic_name, **{"properties.isolation.level": "read_uncommitted"})
    with monkeypatch.context() as patch:
        # The administrative client, which takes several times the CPU time, is needed only for errors.
        patch.setattr(BrokerAdmin, "known_ends", None)
        ends = KAFKA.pooled_ends(options(broker, topic_name), splits)
        assert ends == {f"{topic_name}:0": 3, f"{topic_name}:1": 0, f"{other}:0": 0}
        assert KAFKA.pooled_ends(uncommitted, splits) == {**ends, f"{other}:0": 1}
        # A client that is used again sees what was written, deleted and created since.
        produce(broker.bootstrap, topic_name, [Record(value=b"x", partition=1)])
        assert KAFKA.pooled_ends(options(broker, topic_name), splits) == {**ends, f"{topic_name}:1": 1}
        delete_topic(broker.bootstrap, topic_name)
        assert KAFKA.pooled_ends(options(broker, topic_name), splits) == {f"{other}:0": 0}
        create_topic(broker.bootstrap, topic_name, 1)
    # A topic that was just created may have no leader yet: the administrative client reports that.
    deadline = time.monotonic() + 30
    while (again := KAFKA.pooled_ends(options(broker, topic_name), splits)) != {f"{topic_name}:0": 0, f"{other}:0": 0}:
        assert time.monotonic() < deadline, again


def test_the_ends_of_brokers_that_do_not_answer_are_an_error_with_its_reason() -> None:
    for timeout in (0.5, 8.0):
        with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
            KAFKA.pooled_ends({"properties.bootstrap.server": "127.0.0.1:1", "topic": "t"}, ["t:0"], timeout=timeout)


def test_a_broker_that_refuses_is_reported_soon(topic_name: str) -> None:
    began = time.monotonic()
    upstream = KAFKA.look({"properties.bootstrap.server": "127.0.0.1:1", "topic": topic_name})
    assert not upstream.is_reachable
    assert upstream.error is not None
    assert "127.0.0.1:1" in upstream.error
    assert "Connection refused" in upstream.error
    assert time.monotonic() - began < 5


def test_a_broker_that_never_answers_is_reported_within_the_limit(topic_name: str) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        upstream = KAFKA.look({"properties.bootstrap.server": address, "topic": topic_name}, timeout=2)
        assert time.monotonic() - began < 4
        assert upstream.error is not None
        assert address in upstream.error
        with pytest.raises(SqlError) as caught:
            KAFKA.offsets_at(
                {"properties.bootstrap.server": address, "topic": topic_name}, 5, [f"{topic_name}:0"], timeout=1
            )
        assert caught.value.code == "RW401"


def test_the_message_of_a_silent_broker_does_not_depend_on_whose_timeout_ends_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import socket

    # The client's own timeout ends before the limit of all calls together.
    monkeypatch.setattr(BrokerAdmin, "_left", lambda _: 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        upstream = KAFKA.look({"properties.bootstrap.server": address, "topic": "orders"}, timeout=8)
    assert upstream.error == f"{address}: no answer within 8 s"


def test_a_name_that_does_not_resolve_is_reported(topic_name: str) -> None:
    upstream = KAFKA.look({"properties.bootstrap.server": "no-such-host.invalid:9092", "topic": topic_name})
    assert upstream.error is not None
    assert "no-such-host.invalid:9092" in upstream.error


def test_nothing_is_printed_when_brokers_fail(capfd: pytest.CaptureFixture[str]) -> None:
    KAFKA.look({"properties.bootstrap.server": "127.0.0.1:1", "topic": "t"}, timeout=1)
    assert capfd.readouterr() == ("", "")


def test_a_client_that_is_in_use_while_the_broker_restarts(tmp_path: Path) -> None:
    info = start_broker(tmp_path, port=0, extra={"auto.create.topics.enable": "true"})
    parts = [("orders", 0), ("orders", 1)]
    try:
        create_topic(info.bootstrap, "orders", 2)
        with BrokerAdmin({"bootstrap.servers": info.bootstrap}, timeout=LAST_RESORT_SECONDS) as admin:
            before = admin.epochs(parts)
            stop_broker(tmp_path)
            start_broker(tmp_path, port=0)
            # Its leaders are unknown at first; then the client knows those from before the restart.
            after = admin.epochs(parts)
            assert all(after[part] > before[part] for part in parts)
            admin.renew(1.0, since=time.monotonic())
            with pytest.raises(BrokerError):
                admin.epochs([("payments", 0)])
            # Reading has not created it.
            assert admin.topic_names() == ("orders",)
    finally:
        stop_broker(tmp_path)
