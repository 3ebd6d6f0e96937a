"""Fake jobs in a reconciler on a real metastore. A test can stop the jobs, delay them and make them fail."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import QuiesceLock
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, ParameterRecord, PutObject
from rw_sql.model.parameters import IDLE_JOB_TIMEOUT
from rw_sql.runtime.control import reconciler as module
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS
from tests.support.waits import wait_until as wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from rw_sql.metastore.facts import JobStatus
    from rw_sql.metastore.records import Change
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.ingest.job import Ingest
    from rw_sql.runtime.ingest.warm_start import WarmStart
    from rw_sql.runtime.support.failures import Failure


def lock_from_elsewhere(metastore: Metastore) -> QuiesceLock:
    """Stores a quiesce lock on the source with id 1, as a process on another machine would."""
    lock = QuiesceLock(
        hold="h",
        source_id=1,
        epoch=metastore.snapshot().epoch,
        host="elsewhere",
        pid=1,
        process_start="",
        expires_ms=now_ms() + 60_000,
    )
    metastore.jobs.add_locks([lock])
    return lock


@dataclass(slots=True)
class FakeJob:
    """A job without a query. ``problem`` is the job's failure. The job does not stop before ``may_stop`` is set.
    ``notice`` is the text for SHOW JOBS."""

    spec: JobSpec
    run: int = 1
    notice: str | None = None
    problem: Failure | None = None
    stop_error: Exception | None = None
    is_stopped: bool = False
    is_unproven: bool = False
    may_stop: threading.Event = field(default_factory=threading.Event)
    is_stopping: threading.Event = field(default_factory=threading.Event)

    def failure(self) -> Failure | None:
        return self.problem

    def stop(self) -> None:
        self.is_stopping.set()
        assert self.may_stop.wait(WAIT_SECONDS)
        self.is_stopped = True
        if self.stop_error is not None:
            raise self.stop_error


class Jobs:
    """A reconciler whose jobs are fakes. ``start_error`` maps the ids of jobs to the errors that their starts raise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        warehouse = Warehouse.at(str(folder))
        self.metastore = Metastore.open(warehouse.uri)
        self.context = Context(
            warehouse=warehouse, metastore=self.metastore, sessions=cast("Any", None), owner="a test"
        )
        self.metastore.jobs.lease()  # An owner has read its lease before it starts jobs, which takes time at first.
        self.reconciler = Reconciler(self.context)
        self.start_error: dict[str, Exception] = {}
        self.starts: list[JobSpec] = []
        self.followed: list[Ingest | None] = []
        self.prepared: list[WarmStart | None] = []
        self.jobs: dict[str, FakeJob] = {}
        self.make: Callable[[JobSpec, int], FakeJob] = lambda spec, run: FakeJob(spec=spec, run=run)
        monkeypatch.setattr(module, "_start", self._start)

    def _start(self, _: Context, spec: JobSpec, before: Ingest | None, prepared: WarmStart | None) -> FakeJob:
        self.starts.append(spec)
        self.followed.append(before)
        self.prepared.append(prepared)
        error = self.start_error.get(spec.job)
        if error is not None:
            raise error
        job = self.jobs[spec.job] = self.make(spec, len(self.starts))
        job.may_stop.set()
        return job

    def commit(self, *changes: Change) -> int:
        """Commits changes, and returns the epoch."""
        snapshot = self.metastore.snapshot()
        operation = Operation(kind="TEST", statement="", objects=(), changes=changes)
        return self.metastore.commit(operation, based_on=snapshot).epoch

    def set_idle_timeout(self, value: str) -> None:
        """Sets ``idle_job_timeout``."""
        before = self.metastore.snapshot().find("parameter", IDLE_JOB_TIMEOUT)
        id_ = before.id if before is not None else self.metastore.snapshot().next_id
        self.commit(PutObject(record=ParameterRecord(id=id_, name=IDLE_JOB_TIMEOUT, value=value)))

    def put_view(self, name: str) -> MaterializedViewRecord:
        """Creates a view without inputs."""
        record = MaterializedViewRecord(
            id=self.metastore.snapshot().next_id, name=name, definition="", query="SELECT 1", schema="", inputs=()
        )
        self.commit(PutObject(record=record))
        return record

    def change(self, record: MaterializedViewRecord) -> MaterializedViewRecord:
        """Commits another definition of a view, so that the view's job restarts."""
        changed = replace(record, query=f"{record.query} + 1")
        self.commit(PutObject(record=changed))
        return changed

    def drop(self, record: MaterializedViewRecord) -> int:
        """Drops a view, and returns the epoch."""
        return self.commit(DropObject(id=record.id))

    def status(self, job: str) -> JobStatus | None:
        """The last status that the reconciler reported for a job."""
        return self.metastore.jobs.job_statuses().get(job)

    def reach(self, is_met: Callable[[], bool], what: str) -> None:
        """Runs the reconciler until the condition holds."""

        def turn() -> bool:
            self.reconciler.reconcile()
            return is_met()

        wait_until(turn, what)
