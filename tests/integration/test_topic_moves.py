"""A running source moves to other topics and brokers: its views keep their state, and every row is as predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import add_partitions, create_topic, delete_topic
from tests.integration.attached import produce_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("quick_discovery"), pytest.mark.long]

OLD_PARTITIONS = 2


@dataclass(slots=True)
class MovingSource:
    """A source ``s`` with a keyed view ``how_often`` (id, n) over it, and the expected rows of its views."""

    session: AttachedSession
    broker: BrokerInfo

    def create(self, topic: str, mode: str = "earliest") -> None:
        self.session.allow_unsafe()
        self.session.run(
            f"""CREATE SOURCE s (id INT) INCLUDE partition AS part WITH (
                connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{self.broker.bootstrap}',
                scan.startup.mode = '{mode}'
            ) FORMAT PLAIN ENCODE JSON""",
            "CREATE MATERIALIZED VIEW how_often AS SELECT id, count(*) AS n FROM s GROUP BY id",
        )

    def produce(self, topic: str, ids: Iterable[int], partition: int | None = None) -> None:
        produce_json(self.broker.bootstrap, topic, [{"id": id_} for id_ in ids], partition)

    def counts(self) -> dict[int, int]:
        return dict(self.session.flushed_rows_of("how_often"))

    def runs(self) -> tuple[int | None, int | None]:
        """The runs of the source's reader and of the view."""
        jobs = self.session.jobs()
        assert jobs["how_often"].restarts == 0
        return jobs["s"].run, jobs["how_often"].run

    def state(self) -> str:
        return self.session.job("s").state

    def reason(self) -> str:
        return self.session.job("s").reason

    def wait_for_state(self, state: str) -> None:
        wait_until(lambda: self.state() == state, f"source s is {state}")


@pytest.fixture
def moving(session: AttachedSession, broker: BrokerInfo) -> MovingSource:
    session.let_no_job_rest()
    return MovingSource(session=session, broker=broker)


def once(*ids: Iterable[int]) -> dict[int, int]:
    """Each of these ids, once."""
    return {id_: 1 for group in ids for id_ in group}


MOVES = ((1, True), (1, False), (3, True), (3, True), (2, False), (3, False))
"""The partitions of each topic to which the source moves, and whether its splits are reset: to fewer, as many and more
partitions than before, each with and without a reset."""


def test_the_moves_are_all_that_there_are() -> None:
    had = [OLD_PARTITIONS, *(partitions for partitions, _ in MOVES)]
    kinds = {((new > old) - (new < old), is_reset) for old, (new, is_reset) in zip(had[:-1], MOVES, strict=True)}
    assert kinds == {(difference, is_reset) for difference in (-1, 0, 1) for is_reset in (True, False)}


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_topic_moves(moving: MovingSource, topic_name: str, mode: str) -> None:
    old = f"{topic_name}.0"
    create_topic(moving.broker.bootstrap, old, OLD_PARTITIONS)
    moving.produce(old, range(-5, 0))
    moving.create(old, mode)
    for partition in range(OLD_PARTITIONS):
        moving.produce(old, range(partition * 10, partition * 10 + 5), partition)
    expected = once(range(5), range(10, 15)) | (once(range(-5, 0)) if mode == "earliest" else {})
    assert moving.counts() == expected

    orphans: dict[str, str] = {}
    had = OLD_PARTITIONS
    for number, (partitions, is_reset) in enumerate(MOVES, start=1):
        new, first = f"{topic_name}.{number}", 1000 * number
        create_topic(moving.broker.bootstrap, new, partitions)
        moving.produce(new, range(first, first + 6))
        run, view_run = moving.runs()
        alter = f"ALTER SOURCE s UNSAFE SET (topic = '{new}')"
        if is_reset:
            moving.session.run("PAUSE SOURCE s", alter, "RESET SOURCE SPLITS s", "RESUME SOURCE s")
        else:
            moving.session.run(alter)

        moving.produce(old, range(first + 900, first + 906))
        for partition in range(partitions):
            moving.produce(new, range(first + 200 + partition * 10, first + 205 + partition * 10), partition)
        # The view kept its state: an id that the topics before had is counted on.
        moving.produce(new, [0])
        expected |= once(*(range(first + 200 + part * 10, first + 205 + part * 10) for part in range(partitions)))
        expected |= {0: number + 1}
        if mode == "earliest":
            expected |= once(range(first, first + 6))
        assert moving.counts() == expected
        assert moving.runs() == ((run or 0) + 1, view_run)

        orphans = {} if is_reset else orphans | {f"{old}:{part}": "ORPHAN" for part in range(had)}
        statuses = moving.session.split_statuses("s")
        assert statuses == {f"{new}:{part}": "OK" for part in range(partitions)} | orphans
        old, had = new, partitions


def test_moved_back_without_reset_it_continues_where_it_left(moving: MovingSource, topic_name: str) -> None:
    old, new = f"{topic_name}.old", f"{topic_name}.new"
    for topic in (old, new):
        create_topic(moving.broker.bootstrap, topic, 2)
    moving.create(old)
    moving.produce(old, range(10))
    assert moving.counts() == once(range(10))
    moving.session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{new}')")
    moving.produce(old, range(10, 20))
    moving.produce(new, range(100, 110))
    assert moving.counts() == once(range(10), range(100, 110))
    moving.session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{old}')")
    moving.produce(new, range(110, 120))
    assert moving.counts() == once(range(20), range(100, 110))
    moving.session.run("PAUSE SOURCE s", "RESET SOURCE SPLITS s", f"ALTER SOURCE s UNSAFE SET (topic = '{new}')")
    # RESET discarded the orphans: a topic that the source names again starts as if it were new.
    moving.session.run("RESUME SOURCE s")
    assert moving.counts() == once(range(20), range(110, 120)) | dict.fromkeys(range(100, 110), 2)


def test_reset_of_a_running_source_changes_nothing_where_every_split_still_exists(
    moving: MovingSource, topic_name: str
) -> None:
    create_topic(moving.broker.bootstrap, topic_name, 2)
    moving.create(topic_name)
    moving.produce(topic_name, range(10))
    assert moving.counts() == once(range(10))
    runs, positions = moving.runs(), moving.session.positions("s")
    answers = [tuple(row) for row in moving.session.sql("RESET SOURCE SPLITS s")]
    assert [change for _, change, _ in answers] == ["KEPT", "KEPT", "NOTHING"]
    assert (moving.runs(), moving.session.positions("s")) == (runs, positions)
    forget = moving.session.sql("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    assert [row.change for row in forget] == ["STARTED", "STARTED"]
    assert moving.counts() == dict.fromkeys(range(10), 2)


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_another_broker(moving: MovingSource, second_broker: BrokerInfo, topic_name: str, mode: str) -> None:
    for bootstrap in (moving.broker.bootstrap, second_broker.bootstrap):
        create_topic(bootstrap, topic_name, 2)
    moving.create(topic_name, mode)
    moving.produce(topic_name, range(10))
    assert moving.counts() == once(range(10))
    _, view_run = moving.runs()
    elsewhere = MovingSource(session=moving.session, broker=second_broker)
    # Enough records that a wrong continuation by number would find offsets to read.
    elsewhere.produce(topic_name, range(100, 150))

    answers = moving.session.sql(
        f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{second_broker.bootstrap}')"
    )
    assert any("OTHER_CLUSTER" in row.detail for row in answers)
    moving.wait_for_state("STALLED")
    assert "OTHER_CLUSTER" in moving.reason()
    assert "RESET SOURCE SPLITS s" in moving.reason()
    assert set(moving.session.split_statuses("s").values()) == {"OTHER_CLUSTER"}
    assert moving.counts() == once(range(10))

    moving.session.run("RESET SOURCE SPLITS s")
    elsewhere.produce(topic_name, range(200, 205))
    moving.produce(topic_name, range(900, 905))
    from_elsewhere = once(range(200, 205)) | (once(range(100, 150)) if mode == "earliest" else {})
    assert moving.counts() == once(range(10)) | from_elsewhere
    assert set(moving.session.split_statuses("s").values()) == {"OK"}
    assert moving.runs()[1] == view_run


def test_another_address_of_the_same_broker_keeps_the_positions(moving: MovingSource, topic_name: str) -> None:
    create_topic(moving.broker.bootstrap, topic_name, 2)
    moving.create(topic_name)
    moving.produce(topic_name, range(10))
    assert moving.counts() == once(range(10))
    run, view_run = moving.runs()
    alias = moving.broker.bootstrap.replace("127.0.0.1", "localhost")
    answers = moving.session.sql(f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{alias}')")
    assert [row.change for row in answers] == ["ALTERED"]
    moving.produce(topic_name, range(10, 20))
    assert moving.counts() == once(range(20))
    assert moving.runs() == ((run or 0) + 1, view_run)


def test_an_address_that_nobody_answers_at_keeps_the_positions(
    moving: MovingSource, second_broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(moving.broker.bootstrap, topic_name, 2)
    moving.create(topic_name)
    moving.produce(topic_name, range(10))
    assert moving.counts() == once(range(10))
    set_address = "ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{}', properties.sync.call.timeout = '1s')"
    moving.session.run(set_address.format("127.0.0.1:1") + " WITH (VALIDATE = false)")
    moving.wait_for_state("STALLED")
    assert "UNREACHABLE" in moving.reason()
    assert set(moving.session.split_statuses("s").values()) == {"UNKNOWN"}
    moving.produce(topic_name, range(10, 20))
    moving.session.run(set_address.format(moving.broker.bootstrap))
    moving.wait_for_state("RUNNING")
    assert moving.counts() == once(range(20))


def test_a_recreated_topic_stalls_until_reset(moving: MovingSource, topic_name: str) -> None:
    create_topic(moving.broker.bootstrap, topic_name, 2)
    moving.create(topic_name)
    moving.produce(topic_name, range(10))
    assert moving.counts() == once(range(10))
    _, view_run = moving.runs()

    delete_topic(moving.broker.bootstrap, topic_name)
    create_topic(moving.broker.bootstrap, topic_name, 2)
    moving.produce(topic_name, range(100, 150))
    wait_until(lambda: "RECREATED" in moving.reason(), "the source says that its topic was made again")
    assert moving.state() == "STALLED"
    assert "RESET SOURCE SPLITS s" in moving.reason()
    assert set(moving.session.split_statuses("s").values()) == {"RECREATED"}
    assert moving.counts() == once(range(10))
    # Neither a pause nor a restart of the process makes the source continue by number.
    moving.session.run("PAUSE SOURCE s", "RESUME SOURCE s")
    wait_until(lambda: "RECREATED" in moving.reason(), "the source says so again")
    assert moving.counts() == once(range(10))

    moving.session.run("RESET SOURCE SPLITS s")
    assert moving.counts() == once(range(10), range(100, 150))
    assert moving.runs()[1] == view_run
    assert moving.state() == "RUNNING"


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_partitions_added_to_the_topic_are_read_from_their_beginning(
    moving: MovingSource, topic_name: str, mode: str
) -> None:
    create_topic(moving.broker.bootstrap, topic_name, 1)
    moving.create(topic_name, mode)
    moving.produce(topic_name, range(5))
    assert moving.counts() == once(range(5))
    _, view_run = moving.runs()
    add_partitions(moving.broker.bootstrap, topic_name, 3)
    for partition in range(3):
        moving.produce(topic_name, range(100 + partition * 10, 105 + partition * 10), partition)
    wait_until(
        lambda: set(moving.session.split_statuses("s").values()) == {"OK"} and len(moving.session.positions("s")) == 3,
        "the new partitions are assigned",
    )
    assert moving.counts() == once(range(5), *(range(100 + part * 10, 105 + part * 10) for part in range(3)))
    assert moving.runs()[1] == view_run
    (operation,) = moving.session.sql("SELECT kind, actor FROM rw_catalog.rw_operations WHERE kind LIKE 'DISCOVER%'")
    assert operation.kind == "DISCOVER SPLITS"
