"""A view that is created later gets the earlier records once, and all later ones."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, delete_records, produce
from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("quick_discovery"), pytest.mark.long]

PARTITIONS = 2
START = 1_700_000_000


@dataclass(slots=True)
class Topic:
    """A topic, the source ``s`` on it, and which records it got: (partition, offset)."""

    session: AttachedSession
    broker: BrokerInfo
    name: str
    ends: dict[int, int] = field(default_factory=dict)

    def create(self, mode: str = "earliest", source: str = "s") -> None:
        if not self.ends:
            create_topic(self.broker.bootstrap, self.name, PARTITIONS)
            self.ends = dict.fromkeys(range(PARTITIONS), 0)
            self.produce(40)
        self.session.allow_unsafe()
        self.session.sql(
            f"""CREATE SOURCE {source} (id BIGINT, at TIMESTAMPTZ)
            INCLUDE partition AS part INCLUDE offset AS place WITH (
                connector = 'kafka', topic = '{self.name}', properties.bootstrap.server = '{self.broker.bootstrap}',
                scan.startup.mode = '{mode}'
            ) FORMAT PLAIN ENCODE JSON"""
        )

    def produce(self, count: int) -> None:
        """That many records to each partition; a partition with a higher number has earlier times."""
        records = [
            Record(
                value=json.dumps({"id": place, "at": f"2023-11-14 22:{50 - number * 7 - place % 7}:00Z"}).encode(),
                partition=number,
            )
            for number, end in self.ends.items()
            for place in range(end, end + count)
        ]
        produce(self.broker.bootstrap, self.name, records)
        self.ends = {number: end + count for number, end in self.ends.items()}

    def records(self) -> Counter[tuple[str, str]]:
        """Each record once."""
        return Counter((str(number), str(place)) for number, end in self.ends.items() for place in range(end))

    def make(self, view: str, options: str = "", columns: str = "part, place") -> None:
        given = f" WITH ({options})" if options else ""
        self.session.sql(f"CREATE MATERIALIZED VIEW {view}{given} AS SELECT {columns} FROM s")

    def rows(self, view: str, *, is_flushed: bool = True) -> Counter[tuple[str, str]]:
        if is_flushed:
            self.session.sql("FLUSH")
        return Counter(self.session.rows_of(view))

    def is_read(self) -> bool:
        """True if the source has read to the ends."""
        return [self.session.positions("s")[f"{self.name}:{number}"] for number in self.ends] == [*self.ends.values()]

    def move(self, *statements: str) -> None:
        self.session.run("PAUSE SOURCE s", *statements, "RESUME SOURCE s")


@pytest.fixture
def topic(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> Topic:
    return Topic(session=session, broker=broker, name=topic_name)


def test_after_a_rewind_an_old_view_has_records_twice_and_a_new_one_once(topic: Topic) -> None:
    topic.create()
    topic.make("old")
    assert topic.rows("old") == topic.records()
    topic.move("INJECT SOURCE OFFSETS s VALUES ('0' = 10) ALLOW DUPLICATES")
    topic.session.sql("FLUSH")
    topic.make("new")
    topic.session.sql("CREATE MATERIALIZED VIEW counted AS SELECT part, count(*) AS n FROM s GROUP BY part")
    topic.produce(5)
    twice = Counter({("0", str(place)): 1 for place in range(10, 40)})
    assert topic.rows("old") == topic.records() + twice
    assert topic.rows("new") == topic.records()
    assert topic.session.rows_of("counted") == [("0", 45), ("1", 45)]
    # All of them see the next rewind.
    topic.move("INJECT SOURCE OFFSETS s VALUES ('1' = 40) ALLOW DUPLICATES")
    again = Counter({("1", str(place)): 1 for place in range(40, 45)})
    assert topic.rows("new") == topic.records() + again
    assert topic.session.rows_of("counted") == [("0", 45), ("1", 50)]


def test_earliest_latest_and_a_time_over_a_source_that_began_at_the_end(topic: Topic) -> None:
    topic.create(mode="latest")
    topic.produce(10)
    topic.make("all_of_it", "scan.startup.mode = 'earliest'")
    topic.make("since", "scan.startup.mode = 'latest'")
    topic.make("plain")
    add_partitions(topic.broker.bootstrap, topic.name, PARTITIONS + 1)
    topic.ends[PARTITIONS] = 0
    topic.produce(10)
    wait_until(lambda: len(topic.session.positions("s")) == PARTITIONS + 1, "the new partition is read")
    assert topic.rows("all_of_it") == topic.records()
    later = Counter({record: 1 for record in topic.records() if record[0] == str(PARTITIONS) or int(record[1]) >= 40})
    assert topic.rows("since") == later
    assert topic.rows("plain") == later


def test_latest_leaves_out_what_the_reader_is_still_to_read(topic: Topic) -> None:
    topic.create()
    topic.make("since", "scan.startup.mode = 'latest'")
    topic.produce(3)
    assert topic.rows("since") == Counter({record: 1 for record in topic.records() if int(record[1]) >= 40})
    # Records that an operator has had read again are new to all views, wherever these began.
    topic.move("INJECT SOURCE OFFSETS s VALUES ('0' = 38) ALLOW DUPLICATES")
    again = Counter({("0", str(place)): 1 for place in range(38, 43)})
    assert topic.rows("since") == Counter({r: 1 for r in topic.records() if int(r[1]) >= 40}) + again


def test_operations_while_history_is_read_give_every_view_the_same_rows(topic: Topic) -> None:
    topic.create(mode="latest")
    topic.make("old")
    topic.session.run(
        "SET background_ddl = true",
        "CREATE MATERIALIZED VIEW slow WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 0) "
        "AS SELECT part, place FROM s",
        "SET background_ddl = false",
    )
    topic.produce(10)
    wait_until(lambda: topic.session.job("slow").state == "BACKFILLING", "history is read")
    wait_until(topic.is_read, "the source has read to the ends")
    topic.move("INJECT SOURCE OFFSETS s VALUES ('0' = 45) ALLOW DUPLICATES")
    topic.session.sql("RESET SOURCE SPLITS s")
    wait_until(topic.is_read, "the source has read on")
    topic.session.sql("ALTER MATERIALIZED VIEW slow SET BACKFILL_RATE_LIMIT = DEFAULT")
    topic.session.sql("WAIT MATERIALIZED VIEW slow")
    live = topic.rows("old")
    history = Counter({record: 1 for record in topic.records() if int(record[1]) < 40})
    assert topic.rows("slow") == history + live
    assert live == Counter({r: 1 for r in topic.records() if int(r[1]) >= 40}) + Counter(
        {("0", str(place)): 1 for place in range(45, 50)}
    )


def test_history_that_expires_before_it_is_read_is_reported_and_rebuilt(topic: Topic) -> None:
    topic.create(mode="latest")
    topic.make("old")
    topic.session.run(
        "SET background_ddl = true",
        "CREATE MATERIALIZED VIEW slow WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 0) "
        "AS SELECT part, place FROM s",
        "SET background_ddl = false",
    )
    wait_until(lambda: topic.session.job("slow").state == "BACKFILLING", "history is read")
    delete_records(topic.broker.bootstrap, topic.name, {0: 12})
    topic.session.sql("ALTER MATERIALIZED VIEW slow SET BACKFILL_RATE_LIMIT = DEFAULT")
    wait_until(lambda: topic.session.job("slow").state == "STALLED", "the view cannot have its history")
    remedy = "REBUILD MATERIALIZED VIEW slow"
    assert topic.session.job("slow").reason.startswith(f"EXPIRED {topic.name}:0, 12 records of history: {remedy}")
    topic.produce(5)
    live = Counter({record: 1 for record in topic.records() if int(record[1]) >= 40})
    assert topic.rows("old") == live
    topic.session.run(remedy, "WAIT MATERIALIZED VIEW slow")
    gone = {("0", str(place)) for place in range(12)}
    assert topic.rows("slow") == Counter({record: 1 for record in topic.records() if record not in gone})


@pytest.mark.long
def test_datagen_has_a_history_too(session: AttachedSession) -> None:
    session.allow_unsafe()
    session.run(
        "CREATE SOURCE g (id BIGINT) "
        "WITH (connector = 'datagen', datagen.rows.total = '1000', datagen.split.num = '2')",
        "CREATE MATERIALIZED VIEW old AS SELECT id FROM g",
        "FLUSH",
        "PAUSE SOURCE g",
        "INJECT SOURCE OFFSETS g TO EARLIEST ALLOW DUPLICATES",
        "RESUME SOURCE g",
        "FLUSH",
        "CREATE MATERIALIZED VIEW new AS SELECT id FROM g",
        "FLUSH",
    )
    assert session.sql("SELECT count(*) AS n, count(DISTINCT id) AS m FROM old")[0].n == 2000
    assert session.sql("SELECT count(*) AS n FROM new")[0].n == 1000
