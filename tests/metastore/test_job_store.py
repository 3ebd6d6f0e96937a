from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rw_sql.assets import list_assets, read_asset
from rw_sql.metastore import Metastore
from rw_sql.metastore.catalog import Catalog, parse_catalog
from rw_sql.metastore.facts import ASKED, TAKEN, BackfillProgress, JobStatus, NotedPosition, Request
from rw_sql.metastore.job_store import JobStore
from rw_sql.metastore.refresh_records import RefreshChunk
from rw_sql.metastore.table import UPKEEP_EVERY, CommitConflict, StoredTable
from tests.metastore.metastore_model import Make

if TYPE_CHECKING:
    import pyarrow as pa


@pytest.fixture
def other(metastore: Metastore, warehouse: str) -> Metastore:
    """A second process's view of the same warehouse."""
    return Metastore.open(warehouse)


def test_the_lease_goes_to_one(metastore: Metastore, other: Metastore, make: Make) -> None:
    mine, theirs = metastore.jobs, other.jobs
    first, second = make.lease("first"), make.lease("second", at=5)
    assert mine.lease() is None
    assert mine.take_lease(first, None)
    assert not theirs.take_lease(second, None)
    assert theirs.lease() == first
    renewed = replace(first, heartbeat_ms=7, applied_epoch=3)
    assert mine.renew_lease(renewed)
    # The first look was before the heartbeat, so it is out of date.
    assert not theirs.take_lease(second, first)
    assert theirs.take_lease(second, renewed)
    assert not mine.renew_lease(renewed)
    assert not mine.release_lease(renewed)
    assert mine.lease() == second
    assert theirs.release_lease(second)
    assert mine.lease() == replace(second, is_released=True)
    assert not theirs.renew_lease(second)
    assert mine.take_lease(first, mine.lease())
    assert metastore.snapshot().epoch == 0


def test_a_taken_lease_is_lost_even_to_the_same_owner_again(metastore: Metastore, make: Make) -> None:
    runtime = metastore.jobs
    earlier, later = make.lease("same", at=1), make.lease("same", at=2)
    assert runtime.take_lease(earlier, None)
    assert runtime.take_lease(later, earlier)
    assert not runtime.renew_lease(earlier)


def test_a_write_that_the_store_reports_as_refused_is_found_in_the_table(
    warehouse: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the store answered an error after a write, and its client repeated the write."""
    Metastore.open(warehouse)
    runtime = JobStore(f"file://{warehouse}/rw_catalog")
    append = StoredTable.append

    def append_and_refuse(self: StoredTable, rows: pa.Table, **options: Any) -> None:
        append(StoredTable(self.uri), rows, **options)
        raise CommitConflict(self.uri)

    lease = make.lease("first")
    asked = Request(request="r", session="s", resource_group="default", state=ASKED, asked_ms=1, body="SELECT 1")
    with monkeypatch.context() as patch:
        patch.setattr(StoredTable, "append", append_and_refuse)
        assert runtime.take_lease(lease, None)
        runtime.requests.add(asked)
        assert runtime.requests.change(asked, replace(asked, state=TAKEN, taken_by="first"))
        assert not runtime.requests.change(asked, replace(asked, state=TAKEN, taken_by="second"))
        assert runtime.claim_run("a", 1, "first").run == 1
    assert runtime.claim_run("a", 1, "first").run == 2
    assert runtime.lease() == lease


def test_runs_are_numbered_per_job(metastore: Metastore, other: Metastore) -> None:
    assert metastore.jobs.claim_run("a", 4, "me").run == 1
    assert other.jobs.claim_run("a", 5, "you").run == 2
    claimed = metastore.jobs.claim_runs(["b", "a", "b"], 6, "me")
    assert [(run.job, run.run, run.epoch) for run in claimed] == [("b", 1, 6), ("a", 3, 6), ("b", 1, 6)]
    assert [(run.run, run.epoch, run.owner) for run in other.jobs.runs("a")] == [
        (1, 4, "me"),
        (2, 5, "you"),
        (3, 6, "me"),
    ]
    assert {job: run.run for job, run in other.jobs.last_runs().items()} == {"a": 3, "b": 1}
    assert other.jobs.runs("nobody") == ()


def test_statuses_are_replaced_and_dropped(metastore: Metastore, other: Metastore) -> None:
    status = JobStatus(job="a", object_id=1, state="RUNNING", run=3, updated_ms=9)
    stalled = JobStatus(job="b", object_id=2, state="STALLED", reason="EXPIRED", last_error="gone", restarts=2)
    metastore.jobs.write_job_status([status, stalled])
    assert other.jobs.job_statuses() == {"a": status, "b": stalled}
    other.jobs.write_job_status([replace(status, state="PAUSED")])
    metastore.jobs.drop_jobs(["b", "nobody"])
    assert other.jobs.job_statuses() == {"a": replace(status, state="PAUSED")}
    metastore.jobs.write_job_status([stalled])
    assert other.jobs.job_statuses()["b"] == stalled


def test_a_noted_position_never_goes_back(metastore: Metastore, other: Metastore) -> None:
    position = NotedPosition(fragment="f", split="t:0", state='{"offset":5}', epoch=2, run=3, log_version=10)
    further = replace(position, log_version=11, state='{"offset":6}')
    assert metastore.jobs.note_positions([position]) == ()
    assert other.jobs.note_positions([further, replace(position, split="t:1")]) == ()
    for older in (position, replace(position, run=2, log_version=99), replace(position, epoch=1, run=9)):
        assert metastore.jobs.note_positions([older]) == (older,)
    assert metastore.jobs.noted_positions("f") == {"t:0": further, "t:1": replace(position, split="t:1")}
    later = replace(position, epoch=3, run=4, log_version=0, state='{"offset":1}')
    assert metastore.jobs.note_positions([later, later]) == ()
    assert other.jobs.noted_positions("f")["t:0"] == later
    assert other.jobs.noted_positions("g") == {}


def _impatient_catalog() -> Catalog:
    """The shipped catalog with a log that is kept for a second, so that a test covers days of clean-up."""
    files = [(name, read_asset("catalog", name)) for name in list_assets("catalog", ".sql")]
    return parse_catalog((name, text.replace("interval 10 minutes", "interval 1 seconds")) for name, text in files)


def _grow_old(warehouse: str) -> None:
    """Makes the logs an hour older, because a fast machine writes a hundred commits within the second for which they
    are kept."""
    for file in Path(warehouse, "rw_catalog").glob("runtime_*/_delta_log/*"):
        os.utime(file, (time.time() - 3600,) * 2)


@pytest.mark.long
def test_hundreds_of_heartbeats_leave_few_files(warehouse: str, make: Make) -> None:
    catalog = _impatient_catalog()
    mine, theirs = (Metastore.open(warehouse, catalog=catalog).jobs for _ in range(2))
    lease = make.lease()
    assert mine.take_lease(lease, None)
    status = JobStatus(job="a", object_id=1, state="RUNNING")
    for beat in range(250):
        if beat % 10 == 0:
            _grow_old(warehouse)
        lease = replace(lease, heartbeat_ms=beat)
        assert mine.renew_lease(lease)
        if beat % 60 == 0:
            assert theirs.lease() == lease
        if beat % 4 == 0:
            status = replace(status, updated_ms=beat)
            mine.write_job_status([status])
    assert theirs.lease() == lease
    assert theirs.job_statuses() == {"a": status}
    assert Metastore.open(warehouse, catalog=catalog).jobs.lease() == lease
    for name in ("runtime_lease", "runtime_job_status"):
        table = Path(warehouse, "rw_catalog", name)
        assert len(list(table.glob("*.parquet"))) < 130, name
        assert len(list(table.joinpath("_delta_log").iterdir())) < 150, name


def test_only_the_newest_runs_of_a_job_are_kept(metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.metastore.job_store.RUNS_KEPT", 5)
    monkeypatch.setattr("rw_sql.metastore.job_store._WORTH_FOLDING", 0)
    for _ in range(60):
        metastore.jobs.claim_run("job", 1, "me")
    runs = [run.run for run in metastore.jobs.runs("job")]
    assert runs[-5:] == [56, 57, 58, 59, 60]
    assert runs == sorted(runs)
    assert len(runs) < 20


def test_a_claim_reads_only_the_runs_that_are_new(metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job at rest claims a run for each wake, beside thousands of runs of other jobs."""
    jobs = metastore.jobs
    runs = [
        {"job": f"mv-{job}", "run": run, "epoch": 1, "owner": "me", "started_ms": run}
        for run in range(1, 21)
        for job in range(100)
    ]
    jobs._run_table().write(lambda _: runs)
    assert jobs.claim_run("mv-1", 2, "me").run == 21
    read: list[object] = []
    convert = msgspec.convert

    def counted(value: object, of: type) -> object:
        read.append(value)
        return convert(value, of)

    monkeypatch.setattr(msgspec, "convert", counted)
    assert jobs.claim_run("mv-1", 2, "me").run == 22
    assert jobs.claim_run("mv-new", 2, "me").run == 1
    assert len(read) <= 4
    assert jobs.last_runs()["mv-1"].run == 22
    assert [run.run for run in jobs.runs("mv-2")] == list(range(1, 21))


def test_runs_of_dropped_objects_go_and_their_numbers_do_not_come_again(
    metastore: Metastore, other: Metastore, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rw_sql.metastore.job_store._WORTH_FOLDING", 0)
    monkeypatch.setattr("rw_sql.metastore.job_store.RUNS_KEPT", 5)
    metastore.jobs.claim_runs(["mv-1", "mv-2"], 1, "me")
    assert other.jobs.last_runs().keys() == {"mv-1", "mv-2"}
    metastore.jobs.forget_dropped(lambda id_: id_ == 1)
    for _ in range(UPKEEP_EVERY):
        metastore.jobs.claim_run("mv-2", 1, "me")
    assert metastore.jobs.runs("mv-1") == other.jobs.runs("mv-1") == ()
    assert len(metastore.jobs.runs("mv-2")) < 20
    assert [jobs.claim_run("mv-1", 1, "me").run for jobs in (metastore.jobs, other.jobs)] == [2, 3]
    assert Metastore.open(warehouse).jobs.last_runs()["mv-2"].run == UPKEEP_EVERY + 1


def test_the_positions_and_progress_of_dropped_objects_go(
    metastore: Metastore, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rw_sql.metastore.job_store._WORTH_FOLDING", 0)

    def position(fragment: str, split: str) -> NotedPosition:
        return NotedPosition(fragment=fragment, split=split, state="{}", epoch=1, run=1, log_version=1)

    def progress(id_: int) -> BackfillProgress:
        return BackfillProgress(
            job=f"mv-{id_}", object_id=id_, generation=1, phase="", done=0, total=1, started_ms=0, updated_ms=0
        )

    def chunk(table_id: int, number: int) -> RefreshChunk:
        return RefreshChunk(
            table_id=table_id,
            refresh=1,
            chunk=number,
            position=None,
            rows=0,
            epoch=1,
            run=1,
            is_done=True,
            updated_ms=0,
        )

    jobs = metastore.jobs
    jobs.note_positions([position("ingest-1", f"f{number}") for number in range(300)])
    for id_ in (1, 2):
        jobs.write_backfill(progress(id_))
    jobs.note_chunks([chunk(1, number) for number in range(300)])
    jobs.forget_dropped(lambda id_: id_ == 1)
    for number in range(UPKEEP_EVERY):
        jobs.note_positions([position("ingest-2", f"f{number}")])
        jobs.write_backfill(progress(2))
        jobs.note_chunks([chunk(2, number)])
    left = Metastore.open(warehouse).jobs
    assert left.noted_positions("ingest-1") == {}
    assert len(left.noted_positions("ingest-2")) == UPKEEP_EVERY
    assert left.backfills().keys() == {"mv-2"}
    assert left.chunks_of(1) == ()
    assert len(left.chunks_of(2)) == UPKEEP_EVERY
