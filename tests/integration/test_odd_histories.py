"""Histories of topics whose offsets have holes, of two sources at once, and a cancelled one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, delete_topic, produce
from rw_sql.runtime.backfill.direct_table import DirectTable
from rw_sql.runtime.views.row_mode import RowMode
from rw_sql.runtime.views.streamed import Streamed
from tests.integration.attached import wait_until
from tests.support.plain_consumer import offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("quick_discovery"), pytest.mark.long]

PARTITIONS = 2
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


@dataclass(slots=True)
class Topics:
    """The session and its topics; each topic has a source that begins at the topic's end."""

    session: AttachedSession
    broker: BrokerInfo
    name: str

    def topic(self, source: str) -> str:
        return f"{self.name}.{source}"

    def create_topic(self, source: str, config: dict[str, str] | None = None) -> None:
        create_topic(self.broker.bootstrap, self.topic(source), PARTITIONS, config)

    def create_source(self, source: str, columns: str = "id BIGINT") -> None:
        self.session.sql(
            f"""CREATE SOURCE {source} ({columns}) INCLUDE partition AS part INCLUDE offset AS place WITH (
                connector = 'kafka', topic = '{self.topic(source)}', scan.startup.mode = 'latest',
                properties.bootstrap.server = '{self.broker.bootstrap}'
            ) FORMAT PLAIN ENCODE JSON"""
        )

    def produce(self, source: str, ids: range, **more: Any) -> None:
        records = [
            Record(value=json.dumps({"id": id_, **more}).encode(), key=b"%d" % (id_ % 5), partition=id_ % PARTITIONS)
            for id_ in ids
        ]
        produce(self.broker.bootstrap, self.topic(source), records)

    def transactions(self, source: str, count: int) -> None:
        """That many transactions of seven records; every third is aborted."""
        import confluent_kafka

        topic = self.topic(source)
        maker: Any = confluent_kafka.Producer
        producer = maker({"bootstrap.servers": self.broker.bootstrap, "transactional.id": topic, "log_level": 0})
        producer.init_transactions(30)
        for number in range(count):
            producer.begin_transaction()
            for id_ in range(7):
                producer.produce(topic, json.dumps({"id": id_}).encode(), partition=id_ % PARTITIONS)
            producer.flush(30)
            (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(30)

    def found(self, view: str) -> Counter[tuple[str, str]]:
        """The partition and offset of each row."""
        return Counter(self.session.flushed_rows_of(view, "part, place"))

    def expected(self, source: str) -> Counter[tuple[str, str]]:
        """The partition and offset of each record that Kafka's own consumer gets, once each."""
        offsets = offsets_of(self.broker.bootstrap, self.topic(source))
        return Counter((str(part), str(place)) for part, places in offsets.items() for place in places)


@pytest.fixture
def topics(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> Topics:
    return Topics(session=session, broker=broker, name=topic_name)


def _make(session: AttachedSession, view: str, query: str) -> None:
    session.sql(f"CREATE MATERIALIZED VIEW {view} WITH (scan.startup.mode = 'earliest') AS {query}")


def test_a_history_of_transactions_is_what_was_committed(topics: Topics) -> None:
    topics.create_topic("s")
    topics.transactions("s", 9)
    topics.create_source("s")
    _make(topics.session, "v", "SELECT part, place FROM s")
    expected = topics.expected("s")
    assert expected.total() == 6 * 7
    assert topics.found("v") == expected
    topics.transactions("s", 3)
    assert topics.found("v") == topics.expected("s")
    _make(topics.session, "counted", "SELECT part, place, count(*) AS n FROM s GROUP BY part, place")
    assert topics.found("counted") == topics.expected("s")


def test_a_history_of_a_compacted_topic_is_what_compaction_left(topics: Topics) -> None:
    topics.create_topic("s", COMPACTED)
    topics.produce("s", range(120))
    whole = topics.expected("s").total()

    def is_compacted() -> bool:
        # A segment is compacted once a later one has begun, here with the first record after 100 ms.
        topics.produce("s", range(120, 122))
        return topics.expected("s").total() < whole

    wait_until(is_compacted, "the broker has compacted the topic")
    topics.create_source("s")
    _make(topics.session, "v", "SELECT part, place FROM s")
    found = topics.found("v")
    # The cleaner may have continued since the view read the topic, but records that exist now existed then.
    assert not topics.expected("s") - found
    assert set(found.values()) == {1}
    ends = {part: max(places) for part, places in offsets_of(topics.broker.bootstrap, topics.topic("s")).items()}
    assert {part: max(int(place) for own, place in found if own == str(part)) for part in ends} == ends
    assert found.total() < sum(end + 1 for end in ends.values())


def test_a_join_has_the_history_of_both_sides_once(topics: Topics) -> None:
    for source in ("a", "b"):
        topics.create_topic(source)
        topics.produce(source, range(30), side=source)
    for source in ("a", "b"):
        topics.create_source(source, "id BIGINT, side STRING")
    _make(topics.session, "pairs", "SELECT a.id, a.place AS one, b.place AS other FROM a JOIN b ON a.id = b.id")
    # Each of these joins a record of the other side's history, and they join each other.
    topics.produce("a", range(25, 35), side="a")
    topics.produce("b", range(20, 40), side="b")
    times = {"a": Counter([*range(30), *range(25, 35)]), "b": Counter([*range(30), *range(20, 40)])}
    rows = topics.session.flushed_rows_of("pairs")
    assert Counter(row[0] for row in rows) == Counter({id_: n * times["b"][id_] for id_, n in times["a"].items()})
    assert len(set(rows)) == len(rows)


def test_a_history_that_is_called_off_leaves_nothing_and_its_siblings_go_on(topics: Topics) -> None:
    session = topics.session
    topics.create_topic("s")
    topics.produce("s", range(40))
    topics.create_source("s")
    _make(session, "sibling", "SELECT part, place FROM s")
    session.run(
        "SET background_ddl = true",
        "CREATE MATERIALIZED VIEW v WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 0) "
        "AS SELECT part, place FROM s",
        "SET background_ddl = false",
    )
    wait_until(lambda: session.job("v").state == "BACKFILLING", "its history is read")
    (id_,) = session.sql("SELECT id FROM rw_catalog.rw_materialized_views WHERE name = 'v'")[0]
    (answer,) = session.sql(f"CANCEL JOBS {id_}")
    assert answer.change == "CANCELLED"
    assert [row.name for row in session.sql("SHOW MATERIALIZED VIEWS")] == ["sibling"]
    topics.produce("s", range(40, 50))
    assert topics.found("sibling") == topics.expected("s")
    _make(session, "v", "SELECT part, place FROM s")
    assert topics.found("v") == topics.expected("s")


def test_a_topic_made_anew_while_its_history_is_read_leaves_the_views_above_as_they_are(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a direct backfill are in the view's own table, which another view reads meanwhile."""
    session, append, made = topics.session, DirectTable.append, list[int]()

    def recreate_between(table: DirectTable, rows: DataFrame, *args: Any, **more: Any) -> None:
        """Creates the topic again, after the state of the upstream was requested and before the chunk is read."""
        if table.held and not made and session.rows_of("w"):
            made.append(1)
            delete_topic(topics.broker.bootstrap, topics.topic("s"))
            topics.create_topic("s")
            topics.produce("s", range(1000, 1100))
        append(table, rows, *args, **more)

    monkeypatch.setattr(DirectTable, "append", recreate_between)
    topics.create_topic("s")
    topics.produce("s", range(40))
    topics.create_source("s")
    session.run(
        "SET background_ddl = true",
        "CREATE MATERIALIZED VIEW v WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 4) AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM v",
        "SET background_ddl = false",
    )
    wait_until(lambda: session.job("v").reason.startswith("RECREATED"), "the backfill has noticed")
    assert made
    rows = session.rows_of("v")
    assert rows
    assert all(id_ < 40 for (id_,) in rows)
    wait_until(lambda: session.rows_of("w") == rows, "the view above has the same rows")
    assert session.job("w").state == "RUNNING"


def test_a_first_live_batch_that_breaks_off_is_taken_up(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Streamed.write
    broken: list[int] = []

    def break_once(view: Streamed, frame: DataFrame, batch: int) -> None:
        if not broken:
            broken.append(batch)
            raise OSError("the disk is full")
        write(view, frame, batch)

    monkeypatch.setattr(Streamed, "write", break_once)
    # No thread takes the query's place.
    monkeypatch.setattr(RowMode, "begin", lambda _: False)
    monkeypatch.setattr(RowMode, "after_batch", lambda *_: None)
    topics.create_topic("s")
    topics.produce("s", range(40))
    topics.create_source("s")
    _make(topics.session, "v", "SELECT part, place FROM s")
    topics.produce("s", range(40, 50))
    wait_until(lambda: topics.found("v") == topics.expected("s"), "the view has taken its batch up again")
    assert broken == [1], "batch 0 stands for the history"
