"""A source that cannot continue reports the reason with the statement to type, and that statement helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, delete_records, delete_topic
from rw_sql.runtime.delta import job_output as output
from rw_sql.runtime.direct import readers as own
from rw_sql.runtime.support.faults import fault
from tests.integration.attached import READER, AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("quick_discovery"), pytest.mark.long]


def create(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )


def produce(broker: BrokerInfo, topic: str, ids: range) -> None:
    produce_json(broker.bootstrap, topic, [{"id": id_} for id_ in ids], 0)


def wait_for_reason(session: AttachedSession, words: str) -> str:
    """The reason why source ``s`` is stalled, once it contains these words."""
    wait_until(lambda: words in session.job("s").reason, f"the reason says {words}")
    assert session.job("s").state == "STALLED"
    return session.job("s").reason


def ids(session: AttachedSession) -> list[int]:
    return [row[0] for row in session.flushed_rows_of("m")]


def test_records_that_expired_before_they_were_read(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    create(session, broker, topic_name)
    produce(broker, topic_name, range(10))
    produce_json(broker.bootstrap, topic_name, [{"id": id_} for id_ in range(100, 105)], 1)
    others = list(range(100, 105))
    assert ids(session) == [*range(10), *others]
    session.run("PAUSE SOURCE s")
    produce(broker, topic_name, range(10, 30))
    delete_records(broker.bootstrap, topic_name, {0: 17})
    assert session.split_statuses("s") == {f"{topic_name}:0": "EXPIRED", f"{topic_name}:1": "OK"}

    answers = session.sql("RESUME SOURCE s")
    assert any("EXPIRED" in row.detail for row in answers)
    reason = wait_for_reason(session, "EXPIRED")
    assert "7 records" in reason
    assert ids(session) == [*range(10), *others]
    *_, statements = reason.partition(": ")
    session.run(*statements.split("; "))
    assert ids(session) == [*range(10), *range(17, 30), *others]
    assert session.job("s").state == "RUNNING"


def test_a_topic_that_is_gone(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    other = f"{topic_name}.other"
    for topic in (topic_name, other):
        create_topic(broker.bootstrap, topic, 1)
    session.let_no_job_rest()
    create(session, broker, topic_name)
    produce(broker, topic_name, range(10))
    produce(broker, other, range(10, 20))
    assert ids(session) == list(range(10))
    view_run = session.job("m").run
    delete_topic(broker.bootstrap, topic_name)
    wait_for_reason(session, f"MISSING topic {topic_name}")
    assert ids(session) == list(range(10))
    session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{other}')")
    assert ids(session) == list(range(20))
    assert session.job("m").run == view_run


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_topic_that_is_made_again_within_a_large_batch(
    session: AttachedSession,
    broker: BrokerInfo,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    is_shared: bool,
) -> None:
    """The topic is deleted after the batch has read it: the batch must not be committed as offsets of the new topic."""
    for place in (*READER, own):
        monkeypatch.setattr(place, "SMALL_ROWS", -1)
    made_again: list[str] = []

    def at(point: str) -> None:
        if point == "batch.written" and not made_again:
            made_again.append(point)
            delete_topic(broker.bootstrap, topic_name)
            create_topic(broker.bootstrap, topic_name, 1)
            produce(broker, topic_name, range(100, 120))
        fault(point)

    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker, topic_name, range(10))
    session.sql(f"SET streaming_use_shared_source = {str(is_shared).lower()}")
    monkeypatch.setattr(output, "fault", at)
    create(session, broker, topic_name)
    job = "s" if is_shared else "m"
    wait_until(lambda: f"RECREATED {topic_name}" in session.job(job).reason, "the batch is refused")
    assert made_again
    assert session.rows_of("m") == []
    session.run("RESET SOURCE SPLITS s")
    assert ids(session) == list(range(100, 120))
