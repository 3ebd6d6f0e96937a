"""A partition whose log lost records is told from one that only got another leader."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.base import SplitState, TermConnector
from rw_sql.connectors.kafka.source import KafkaConnector
from tests.support.cut_log import cut_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = pytest.mark.kafka

KAFKA = KafkaConnector()


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    folder = tmp_path_factory.mktemp("own_broker")
    yield start_broker(folder, port=0)
    stop_broker(folder)


def put(broker: BrokerInfo, *counts: int, partition: int = 0) -> None:
    """Produces records, those of each number in batches of their own."""
    for count in counts:
        produce(broker.bootstrap, "orders", [Record(value=b"x", partition=partition) for _ in range(count)])


def test_lost_records_are_told_from_another_leader(own_broker: BrokerInfo) -> None:
    assert isinstance(KAFKA, TermConnector)
    options = {"properties.bootstrap.server": own_broker.bootstrap, "topic": "orders"}
    create_topic(own_broker.bootstrap, "orders", 2)
    put(own_broker, 12, 8)
    put(own_broker, 5, partition=1)
    before = KAFKA.look(options).splits
    terms = KAFKA.terms(options, ["orders:0", "orders:1"])
    assert terms == {split: seen.term for split, seen in before.items()}
    read = {
        "orders:0": SplitState(split="orders:0", offset=20, term=terms["orders:0"]),
        "orders:1": SplitState(split="orders:1", offset=5, term=terms["orders:1"]),
    }
    assert KAFKA.diverged(options, read) == {}

    stop_broker(own_broker.folder)
    start_broker(own_broker.folder, port=0)
    put(own_broker, 1, partition=1)
    assert all(KAFKA.terms(options, ["orders:0", "orders:1"])[split] > term for split, term in terms.items())
    assert KAFKA.diverged(options, read) == {}

    cut_log(own_broker, "orders", 12)
    put(own_broker, 30)
    now = KAFKA.look(options).splits["orders:0"]
    assert (now.end, now.incarnation) == (42, before["orders:0"].incarnation)
    assert KAFKA.diverged(options, read) == {"orders:0": 12}
    # Records before the cut are still there.
    assert KAFKA.diverged(options, {"orders:0": SplitState(split="orders:0", offset=12, term=terms["orders:0"])}) == {}
    # Without a term, and at the very beginning, there is nothing to compare.
    assert KAFKA.diverged(options, {"orders:0": SplitState(split="orders:0", offset=20)}) == {}
    assert KAFKA.diverged(options, {"orders:0": SplitState(split="orders:0", offset=0, term=0)}) == {}


def test_a_fetch_tells_the_terms_of_its_records(own_broker: BrokerInfo) -> None:
    options = {"properties.bootstrap.server": own_broker.bootstrap, "topic": "orders"}
    create_topic(own_broker.bootstrap, "orders", 1)
    put(own_broker, 3)
    fetcher = KAFKA.fetcher(options)
    assert fetcher.fetch({"orders:0": (0, 3)}) is not None
    assert fetcher.terms == KAFKA.terms(options, ["orders:0"])
    fetcher.close()


def test_brokers_that_do_not_answer_are_an_error() -> None:
    options = {"properties.bootstrap.server": "127.0.0.1:1", "topic": "orders"}
    with pytest.raises(ConnectionError):
        KAFKA.diverged(options, {"orders:0": SplitState(split="orders:0", offset=2, term=0)}, timeout=1.0)


def test_a_broker_that_is_back_answers_a_client_from_before(own_broker: BrokerInfo) -> None:
    """While the broker is down, the idle client waits longer after each refused connection."""
    options = {"properties.bootstrap.server": own_broker.bootstrap, "topic": "orders"}
    create_topic(own_broker.bootstrap, "orders", 1)
    assert KAFKA.terms(options, ["orders:0"])
    stop_broker(own_broker.folder)
    time.sleep(3.0)  # The clock is librdkafka's: it waits longer after each refused connection.
    start_broker(own_broker.folder, port=0)
    assert KAFKA.terms(options, ["orders:0"])
