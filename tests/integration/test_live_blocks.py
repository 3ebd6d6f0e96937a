"""BEGIN UNSAFE … COMMIT on running sources: the rows show that the predictions came true."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.integration.world import nothing_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def running(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> Iterator[AttachedSession]:
    """A running source ``s`` on a partition to which records are produced all the time, and a view ``m`` of its ids."""
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": at} for at in range(50)])
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
        "FLUSH",
    )
    done = threading.Event()

    def produce() -> None:
        at = 50
        while not done.wait(0.05):
            produce_json(broker.bootstrap, topic_name, [{"id": at}, {"id": at + 1}])
            at += 2

    producing = threading.Thread(target=produce, daemon=True)
    producing.start()
    yield session
    done.set()
    producing.join()


def repeated(session: AttachedSession) -> Counter[int]:
    """How often each id is repeated in the view; none may be missing."""
    found = Counter(id_ for (id_,) in session.flushed_rows_of("m"))
    assert set(found) == set(range(max(found) + 1))
    return Counter({id_: times - 1 for id_, times in found.items() if times > 1})


def test_a_block_repeats_what_it_says_while_the_source_never_stops_getting_records(running: AttachedSession) -> None:
    operations = running.epoch()
    running.run("BEGIN UNSAFE REASON 'a bad deployment'", "PAUSE SOURCE s")
    assert [row.change for row in running.sql("INJECT SOURCE OFFSETS s TO SHIFT -20")] == ["INJECTED", "NOTICE"]
    # Inside the block, its statements already have an effect; outside, the source runs on.
    assert running.sql("SHOW SOURCES")[0].state == "PAUSED"
    states = [running.attached.block_state]
    reached = running.positions("s")
    running.run("RESUME SOURCE s", "COMMIT")
    assert [*states, running.attached.block_state] == ["open", None]
    (question,) = running.questions
    assert "in all: DUPLICATES 20, GAP 0" in question.preview
    assert "BEGIN UNSAFE … COMMIT, 3 statements of source s" in question.preview
    assert running.epoch() == operations + 1
    assert sum(repeated(running).values()) == 20
    audit = running.sql("SHOW UNSAFE OPERATIONS")[0]
    assert (audit.kind, audit.reason, audit.outcome) == ("BEGIN UNSAFE", "a bad deployment", "applied")
    assert reached.keys() == running.positions("s").keys()


def test_an_error_aborts_a_block_and_rollback_leaves_all_as_it_was(running: AttachedSession) -> None:
    running.run("PAUSE SOURCE s")
    with nothing_changes(running.warehouse):
        running.run("BEGIN UNSAFE", "RESUME SOURCE s")
        with pytest.raises(SqlError, match="must be paused"):
            running.sql("INJECT SOURCE OFFSETS s TO EARLIEST")
        states = [running.attached.block_state]
        with pytest.raises(SqlError, match="ignored until ROLLBACK"):
            running.sql("SHOW SOURCES")
        assert running.sql("ROLLBACK")[0].change == "ROLLBACK"
        # A statement that is misspelt aborts the block as well.
        running.run("BEGIN UNSAFE", "RESUME SOURCE s")
        with pytest.raises(SqlError, match="found: SOURCES"):
            running.sql("RESUME SOURCES s")
        with pytest.raises(SqlError, match="none of its statements took effect"):
            running.sql("COMMIT")
        assert [*states, running.attached.block_state] == ["aborted", None]
        assert running.sql("COMMIT")[0].detail == "no block is in progress"


def test_a_commit_that_nobody_confirms_leaves_the_source_running(running: AttachedSession) -> None:
    running.attached.ask = None
    epoch = running.epoch()
    running.run("BEGIN UNSAFE", "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO SHIFT -7", "RESUME SOURCE s")
    with pytest.raises(SqlError) as caught:
        running.sql("COMMIT")
    assert caught.value.code == "RW304"
    assert "DUPLICATES 7" in str(caught.value)
    assert running.epoch() == epoch
    wait_until(lambda: running.job("s").state == "RUNNING", "the reader continues")
    assert not repeated(running)
    token = re.search(r"CONFIRM '(\w+)'", caught.value.hint or "")
    assert token is not None
    running.sql(f"CONFIRM '{token[1]}'")
    assert sum(repeated(running).values()) == 7
