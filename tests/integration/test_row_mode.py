"""Row-by-row views whose small batches are written by a thread, and large ones by a streaming query."""

from __future__ import annotations

import json
from random import Random
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic
from rw_sql.cli.servers.kafka_topics import produce as produce_records
from rw_sql.runtime.delta import young_table
from rw_sql.runtime.jobs import batch_mode
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.views.job import View
from tests.integration.attached import AttachedSession, has_thread, produce_json, queries, restarted, wait_until
from tests.support.ageing import PAUSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

QUERY = "SELECT id, upper(word) AS word, id % 3 AS third FROM s WHERE id % 5 <> 0"


@pytest.fixture
def produce(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> Callable[[int], None]:
    """Adds records with the next ids to the topic of the source ``s``."""
    create_topic(broker.bootstrap, topic_name, 2)
    session.run(
        f"CREATE SOURCE s (id INT, word VARCHAR) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
    )
    made = 0

    def more(count: int) -> None:
        nonlocal made
        produce_json(
            broker.bootstrap, topic_name, ({"id": id_, "word": f"w{id_}"} for id_ in range(made, made + count))
        )
        made += count

    return more


def rows_for(count: int) -> list[tuple[Any, ...]]:
    return sorted((id_, f"W{id_}", id_ % 3) for id_ in range(count) if id_ % 5)


def test_a_new_view_begins_with_the_thread(
    session: AttachedSession, produce: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "_start_query", None)
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    for number in range(1, 4):
        produce(4)
        assert session.flushed_rows_of("v") == rows_for(4 * number)
        assert has_thread(session, "v")
    session.run("PAUSE SOURCE s", "RESUME SOURCE s")
    produce(3)
    assert session.flushed_rows_of("v") == rows_for(15)
    assert has_thread(session, "v")


def test_a_view_of_old_commits_begins_with_a_query(
    session: AttachedSession, produce: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(young_table, "MOST_COMMITS", 2)
    session.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM s")
    for _ in range(3):
        produce(3)
        session.run("FLUSH")
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    assert session.flushed_rows_of("v") == rows_for(9)
    assert not has_thread(session, "v")
    produce(2)
    assert session.flushed_rows_of("v") == rows_for(11)
    wait_until(lambda: has_thread(session, "v"), "the thread has taken the query's place")
    produce(4)
    assert session.flushed_rows_of("v") == rows_for(15)


def test_a_batch_without_rows_is_progress(session: AttachedSession, produce: Callable[[int], None]) -> None:
    session.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s WHERE id < 2")
    for number in range(1, 5):
        produce(3)
        assert session.flushed_rows_of("v") == [(0,), (1,)]
        wait_until(lambda: has_thread(session, "v"), f"the thread after batch {number}")


def test_a_restart_continues_with_the_thread_where_the_last_run_ended(
    session: AttachedSession, produce: Callable[[int], None]
) -> None:
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    produce(5)
    session.run("FLUSH")
    for number, pause in enumerate(PAUSES.values(), 2):
        session = restarted(session, pause)
        produce(5)
        assert session.flushed_rows_of("v") == rows_for(5 * number)
        assert has_thread(session, "v")


def test_a_thread_takes_the_place_of_a_query_while_records_keep_arriving(
    session: AttachedSession, produce: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 30)
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
    produce(200)
    session.run("FLUSH")
    made, is_over = 200, Event()

    def add() -> None:
        nonlocal made
        while not is_over.wait(0.03):
            produce(1)
            made += 1

    adding = Thread(target=add)
    adding.start()
    try:
        wait_until(lambda: has_thread(session, "v"), "the thread")
    finally:
        is_over.set()
        adding.join()
    assert session.flushed_rows_of("v") == rows_for(made)


@pytest.mark.long
def test_random_sizes_and_restarts(
    session: AttachedSession,
    produce: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """With a limit of 30 rows, batches go back and forth between the thread and the query."""
    random, made, left = Random(seed), 0, 0
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 30)
    leave = batch_mode.BatchMode.leave

    def noted(mode: batch_mode.BatchMode, reason: batch_mode.LeftToSparkError) -> None:
        nonlocal left
        left += 1
        leave(mode, reason)

    monkeypatch.setattr(batch_mode.BatchMode, "leave", noted)
    monkeypatch.setattr(batch_mode, "MOST_NEEDED", 2)
    session.run(f"CREATE MATERIALIZED VIEW v AS {QUERY}", "CREATE MATERIALIZED VIEW w AS SELECT id, word FROM v")
    for _ in range(25):
        count = random.choice((0, 1, 5, 20, 29, 60, 200))
        produce(count)
        made += count
        if random.random() < 0.15:
            session = restarted(session)
        elif random.random() < 0.6:
            session.run("FLUSH")
    assert session.flushed_rows_of("v") == rows_for(made)
    assert session.rows_of("w") == [row[:2] for row in rows_for(made)]
    assert left


def test_an_error_of_the_query_is_told_as_by_a_query(session: AttachedSession, produce: Callable[[int], None]) -> None:
    session.run("CREATE MATERIALIZED VIEW v AS SELECT id, 100 div (id - 5) AS n FROM s")
    produce(3)
    session.run("FLUSH")
    wait_until(lambda: has_thread(session, "v"), "the thread")
    produce(3)
    wait_until(lambda: "[DIVIDE_BY_ZERO] Division by zero" in session.job("v").reason, "the error in SHOW JOBS")


def test_a_view_with_state_or_time_keeps_its_query(session: AttachedSession, produce: Callable[[int], None]) -> None:
    session.run(
        "CREATE MATERIALIZED VIEW counts AS SELECT id % 2 AS k, count(DISTINCT id) AS n FROM s GROUP BY 1",
        "CREATE MATERIALIZED VIEW words AS SELECT id, explode(split(word, '')) AS letter FROM s",
    )
    for _ in range(3):
        produce(2)
        session.run("FLUSH")
    assert {session.job("counts").job, session.job("words").job} <= queries(session)
    assert session.rows_of("counts") == [(0, 3), (1, 3)]


class Keyed:
    """The records of the topic of a table ``t`` with the format UPSERT, and the rows that they make."""

    def __init__(self, session: AttachedSession, broker: BrokerInfo, topic: str, seed: int) -> None:
        create_topic(broker.bootstrap, topic, 2)
        session.run(
            f"CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT UPSERT ENCODE JSON"
        )
        self._broker, self._topic, self._random = broker, topic, Random(seed)
        self.rows: dict[int, str] = {}

    def add(self, count: int) -> None:
        """Adds ``count`` records with random keys; every fourth of them deletes its key."""
        made = []
        for number in range(count):
            id_, word = self._random.randrange(12), f"w{self._random.randrange(10**6)}"
            if number % 4 == 3:
                self.rows.pop(id_, None)
                made.append(Record(value=None, key=json.dumps({"id": id_}).encode()))
            else:
                self.rows[id_] = word
                row, key = {"id": id_, "word": word}, {"id": id_}
                made.append(Record(value=json.dumps(row).encode(), key=json.dumps(key).encode()))
        produce_records(self._broker.bootstrap, self._topic, made)


@pytest.fixture
def keyed(session: AttachedSession, broker: BrokerInfo, topic_name: str, seed: int) -> Keyed:
    return Keyed(session, broker, topic_name, seed)


def test_a_thread_writes_the_last_records_of_a_table(
    session: AttachedSession, keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "_start_query", None)
    for count in (8, 1, 30, 4):
        keyed.add(count)
        assert session.flushed_rows_of("t") == sorted(keyed.rows.items())
        assert has_thread(session, "t")
    session = restarted(session, PAUSES["an hour later"])
    keyed.add(5)
    assert session.flushed_rows_of("t") == sorted(keyed.rows.items())


@pytest.mark.long
def test_random_records_of_a_table(
    session: AttachedSession, keyed: Keyed, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With a limit of 30 rows, batches go back and forth between the thread and the query."""
    random = Random(seed)
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", 30)
    monkeypatch.setattr(batch_mode, "MOST_NEEDED", 2)
    session.run("CREATE MATERIALIZED VIEW w AS SELECT id % 2 AS odd, count(*) AS n FROM t GROUP BY id % 2")
    for _ in range(20):
        keyed.add(random.choice((1, 5, 20, 29, 60, 200)))
        if random.random() < 0.15:
            session = restarted(session, random.choice((0.0, *PAUSES.values())))
        elif random.random() < 0.6:
            assert session.flushed_rows_of("t") == sorted(keyed.rows.items())
    assert session.flushed_rows_of("t") == sorted(keyed.rows.items())
    odd = [id_ % 2 for id_ in keyed.rows]
    assert dict(session.rows_of("w")) == {part: odd.count(part) for part in {*odd}}
