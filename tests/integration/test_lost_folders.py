"""A folder below ``data`` that is gone: the jobs say so, create nothing in its place, and continue when the folder is
back or after the statements that the reasons name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.runtime.status.doctor import examine
from tests.integration.attached import AttachedSession, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


class World:
    """A source of files with a view that adds rows and a view that counts them. All jobs are stopped at the start of a
    test."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.data, self.away = folder / "in", folder / "away"
        self.data.mkdir()
        self.add_records(range(10))
        self.session = self.attach()
        self.session.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{self.data}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
            "CREATE MATERIALIZED VIEW n AS SELECT id, count(*) AS n FROM s GROUP BY id",
        )
        self.require_each_once(10)
        snapshot = self.session.attached._runtime.context.metastore.snapshot()
        self.ids = {record.name: record.id for kind in ("source", "materialized_view") for record in snapshot.all(kind)}
        self.session.detach()

    def add_records(self, ids: range) -> None:
        """Writes a file with one record per id."""
        text = "".join(json.dumps({"id": id_}) + "\n" for id_ in ids)
        (self.data / f"{ids.start:09}.json").write_text(text, encoding="utf-8")

    def attach(self) -> AttachedSession:
        self.session = AttachedSession(self.spark, str(self.folder / "w"))
        self.session.allow_unsafe()
        return self.session

    def table(self, name: str) -> Path:
        """The folder of an object's table."""
        return self.folder / "w" / "data" / str(self.ids[name])

    def require_each_once(self, end: int) -> None:
        """Fails unless the two views have each id below ``end`` once."""
        assert self.session.flushed_rows_of("m") == [(id_,) for id_ in range(end)]
        assert self.session.rows_of("n") == [(id_, 1) for id_ in range(end)]

    def reason(self, name: str, words: str) -> str:
        """The reason why a job is stalled, once it contains these words."""
        wait_until(lambda: words in self.session.job(name).reason, f"the reason of {name} says {words}")
        assert self.session.job(name).state == "STALLED"
        return self.session.job(name).reason

    def found(self) -> list[str]:
        """The subjects of what doctor finds."""
        return [found.subject for found in examine(self.session.attached._runtime.context)]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    yield made
    made.session.detach()


def test_a_lost_log_stalls_its_source_and_its_readers_until_it_is_back(world: World) -> None:
    world.table("s").rename(world.away)
    session = world.attach()
    for name in ("s", "m", "n"):
        world.reason(name, "LOG lost: the positions of source s are those after version ")
    assert world.found() == ['source "s"']
    with pytest.raises(SqlError, match='the log of source "s" is lost'):
        session.sql("SELECT * FROM `s$errors`")
    assert not world.table("s").exists()
    session.detach()
    world.away.rename(world.table("s"))
    world.add_records(range(10, 20))
    world.attach()
    world.require_each_once(20)
    assert world.found() == []


def test_a_lost_log_is_made_anew_by_the_statements_of_the_reasons(world: World) -> None:
    world.table("s").rename(world.away)
    session = world.attach()
    reason = world.reason("s", "LOG lost")
    reset = reason.partition("read the source again: ")[2].partition(", and then")[0]
    session.run(reset)
    world.add_records(range(10, 20))
    for name in ("m", "n"):
        reason = world.reason(name, "INPUT replaced")
        session.run(reason.rpartition(": ")[2])
    session.run("WAIT")
    world.require_each_once(20)
    assert world.found() == []


@pytest.mark.parametrize("name", ["m", "n"])
def test_a_lost_table_stalls_its_view_until_it_is_rebuilt(world: World, name: str) -> None:
    world.table(name).rename(world.away)
    session = world.attach()
    reason = world.reason(name, "TABLE lost")
    assert world.found() == [f'materialized view "{name}"']
    assert not world.table(name).exists()
    session.run(reason.rpartition("or ")[2], "WAIT")
    world.add_records(range(10, 20))
    world.require_each_once(20)
    assert world.found() == []
