"""The progress that a session without a JVM is told while the owner runs its statement."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import PutObject
from rw_sql.metastore.refresh_records import REFRESHING, RefreshRecord
from tests.runtime.remote.remote_sessions import Client, Pair
from tests.support.waits import LAST_RESORT_SECONDS, wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OVER = BackfillProgress(
    job="mv-8", object_id=8, generation=1, phase="live", done=5, total=5, started_ms=1, updated_ms=2, is_over=True
)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A table that is being refreshed."""
    made = Pair(WrittenWarehouse(tmp_path / "warehouse"))
    made.written.commit(PutObject(record=RefreshRecord(id=4, name="t", table_id=3, status=REFRESHING)))
    made.written.metastore.jobs.write_backfill(replace(OVER, job="mv-3", object_id=3, done=2, is_over=False))
    made.written.metastore.jobs.write_backfill(OVER)
    made.server.start()
    yield made
    made.server.stop()


def test_wait_tells_the_progress_of_all_that_is_being_computed(pair: Pair) -> None:
    client = Client(pair.written.uri)
    told: list[BackfillProgress] = []
    client.state.on_progress = told.append
    client.state.parameters["statement_timeout"] = "2000ms"
    assert client.error("WAIT").code == "RW406"
    assert [(progress.job, progress.done, progress.total) for progress in told] == [("mv-3", 2, 5)]


def test_progress_is_told_after_the_statement_of_another_thread(pair: Pair) -> None:
    client = Client(pair.written.uri)
    told: list[BackfillProgress] = []
    client.state.on_progress = told.append
    client.state.parameters["statement_timeout"] = "3000ms"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.run, "WAIT")
        wait_until(lambda: told != [], "progress is told")
        client.run("SHOW SCHEMAS")
        pair.written.metastore.jobs.write_backfill(replace(told[0], done=3, updated_ms=3))
        wait_until(lambda: [progress.done for progress in told] == [2, 3], "later progress is told")
        assert isinstance(waiting.exception(LAST_RESORT_SECONDS), SqlError)
