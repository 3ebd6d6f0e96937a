"""The rows of jobs in the metrics and in the rates: the rows that a job changes, not those of the files it rewrites."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.observe import metrics
from rw_sql.runtime.observe.activity import WINDOW_MS, measure_activity
from rw_sql.runtime.observe.commit_numbers import CommitCache, CommitNumbers
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.lag import Lag

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"), written.view(3, "totals", 2))
    return written


@pytest.fixture
def output(written: WrittenWarehouse) -> JobOutput:
    warehouse = Warehouse.at(written.uri)
    return JobOutput.open(warehouse, warehouse.data(3, 1), SCHEMA, job="mv-3", run=1, epoch=1)


def upsert(output: JobOutput, batch: int, ids: Iterable[int], *, is_kept: bool = True) -> None:
    """Commits a batch that adds or replaces the rows with these ids or, without ``is_kept``, deletes them."""
    keys = list(ids)
    output.upsert_rows(pa.table({"id": keys, KEEP: [is_kept] * len(keys)}), ("id",), batch)


def rows_total(counted: Metrics) -> float:
    """The rows of view 3."""
    labels = (("job", "mv-3"), ("object", "totals"))
    return next(
        each.value for each in counted.samples() if each.name == "rw_sql_job_rows_total" and each.labels == labels
    )


def scraped(counted: Metrics) -> dict[str, float]:
    """The metrics of a scrape that are about view 3 or about no job."""
    found = [(each, dict(each.labels).get("job", "mv-3")) for each in counted.readable_samples()]
    return {each.name: each.value for each, job in found if job == "mv-3"}


@pytest.mark.parametrize("is_counted_at_once", [True, False])
def test_a_changed_row_counts_once_although_its_whole_file_is_rewritten(
    written: WrittenWarehouse, output: JobOutput, is_counted_at_once: bool
) -> None:
    counted = Metrics(written.context())
    upsert(output, 0, range(1000))
    if not is_counted_at_once:
        assert rows_total(counted) == 1000
    upsert(output, 1, [5])
    upsert(output, 2, [5, 6], is_kept=False)
    assert rows_total(counted) == 1000 + 1 + 2


def test_rows_that_a_rewind_restores_are_not_rows_of_the_job(written: WrittenWarehouse, output: JobOutput) -> None:
    counted = Metrics(written.context())
    upsert(output, 0, range(1000))
    before = latest_version(output.warehouse, output.path)
    upsert(output, 1, range(1000), is_kept=False)
    assert rows_total(counted) == 2000
    later = JobOutput.reopen(output.warehouse, output.path, job="mv-3", run=2, epoch=3)
    later.restore(before, rewind=3, done=0)
    assert rows_total(counted) == 2000


def test_the_rate_of_a_job_is_that_of_its_changed_rows(written: WrittenWarehouse, output: JobOutput) -> None:
    context = written.context()
    upsert(output, 0, range(600))
    for batch in range(1, 7):
        upsert(output, batch, [batch])
    at = now_ms()
    found = measure_activity(context, context.metastore.snapshot(), at)["mv-3"]
    assert found.rows_per_second == pytest.approx(606 * 1000 / WINDOW_MS)
    assert found.last_ms is not None


def test_rates_are_measured_without_reading_a_commit_twice(
    written: WrittenWarehouse, output: JobOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, read = written.context(), Warehouse.read_text
    snapshot = context.metastore.snapshot()
    upsert(output, 0, range(3))
    found = []

    def noted(self: Warehouse, path: str) -> str:
        found.append(path)
        return read(self, path)

    monkeypatch.setattr(Warehouse, "read_text", noted)
    measure_activity(context, snapshot, now_ms())
    assert found
    found.clear()
    upsert(output, 1, [4])
    found.clear()
    measure_activity(context, snapshot, now_ms())
    version = latest_version(output.warehouse, output.path)
    assert [path for path in found if "_delta_log" in path] == [f"{output.path}/_delta_log/{version:020d}.json"]


def test_rows_are_counted_while_a_scrape_waits_for_the_lags(
    written: WrittenWarehouse, output: JobOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Metrics(written.context())
    measuring, told = threading.Event(), threading.Event()

    def slow(_context: Context, _snapshot: Snapshot, **_: Any) -> dict[str, Lag]:
        measuring.set()
        told.wait(60)
        return {}

    monkeypatch.setattr(metrics, "measure_lag", slow)
    scrape = threading.Thread(target=counted.samples)
    scrape.start()
    assert measuring.wait(60)
    upsert(output, 0, range(3))
    count = threading.Thread(target=counted.count_rows)
    count.start()
    count.join(30)
    is_counted = not count.is_alive()
    told.set()
    scrape.join(60)
    count.join(60)
    assert is_counted, "the count waited for the scrape"
    assert rows_total(counted) == 3


@pytest.mark.parametrize("is_first", [True, False])
def test_a_scrape_does_not_wait_for_the_rows_of_a_slow_store(
    written: WrittenWarehouse, output: JobOutput, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    monkeypatch.setattr(metrics, "_COUNT_LIMIT_SECONDS", 0.1)
    context, reading, told, read = written.context(), threading.Event(), threading.Event(), CommitCache.read
    counted = Metrics(context)
    upsert(output, 0, range(3))
    if not is_first:
        assert rows_total(counted) == 3
    upsert(output, 1, [9])

    def slow(self: CommitCache, table: str, id_: str, version: int) -> CommitNumbers:
        if threading.current_thread() is count:
            reading.set()
            told.wait(60)
        return read(self, table, id_, version)

    monkeypatch.setattr(CommitCache, "read", slow)
    count = threading.Thread(target=counted.count_rows)
    count.start()
    assert reading.wait(60)
    found: dict[str, float] = {}
    scrape = threading.Thread(target=lambda: found.update(scraped(counted)))
    scrape.start()
    scrape.join(30)
    is_done = not scrape.is_alive()
    told.set()
    for thread in (scrape, count):
        thread.join(60)
    assert is_done, "the scrape waited for the count"
    assert {"rw_sql_build_info", "rw_sql_owner_present", "rw_sql_job_state"} <= found.keys()
    assert found.get("rw_sql_job_rows_total") == (None if is_first else 3)
    assert found.get("rw_sql_catalog_readable") == (None if is_first else 1)
    assert rows_total(counted) == 4
    complete = scraped(counted)
    assert (complete["rw_sql_job_rows_total"], complete["rw_sql_catalog_readable"]) == (4, 1)


def test_a_count_that_fails_after_its_scrape_is_reported_by_the_next_one_only(
    written: WrittenWarehouse, output: JobOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_COUNT_LIMIT_SECONDS", 0.1)
    told, read, counted = threading.Event(), CommitCache.read, Metrics(written.context())
    upsert(output, 0, range(3))

    def fails(self: CommitCache, table: str, id_: str, version: int) -> CommitNumbers:
        if threading.current_thread().name != "rw_sql-count-rows":
            return read(self, table, id_, version)
        told.wait(60)
        raise OSError("the store does not respond")

    def is_readable() -> float | None:
        return scraped(counted).get("rw_sql_catalog_readable")

    monkeypatch.setattr(CommitCache, "read", fails)
    assert is_readable() is None
    told.set()
    for thread in threading.enumerate():
        if thread.name == "rw_sql-count-rows":
            thread.join(60)
    monkeypatch.setattr(CommitCache, "read", read)
    monkeypatch.setattr(metrics, "_COUNT_LIMIT_SECONDS", 60)
    assert [is_readable(), is_readable()] == [0, 1]
