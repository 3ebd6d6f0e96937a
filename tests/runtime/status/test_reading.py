"""The status of a warehouse that the metastore wrote, read by a process without Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql import __version__
from rw_sql.errors import METASTORE_IS_NEWER, NO_SESSION, NOT_SUPPORTED, SqlError
from rw_sql.metastore.catalog import load_catalog
from rw_sql.metastore.migrations import require_format
from rw_sql.metastore.records import PauseRecord, PutObject
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.status.page import PageQuery, page_html
from rw_sql.runtime.status.reading import Measures, Observer, OwnerStatus, measure, read_status, statements_in
from rw_sql.runtime.status.words import owner_text
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

REASON = (
    "EXPIRED t:0, 5 records: PAUSE SOURCE orders; INJECT SOURCE OFFSETS orders TO EARLIEST FOR SPLITS ('t:0');"
    " RESUME SOURCE orders"
)


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(
        written.connection(1, "broker"),
        *written.source(2, "orders", uses=(1,)),
        written.view(3, "totals", 2),
        written.sink(4, "out", 3),
    )
    written.commit(
        kind="UNSAFE SET",
        is_unsafe=True,
        statement="ALTER SOURCE orders UNSAFE SET (topic = 'o2')",
        objects=("orders", "totals"),
        reason="moved",
        plan="the plan",
    )
    return written


def test_jobs_owner_and_operations(written: WrittenWarehouse) -> None:
    written.lease(applied=1)
    written.status("ingest-2", "STALLED", reason=REASON, restarts=3)
    written.status("mv-3", "RUNNING")
    table = written.fence("ingest-2", 1)
    written.batch(table, "ingest-2", 1, 0, 5)
    context = written.context()
    status = read_status(context, measure(context, context.metastore.snapshot()))
    assert [(job.object, job.state) for job in status.jobs] == [
        ("orders", "STALLED"),
        ("totals", "RUNNING"),
        ("out", "STARTING"),
    ]
    stalled = status.jobs[0]
    assert stalled.statements == (
        "PAUSE SOURCE orders",
        "INJECT SOURCE OFFSETS orders TO EARLIEST FOR SPLITS ('t:0')",
        "RESUME SOURCE orders",
    )
    assert stalled.last_batch_ms is not None
    assert (stalled.rows_per_second or 0) > 0
    assert (status.owner.state, status.owner.applied_epoch, status.epoch) == ("RUNNING", 1, 2)
    (operation,) = status.operations
    assert (operation.operation, operation.actor, operation.preview) == (2, "ann", "the plan")
    assert [node.name for node in status.lineage.nodes] == ["broker", "orders", "totals", "out"]
    told = json.loads(json.dumps(status.to_json()))
    assert told["jobs"][0]["reason"] == REASON
    assert told["jobs"][0]["last_batch_at"].endswith("Z")
    assert {"warehouse", "version", "at", "measured_at", "epoch", "owner"} < set(told)
    assert not re.search(r'_ms"', json.dumps(told))


def test_without_an_owner_nothing_runs(written: WrittenWarehouse) -> None:
    written.status("mv-3", "RUNNING")
    status = read_status(written.context(), Measures())
    assert (status.owner.state, status.measured_ms) == ("NONE", None)
    assert {job.state for job in status.jobs} == {"STOPPED", "WAITING"}


def test_the_lag_of_a_view_is_the_age_of_the_first_row_it_has_not_read(written: WrittenWarehouse) -> None:
    table = written.fence("ingest-2", 1)
    written.batch(table, "ingest-2", 1, 0, 5)
    written.batch(table, "ingest-2", 1, 1, 2)
    context = written.context()
    at = context.metastore.snapshot()
    read = written.folder / "checkpoints" / "mv-3" / "1"
    for folder in ("offsets", "commits"):
        (read / folder).mkdir(parents=True)
    offset = {"reservoirId": DeltaTable(table).metadata().id, "reservoirVersion": 2, "index": -1}
    (read / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}", encoding="utf-8")
    (read / "commits" / "0").write_text("v1\n{}", encoding="utf-8")
    found = measure(context, at)
    assert found.lags["mv-3"].records == 7
    seconds = found.lags["mv-3"].seconds(found.at_ms or 0)
    assert seconds is not None
    assert 0 <= seconds < 3600
    ahead = found.lags["mv-3"].seconds((found.lags["mv-3"].since_ms or 0) + 90_000)
    assert ahead == 90


def test_reading_writes_nothing(written: WrittenWarehouse) -> None:
    written.metastore.flush(with_upkeep=True)  # what the test itself wrote has its projections
    before = sorted(str(path) for path in written.folder.rglob("*"))
    context = written.context()
    read_status(context, measure(context, context.metastore.snapshot()))
    observer = Observer(context)
    observer.status()
    observer.measured()
    assert sorted(str(path) for path in written.folder.rglob("*")) == before


def test_a_look_migrates_nothing(written: WrittenWarehouse) -> None:
    catalog = load_catalog()
    directory = f"{written.uri}/rw_catalog"
    require_format(directory, catalog)
    with pytest.raises(SqlError) as caught:
        require_format(directory, replace(catalog, migrations=catalog.migrations[:-1]))
    assert caught.value.kind is METASTORE_IS_NEWER
    later = replace(catalog.migrations[-1], number=catalog.number + 1)
    with pytest.raises(SqlError) as caught:
        require_format(directory, replace(catalog, migrations=(*catalog.migrations, later)))
    assert caught.value.kind is NOT_SUPPORTED


def test_what_needs_spark_says_so(written: WrittenWarehouse) -> None:
    with pytest.raises(SqlError) as caught:
        written.context().sessions.new()
    assert caught.value.kind is NO_SESSION


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (REASON, 3),
        (f"{REASON}; retrying", 3),
        ("the broker does not answer: connection refused", 0),
        ("source o: it expired: RESUME SOURCE orders", 1),
        ("FLAPPING: restarted 13 times in 5 s; last failure: row 9 cannot be read", 0),
        ("", 0),
    ],
)
def test_statements_of_a_reason(reason: str, found: int) -> None:
    assert len(statements_in(reason)) == found


def test_the_observer_measures_beside_what_it_shows(written: WrittenWarehouse) -> None:
    table = written.fence("ingest-2", 1)
    written.batch(table, "ingest-2", 1, 0, 5)
    observer = Observer(written.context())
    observer.status()
    observer.measured()
    assert observer.status().measured_ms is not None
    written.commit(PutObject(record=PauseRecord(id=9, name="orders", source_id=2, reason="a rest")))
    states = {job.object: (job.state, job.reason) for job in observer.status().jobs}
    assert states["orders"] == ("PAUSED", "a rest")


def test_rows_count_from_the_start_of_the_run_and_not_from_the_first_look(written: WrittenWarehouse) -> None:
    (run,) = written.metastore.jobs.claim_runs(["ingest-2"], 1, "host-1-ab")
    table = written.fence("ingest-2", run.run)
    written.batch(table, "ingest-2", run.run, 0, 5, errors=2)
    (run,) = written.metastore.jobs.claim_runs(["ingest-2"], 1, "host-1-ab")
    written.fence("ingest-2", run.run)
    written.batch(table, "ingest-2", run.run, 1, 7, errors=1)

    def figures() -> dict[str, float]:
        return {s.name: s.value for s in metrics.samples() if ("job", "ingest-2") in s.labels or not s.labels[1:]}

    metrics = Metrics(written.context())
    found = figures()
    assert (found["rw_sql_job_rows_total"], found["rw_sql_decode_errors_total"]) == (7, 1)
    assert found["rw_sql_job_last_batch_timestamp_seconds"] > 1e9
    written.batch(table, "ingest-2", run.run, 2, 4)
    metrics.count_rows()
    assert figures()["rw_sql_job_rows_total"] == 11


def test_the_page_shows_statements_once_and_explains_the_status(written: WrittenWarehouse) -> None:
    written.lease(applied=1)
    written.status("ingest-2", "STALLED", reason=REASON)
    status = read_status(written.context(), Measures())
    body = page_html(status, PageQuery())
    assert body.count("INJECT SOURCE OFFSETS orders TO EARLIEST") == 1
    assert "5 records (the upstream has removed records before they were read)" in body
    assert f"rw_sql {__version__}," in body
    assert 'aria-current="true">1 STALLED' in page_html(status, PageQuery(state="STALLED"))


def test_a_block_is_shown_by_lines(written: WrittenWarehouse) -> None:
    block = "BEGIN UNSAFE REASON 'a; b'; PAUSE SOURCE orders; COMMIT"
    written.commit(kind="BEGIN UNSAFE", is_unsafe=True, statement=block, objects=("orders",), reason="r", plan="p")
    body = page_html(read_status(written.context(), Measures()), PageQuery())
    assert "BEGIN UNSAFE REASON &#x27;a; b&#x27;;\nPAUSE SOURCE orders;\nCOMMIT;</pre>" in body


def test_the_owners_host_is_a_name() -> None:
    owner = OwnerStatus(state="RUNNING", host="vm 0f3a pid:[402]", pid=7, since_ms=0, applied_epoch=1)
    assert owner_text(owner, 1, 61_000, "/w") == "owner: process 7 on vm, for 1 min 1 s; all statements applied"
