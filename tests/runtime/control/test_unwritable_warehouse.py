"""A warehouse that can be read and not written: what its owner, other processes and the log tell, and how it ends."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rw_sql.metastore import Metastore
from rw_sql.metastore import table as stored_table
from rw_sql.runtime.control import owner as owner_module
from rw_sql.runtime.control import reconciler as reconciler_module
from rw_sql.runtime.control.owner import Owner
from rw_sql.runtime.jobs import store_watch
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.groups import owners_of
from rw_sql.runtime.jobs.lease import GONE_SECONDS
from rw_sql.runtime.jobs.silent_owners import LATE_SECONDS
from rw_sql.runtime.jobs.statuses import shown_statuses
from rw_sql.runtime.jobs.store_watch import HEARTBEAT, LOOP, StoreWatch
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.observe.statement_progress import what_goes_on
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.status.findings import OWNER, WAREHOUSE
from rw_sql.runtime.status.reading import Measures, WarehouseStatus, read_status
from rw_sql.runtime.status.served import ServedWarehouse
from rw_sql.runtime.status.words import owner_text
from rw_sql.runtime.support.failures import Failure
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.control.test_owner import Sessions
from tests.runtime.controlled_jobs import FakeJob, wait_until
from tests.runtime.observe.test_statement_progress import suspended_process
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore.facts import Lease
    from rw_sql.model.job_specs import JobSpec
    from tests.support.s3_store import S3Store

FULL = "Failed to parse parquet: External: Generic LocalFileSystem error: Unable to open file x#1: No space left on"
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
JOBS = ("ingest-2", "mv-3")


class Disk:
    """The file system of the folder ``below`` in this process: every write fails while it is full.

    Threads that an earlier test has left write to other folders.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: Path) -> None:
        self.is_full = False
        self.tries = self.writes = 0
        write: Any = stored_table.__dict__["write_deltalake"]
        told: Any = os.statvfs

        def written(*given: Any, **named: Any) -> None:
            table = given[0]
            if self.is_full and str(below) in (table.table_uri if isinstance(table, DeltaTable) else table):
                self.writes += 1
                # delta-rs raises either, depending on where in a file the disk becomes full.
                raise (DeltaError if self.writes % 2 else Exception)(f"{FULL} device (os error 28)")
            write(*given, **named)

        def tried(warehouse: Warehouse) -> OSError | None:
            self.tries += 1
            return NO_SPACE if self.is_full else None

        monkeypatch.setattr(stored_table, "write_deltalake", written)
        monkeypatch.setattr(store_watch, "try_to_write", tried)
        monkeypatch.setattr(os, "statvfs", lambda path: Used(told(path).f_flag) if self.is_full else told(path))


@dataclass(frozen=True)
class Used:
    """What statvfs tells about a full file system."""

    f_flag: int
    f_bavail: int = 0
    f_bfree: int = 0
    f_frsize: int = 4096
    f_files: int = 0
    f_favail: int = 0
    f_ffree: int = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    return Disk(monkeypatch, tmp_path)


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    made = WrittenWarehouse(tmp_path / "w")
    made.commit(*made.source(2, "orders"), made.view(3, "totals", 2))
    return made


class Owning:
    """An owner with fake jobs."""

    def __init__(self, written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.starts = 0

        def start(_: Context, spec: JobSpec, *__: object) -> FakeJob:
            self.starts += 1
            job = self.jobs[spec.job] = FakeJob(spec=spec, run=self.starts)
            job.may_stop.set()
            return job

        monkeypatch.setattr(reconciler_module, "_start", start)
        for name in ("LOOK_SECONDS", "_MOST_PASS_SECONDS", "HEARTBEAT_SECONDS"):
            monkeypatch.setattr(owner_module, name, 0.02)
        self.context = Context(
            warehouse=Warehouse.at(written.uri),
            metastore=Metastore.open(written.uri),
            sessions=cast("Any", Sessions()),
            owner="this process",
        )
        self.owner = Owner(self.context)
        self.owner.start()

    def states(self, context: Context | None = None) -> dict[str, str]:
        """The states and reasons of the jobs as a process shows them (default: the owner)."""
        context = context or self.context
        shown = shown_statuses(context, context.metastore.snapshot())
        return {job: f"{shown[job].state} {shown[job].reason or ''}".strip() for job in JOBS}

    @property
    def lease(self) -> Lease:
        """The stored lease."""
        lease = self.context.metastore.jobs.lease()
        assert lease is not None
        return lease


@pytest.fixture
def owning(written: WrittenWarehouse, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owning]:
    made = Owning(written, monkeypatch)
    wait_until(lambda: made.states() == dict.fromkeys(JOBS, "RUNNING"), "the jobs run")
    # The source's splits are discovered in a commit of their own, whose projections are written a little later.
    wait_until(lambda: made.context.metastore.snapshot().epoch == 2 == made.lease.applied_epoch, "it is applied")
    made.context.metastore.flush()
    yield made
    disk.is_full = False
    made.owner.stop()


def is_failing(store: StoreWatch) -> bool:
    return store.problem is not None


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_owner_tells_it_once_and_continues_without_a_restart(
    owning: Owning, disk: Disk, written: WrittenWarehouse, caplog: pytest.LogCaptureFixture
) -> None:
    context, taken, starts = owning.context, owning.lease, owning.starts
    stalled = f"STALLED UNWRITABLE the file system of the warehouse is full: free some space (df -h {written.uri})"
    with caplog.at_level(logging.INFO, "rw_sql"):
        disk.is_full = True
        wait_until(lambda: context.store.obstacle is not None, "the owner has noticed it")
        owning.jobs["ingest-2"].problem = Failure(reason="No space left on device")
        tries = disk.tries
        wait_until(lambda: disk.tries > tries + 60, "the owner has tried to write many times")
        (told,) = warnings(caplog)
        assert told.startswith(
            f"the warehouse {written.uri} cannot be written, so its jobs stand still: the file system"
        )
        assert f"free some space (df -h {written.uri})" in told
        assert {text.partition(";")[0] for text in owning.states().values()} == {stalled}
        assert owning.starts == starts
        why = ServedWarehouse(context).why_not_ready() or ""
        assert why.startswith("the warehouse cannot be written: the file system of the warehouse is full; the last")
        assert "the jobs stand still: the file system of the warehouse is full" in (what_goes_on(context, None) or "")
        states = [sample.labels for sample in Metrics(context).samples() if sample.name == "rw_sql_job_state"]
        assert {dict(labels)["state"] for labels in states} == {"STALLED"}
        caplog.clear()
        disk.is_full = False
        wait_until(lambda: owning.starts == starts + 1, "the failed job is started again")
        wait_until(lambda: owning.states() == dict.fromkeys(JOBS, "RUNNING"), "the jobs run again")
    (told,) = warnings(caplog)
    assert told.startswith(f"the warehouse {written.uri} can be written again, after ")
    assert owning.lease.taken_at_ms == taken.taken_at_ms
    wait_until(lambda: ServedWarehouse(context).why_not_ready() is None, "the owner is ready")


def test_a_status_that_cannot_be_stored_is_told_once_although_heartbeats_succeed(
    owning: Owning, written: WrittenWarehouse, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fail(*_: object) -> None:
        failed.append(1)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{written.uri}/rw_catalog/runtime_job_status")

    with caplog.at_level(logging.INFO, "rw_sql"), monkeypatch.context() as patch:
        patch.setattr(owning.context.metastore.jobs, "write_job_status", fail)
        owning.jobs["mv-3"].problem = Failure(reason="it broke")
        wait_until(lambda: len(failed) > 4, "several passes fail")
        (told,) = warnings(caplog)
        assert "may not write in the warehouse's folder" in told


def test_a_process_that_stands_by_tells_once_that_it_cannot_take_the_lease(
    written: WrittenWarehouse, disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(owner_module, "HEARTBEAT_SECONDS", 0.02)
    lease = written.lease()
    context = Context(
        warehouse=Warehouse.at(written.uri),
        metastore=Metastore.open(written.uri),
        sessions=cast("Any", Sessions()),
        owner="another process",
    )
    owner = Owner(context)
    owner.start()
    try:
        with caplog.at_level(logging.INFO, "rw_sql"):
            assert written.metastore.jobs.release_lease(lease)
            disk.is_full = True
            wait_until(lambda: disk.tries > 20, "it has tried many times")
            assert not owner.is_owner
            assert len(warnings(caplog)) == 1
            disk.is_full = False
            wait_until(lambda: owner.is_owner, "it takes the lease")
    finally:
        disk.is_full = False
        owner.stop()


def test_a_hundred_failed_jobs_are_one_line(
    written: WrittenWarehouse, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    warehouse, store = Warehouse.at(written.uri), StoreWatch()
    # The folder of Spark's temporary files may be full while that of the warehouse is not.
    assert not store.explains(NO_SPACE, warehouse)
    assert not is_failing(store)
    disk.is_full = True
    assert all(store.explains(NO_SPACE, warehouse) for _ in range(100))
    assert not store.explains(ValueError("a bug"), warehouse)
    assert len(warnings(caplog)) == 1
    store.succeeded(HEARTBEAT, warehouse)
    assert is_failing(store)
    store.succeeded(LOOP, warehouse)
    assert not is_failing(store)


def silent(written: WrittenWarehouse, seconds: float, host: str | None = None, jvm_pid: int | None = None) -> Context:
    """Another process's view of a warehouse whose owner, which runs, has been silent for a while."""
    for job in JOBS:
        written.status(job, "RUNNING")
    lease = written.lease(jvm_pid=jvm_pid)
    late = replace(lease, heartbeat_ms=now_ms() - int(seconds * 1000), host=host or lease.host)
    assert written.metastore.jobs.take_lease(late, replacing=lease)
    return written.context()


def seen(context: Context) -> WarehouseStatus:
    return read_status(context, Measures())


def test_another_process_shows_the_obstacle_and_writes_nothing(written: WrittenWarehouse, disk: Disk) -> None:
    context = silent(written, 10)
    assert {job.state for job in seen(context).jobs} == {"RUNNING"}
    assert examine(context) == ()
    before = sorted(Path(written.uri).rglob("*"))
    disk.is_full = True
    status = seen(context)
    assert {job.state for job in status.jobs} == {"STALLED"}
    assert {job.reason for job in status.jobs} == {
        f"UNWRITABLE the file system of the warehouse is full: free some space (df -h {written.uri}); the job then "
        "continues without a restart"
    }
    assert "; it cannot write the warehouse: the file system of the warehouse is full: free some space" in owner_text(
        status.owner, status.epoch, status.at_ms, status.warehouse
    )
    assert status.to_json()["owner"]["problem"].startswith("the file system of the warehouse is full")
    assert (owners_of(context)["default"].hint or "").startswith("the file system of the warehouse is full")
    (finding,) = examine(context)
    assert (finding.about, finding.subject) == (WAREHOUSE, written.uri)
    assert finding.problem.startswith(
        f"the file system of the warehouse is full; the last heartbeat of process {os.getpid()}"
    )
    assert finding.remedy == f"free some space (df -h {written.uri}); the jobs then continue without a restart"
    assert sorted(Path(written.uri).rglob("*")) == before
    assert disk.tries == 0


def test_an_owner_that_is_silent_for_an_unknown_reason_is_named(written: WrittenWarehouse) -> None:
    context = silent(written, LATE_SECONDS - 10)
    assert {job.state for job in seen(context).jobs} == {"RUNNING"}
    context = silent(written, LATE_SECONDS + 1)
    status = seen(context)
    assert {job.state for job in status.jobs} == {"STALLED"}
    assert all(job.reason.startswith(f"SILENT process {os.getpid()} runs the jobs") for job in status.jobs)
    (finding,) = examine(context)
    assert (finding.about, finding.remedy) == (
        OWNER,
        f"its log contains the reason; if it hangs, rw-sql takeover --force --warehouse {written.uri} ends it",
    )


def test_the_clock_of_another_machine_stalls_no_job(written: WrittenWarehouse) -> None:
    context = silent(written, LATE_SECONDS + 1, host="another machine")
    assert {job.state for job in seen(context).jobs} == {"RUNNING"}
    assert examine(context) == ()


def test_the_jobs_of_a_suspended_owner_are_stalled(written: WrittenWarehouse) -> None:
    with suspended_process() as pid:
        context = silent(written, LATE_SECONDS + 1, jvm_pid=pid)
        reasons = {job.reason for job in seen(context).jobs}
    assert reasons == {f"SUSPENDED process {pid} runs the jobs and is suspended: kill -CONT {pid} resumes it"}


def test_a_job_with_a_reason_of_its_own_keeps_it(written: WrittenWarehouse, disk: Disk) -> None:
    context = silent(written, 10)
    written.status("ingest-2", "STALLED", reason="UNREACHABLE no broker")
    disk.is_full = True
    reasons = {job.job: job.reason for job in seen(context).jobs}
    assert reasons["ingest-2"] == "UNREACHABLE no broker"
    assert reasons["mv-3"].startswith("UNWRITABLE")


@pytest.mark.s3
def test_in_an_object_store_doctor_names_keys_that_may_not_write(s3_store: S3Store) -> None:
    with s3_store.reached_by_the_environment():
        uri = s3_store.warehouse()
        metastore = Metastore.open(uri)
        lease = WrittenWarehouse.lease(cast("Any", Written(metastore)))
        late = replace(lease, heartbeat_ms=now_ms() - int(GONE_SECONDS * 1000) - 1000)
        assert metastore.jobs.take_lease(late, replacing=lease)
        context = Context(
            warehouse=Warehouse.at(uri),
            metastore=Metastore.open(uri, only_reads=True),
            sessions=NoSpark(),
            owner="a test",
        )
        with s3_store.refusing_writes():
            (finding,) = examine(context)
        assert (finding.about, finding.subject) == (WAREHOUSE, uri)
        assert finding.problem.startswith("the store of the warehouse refuses requests with this process's keys")
        assert [finding.about for finding in examine(context)] == [OWNER]


@dataclass
class Written:
    """A metastore whose lease :meth:`WrittenWarehouse.lease` writes."""

    metastore: Metastore


def test_a_plain_exception_of_delta_rs_is_an_error_of_the_store(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Exception(f"Arrow error: External: {FULL} device (os error 28)")

    monkeypatch.setattr(stored_table, "write_deltalake", fail)
    with pytest.raises(OSError, match="No space left on device"):
        written.metastore.jobs.claim_run("mv-3", 1, "a test")
