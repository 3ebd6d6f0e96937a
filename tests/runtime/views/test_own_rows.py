"""A table of a captured database waits for rows of its own, whatever other tables write into the log."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from rw_sql.runtime.delta.delta_log import rows_of_table
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.wakes import Wakes
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views import own_rows
from rw_sql.runtime.views.own_rows import await_own_rows
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.runtime.views.strategy import ViewRun

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "table_name", "type": "string", "nullable": True, "metadata": {}}]}
)


class World:
    """A log with commits of two tables, and a table's checkpoint that has read all of them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warehouse = Warehouse.at(str(path))
        self.log = JobOutput.open(self.warehouse, str(path / "log"), SCHEMA, job="ingest-1", run=1, epoch=1)
        self.wakes, self.over, self.batch, self.at = Wakes(), threading.Event(), 0, 0
        self.checkpoint = str(path / "checkpoint")
        self.pool = ThreadPoolExecutor(1)
        monkeypatch.setattr(own_rows, "upstream_table", lambda _: "public.own")
        given = SimpleNamespace()
        run: Any = SimpleNamespace(
            context=SimpleNamespace(warehouse=self.warehouse, wakes=self.wakes),
            spec=SimpleNamespace(inputs=(given,), job="mv-2"),
            checkpoint=self.checkpoint,
            table_of=lambda _: self.log.path,
        )
        self.run = cast("ViewRun", run)
        self._note_offsets(0)
        self.commit("public.other")
        self._note_offsets(1)

    def commit(self, table: str) -> None:
        """Commits a row of a table into the log."""
        self.log.rows = {table: 1}
        self.log.append_rows(pa.table({"table_name": [table]}), self.batch)
        self.batch += 1

    def _note_offsets(self, batch: int) -> None:
        offset = {"reservoirId": "t", "reservoirVersion": self.log.table.version() + 1, "index": -100}
        self.warehouse.make_folders(f"{self.checkpoint}/offsets")
        self.warehouse.write_text(f"{self.checkpoint}/offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset)}")

    def wait(self) -> Any:
        """Starts to wait in another thread."""
        return self.pool.submit(await_own_rows, self.run, 1, self.over.is_set)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(own_rows, "MOST_SECONDS", LAST_RESORT_SECONDS)
    made = World(tmp_path, monkeypatch)
    yield made
    made.over.set()
    made.pool.shutdown()


def test_commits_of_other_tables_do_not_end_the_wait_and_own_rows_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    found = rows_of_table

    def noted(actions: list[dict[str, Any]], upstream: str) -> int | None:
        rows = found(actions, upstream)
        looked.append(-1 if rows is None else rows)
        return rows

    monkeypatch.setattr(own_rows, "rows_of_table", noted)
    waiting = world.wait()
    for _ in range(3):
        world.commit("public.other")
    wait_until(lambda: looked == [0, 0, 0], "the commits of the other table are read")
    assert not waiting.done()
    world.commit("public.own")
    waiting.result(LAST_RESORT_SECONDS)
    assert looked == [0, 0, 0, 1]


def test_a_commit_that_does_not_name_its_tables_ends_it(world: World) -> None:
    waiting = world.wait()
    world.log.rows = None
    world.log.append_rows(pa.table({"table_name": ["public.other"]}), world.batch)
    waiting.result(LAST_RESORT_SECONDS)


def test_a_stop_ends_it(world: World) -> None:
    waiting = world.wait()
    world.over.set()
    waiting.result(LAST_RESORT_SECONDS)


def test_a_statement_that_waits_for_the_table_ends_it(world: World) -> None:
    waiting = world.wait()
    world.wakes.ask(["mv-3"])
    assert not world.wakes.is_asked("mv-2", LAST_RESORT_SECONDS)
    world.wakes.ask(["mv-2"])
    waiting.result(LAST_RESORT_SECONDS)


def test_it_ends_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rows, "MOST_SECONDS", 0.05)
    world.wait().result(LAST_RESORT_SECONDS)
