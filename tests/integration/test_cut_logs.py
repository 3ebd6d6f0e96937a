"""A topic that lost records which a source has read: the source stalls instead of mixing two logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.kafka_broker import start_broker, stop_broker
from rw_sql.cli.kafka_topics import create_topic
from tests.integration.attached import produce_json, wait_until
from tests.support.cut_log import cut_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    folder = tmp_path_factory.mktemp("own_broker")
    yield start_broker(folder, port=0)
    stop_broker(folder)


def create(session: AttachedSession, broker: BrokerInfo) -> None:
    session.allow_unsafe()
    create_topic(broker.bootstrap, "orders", 1)
    session.run(
        f"""CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'orders',
        properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON""",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )


def put(broker: BrokerInfo, first: int, last: int) -> None:
    produce_json(broker.bootstrap, "orders", [{"id": id_} for id_ in range(first, last)])


def ids(session: AttachedSession) -> list[int]:
    return sorted(id_ for (id_,) in session.flushed_rows_of("m"))


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "paused"])
def test_a_source_stalls_if_records_that_it_read_were_lost(
    session: AttachedSession, own_broker: BrokerInfo, is_running: bool
) -> None:
    create(session, own_broker)
    put(own_broker, 0, 12)
    put(own_broker, 12, 20)
    assert ids(session) == list(range(20))
    # Another leader alone is not a reason.
    stop_broker(own_broker.folder)
    start_broker(own_broker.folder, port=0)
    put(own_broker, 20, 22)
    wait_until(lambda: session.job("s").state == "RUNNING", "the source runs again")
    assert ids(session) == list(range(22))
    if not is_running:
        session.run("PAUSE SOURCE s")
    cut_log(own_broker, "orders", 12)
    put(own_broker, 100, 130)
    if not is_running:
        session.run("RESUME SOURCE s")
    wait_until(lambda: session.job("s").reason.startswith("DIVERGED"), "the source has noticed")
    job = session.job("s")
    assert (job.state, job.reason) == (
        "STALLED",
        "DIVERGED orders:0 at 22: the log was cut at 12 and has other records from there on: PAUSE SOURCE s; "
        "INJECT SOURCE OFFSETS s VALUES ('orders:0' = 12) reads them, INJECT SOURCE OFFSETS s VALUES ('orders:0' = 22) "
        "does not; RESUME SOURCE s",
    )
    reads, skips = re.findall(r"INJECT SOURCE OFFSETS s VALUES \([^)]*\)", job.reason)
    statement, kept = (reads, range(100, 130)) if is_running else (skips, range(110, 130))
    session.run("PAUSE SOURCE s", statement, "RESUME SOURCE s")
    assert ids(session) == [*range(22), *kept]
