"""The owner's loop: its reports, the failures that it survives, and its end."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.job_store import JobStore
from rw_sql.metastore.records import Operation, ParameterRecord, PauseRecord, PutObject
from rw_sql.runtime.control import owner as module
from rw_sql.runtime.control.discovery import SplitDiscovery
from rw_sql.runtime.control.owner import APPLIED, NOT_YET_APPLIED, Owner
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.applied_epoch import Applied
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.controlled_jobs import Jobs, wait_until
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.metastore.facts import Lease


@dataclass
class Sessions:
    """A Spark that runs until a test ends it."""

    jvm_pid: int = os.getpid()
    lives: bool = True

    def is_alive(self) -> bool:
        return self.lives


@pytest.fixture
def context(tmp_path: Path) -> Context:
    warehouse = Warehouse.at(str(tmp_path / "warehouse"))
    sessions = cast("Any", Sessions())
    return Context(
        warehouse=warehouse, metastore=Metastore.open(warehouse.uri), sessions=sessions, owner=f"test-{tmp_path.name}"
    )


@pytest.fixture
def owner(context: Context) -> Iterator[Owner]:
    owner = Owner(context)
    yield owner
    owner.stop()


def commit(context: Context) -> int:
    snapshot = context.metastore.snapshot()
    record = ParameterRecord(id=snapshot.next_id, name=f"p{snapshot.next_id}", value="1")
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),), is_unsafe=True)
    return context.metastore.commit(operation, based_on=snapshot).epoch


def test_an_owner_says_why_it_ended_and_returns_the_lease(context: Context, owner: Owner) -> None:
    owner.start()
    assert owner.is_owner
    assert owner.why_ended is None
    cast("Sessions", context.sessions).lives = False
    wait_until(lambda: owner.why_ended == "Spark has ended", "it has ended")
    lease = context.metastore.jobs.lease()
    assert lease is not None
    assert lease.is_released
    assert not owner.is_owner


def test_what_cannot_be_swept_holds_up_nobody(context: Context, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(module, "sweep", fail)
    owner.start()
    for _ in range(2):
        assert owner.wait_applied(commit(context), WAIT_SECONDS)
    assert owner.why_ended is None


def test_a_heartbeat_follows_one_that_failed_unexpectedly(
    context: Context, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise RuntimeError("a client's own exception")

    owner.start()
    wait_until(lambda: owner._told_epoch == 0, "the epoch at its start is reported")
    with monkeypatch.context() as patch:
        patch.setattr(module, "note_downtime", fail)
        wait_until(failed.is_set, "a heartbeat fails")
    version = context.metastore.jobs._leases()._table.latest_version()
    wait_until(lambda: context.metastore.jobs._leases()._table.latest_version() > version + 1, "the next ones follow")


@pytest.mark.long
def test_other_processes_get_their_epochs_at_once_and_ours_later(
    context: Context, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> int:
        lease = context.metastore.jobs.lease()
        assert lease is not None
        return lease.applied_epoch

    monkeypatch.setattr(module, "_TELL_SECONDS", 3600.0)
    owner.start()
    wait_until(lambda: owner._told_epoch == 0, "the epoch at its start is reported")
    ours = commit(context)
    assert owner.wait_applied(ours, WAIT_SECONDS)
    wait_until(lambda: owner._untold_since is not None, "it puts it off")
    assert told() == 0
    other = Context(
        warehouse=context.warehouse,
        metastore=Metastore.open(context.warehouse.uri),
        sessions=context.sessions,
        owner="other",
    )
    theirs = commit(other)
    wait_until(lambda: told() == theirs, "another process is told")
    commit(context)
    wait_until(lambda: owner._untold_since is not None, "it puts it off again")
    monkeypatch.setattr(module, "_TELL_SECONDS", 0.0)
    wait_until(lambda: told() == theirs + 1, "it is told in the end")


def test_a_pause_of_ours_is_reported_at_once(context: Context, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TELL_SECONDS", 3600.0)
    owner.start()
    wait_until(lambda: owner._told_epoch == 0, "the epoch at its start is reported")
    snapshot = context.metastore.snapshot()
    pause = PutObject(record=PauseRecord(id=snapshot.next_id, name="all", source_id=None))
    operation = Operation(kind="PAUSE", statement="", objects=(), changes=(pause,))
    epoch = context.metastore.commit(operation, based_on=snapshot).epoch
    wait_until(lambda: owner._told_epoch == epoch, "another process may move paused sources")


def test_what_is_left_to_tell_is_reported_when_it_ends(
    context: Context, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []
    monkeypatch.setattr(module, "_TELL_SECONDS", 3600.0)
    monkeypatch.setattr(module, "sweep", lambda _, epoch: swept.append(epoch))
    owner.start()
    wait_until(lambda: owner._told_epoch == 0, "the epoch at its start is reported")
    epoch = commit(context)
    assert owner.wait_applied(epoch, WAIT_SECONDS)
    owner.stop()
    lease = context.metastore.jobs.lease()
    assert lease is not None
    assert (lease.applied_epoch, lease.is_released, swept[-1]) == (epoch, True, epoch)


@pytest.mark.long
def test_the_outcome_of_who_did_not_wait_is_completed(context: Context, owner: Owner) -> None:
    late, done = commit(context), commit(context)
    context.metastore.record_outcome(late, NOT_YET_APPLIED, 5)
    context.metastore.record_outcome(done, "failed: of its own", 5)
    owner.start()
    wait_until(
        lambda: [record.outcome for record in context.metastore.operations()] == ["failed: of its own", APPLIED],
        "the outcome is applied",
    )


def test_a_source_that_cannot_be_looked_after_is_reported_once(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner.start()
    with caplog.at_level(logging.WARNING):
        for problem in ("no route", "no route", "refused"):
            monkeypatch.setattr(owner._discovery, "_look_after", partial(_fail, problem))
            assert owner._discovery._slots.acquire(blocking=False)
            owner._discovery._check(1, 10.0)
    assert [record.getMessage() for record in caplog.records] == [
        "the splits of source 1 could not be checked: RuntimeError: no route",
        "the splits of source 1 could not be checked: RuntimeError: refused",
    ]


def test_checks_of_dropped_sources_are_forgotten(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = SplitDiscovery(context, lambda *_: None)
    monkeypatch.setattr(discovery, "_look_after", partial(_fail, "no route"))
    discovery.look((), (7, 8))
    wait_until(lambda: discovery._problems.keys() == {7, 8}, "both are checked")
    commit(context)
    discovery.look((), ())
    assert (discovery._problems, discovery._checks, discovery._next_check) == ({}, {}, {})


def _fail(text: str, _source_id: int) -> None:
    raise RuntimeError(text)


class ObjectStore(Warehouse):
    """A folder that is treated as an object store."""

    @property
    def is_local(self) -> bool:
        return False


def test_an_owner_that_was_late_stops_its_jobs_and_stands_by(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
    stopped: list[str] = []
    monkeypatch.setattr(Reconciler, "stop_all", lambda _: stopped.append("stopped"))
    monkeypatch.setattr(Reconciler, "report_stopped", lambda _: stopped.append("reported"))
    contexts = [
        replace(
            context,
            warehouse=ObjectStore(context.warehouse.uri),
            metastore=Metastore.open(context.warehouse.uri),
            owner=name,
            owning=threading.Event(),
            applied=Applied(),
        )
        for name in ("first", "second")
    ]
    first, second = (Owner(each) for each in contexts)
    first.start()
    assert contexts[0].owning.is_set()
    # No heartbeat for half a minute: a pause for garbage, or eight busy processes beside it.
    with first._lease_lock:
        facts = context.metastore.jobs
        lease = facts.lease()
        assert lease is not None
        at = now_ms() - 30_000
        assert facts.renew_lease(replace(lease, heartbeat_ms=at, expires_ms=at + 15_000))
        assert contexts[0].has_owner()
        second.start()
        wait_until(lambda: second.is_owner, "another process takes the lease")
    wait_until(lambda: bool(stopped), "the first finds out and stops its jobs")
    assert stopped == ["stopped"]
    assert not first.is_owner
    assert not contexts[0].owning.is_set()
    assert contexts[0].has_owner()
    # It stands by: its own statement waits for the other process, and continues when that one ends.
    assert first.why_ended is None
    second.stop()
    wait_until(lambda: first.is_owner, "the first runs the jobs again")
    first.stop()
    assert not any(each.owning.is_set() for each in contexts)


@pytest.mark.long
def test_the_outcome_of_who_was_killed_before_it_said_so_is_completed(context: Context, owner: Owner) -> None:
    epoch = commit(context)
    snapshot = context.metastore.snapshot()
    safe = Operation(
        kind="SAFE", statement="", objects=(), changes=(PutObject(record=ParameterRecord(id=9, name="q", value="1")),)
    )
    context.metastore.commit(safe, based_on=snapshot)
    foreign = Operation(kind="INJECT CHECKPOINT OFFSETS", statement="", objects=(), changes=(), is_unsafe=True)
    context.metastore.commit(foreign, based_on=context.metastore.snapshot())
    owner.start()
    wait_until(lambda: context.metastore.operations()[-1].outcome == APPLIED, "the outcome is applied")
    # A safe statement changed no job, and a foreign checkpoint does not belong to this owner.
    assert [record.outcome for record in context.metastore.operations()] == [None, None, APPLIED]
    assert context.metastore.operations()[-1].epoch == epoch


class _SlowStop:
    """Jobs that need long to stop: ``begun`` is set when their stop begins, and it ends after ``may_end``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.reported = 0
        monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.02)
        monkeypatch.setattr(Reconciler, "stop_all", lambda _: self._stop())
        monkeypatch.setattr(Reconciler, "report_stopped", lambda _: self._report())

    def _stop(self) -> None:
        self.begun.set()
        assert self.may_end.wait(WAIT_SECONDS)

    def _report(self) -> None:
        self.reported += 1


def test_the_heart_beats_until_the_jobs_have_stopped(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a standby of a warehouse in an object store would start the jobs beside those that are stopping."""
    slow, owner, facts = _SlowStop(monkeypatch), Owner(context), context.metastore.jobs

    def beat() -> int:
        lease = facts.lease()
        assert lease is not None
        assert not lease.is_released
        return lease.heartbeat_ms

    owner.start()
    stopping = prepare(owner.stop, "stop")
    assert slow.begun.wait(WAIT_SECONDS)
    for _ in range(3):
        before = beat()
        wait_until(lambda before=before: beat() > before, "the lease is renewed")  # type: ignore[misc]
    slow.may_end.set()
    stopping.result()
    assert slow.reported == 1
    lease = facts.lease()
    assert lease is not None
    assert lease.is_released


def test_an_owner_that_loses_its_lease_while_it_stops_reports_nothing(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, owner, facts = _SlowStop(monkeypatch), Owner(context), context.metastore.jobs
    owner.start()
    stopping = prepare(owner.stop, "stop")
    assert slow.begun.wait(WAIT_SECONDS)
    with owner._lease_lock:
        lease = facts.lease()
        assert lease is not None
        assert facts.take_lease(replace(lease, owner="another process"), replacing=lease)
    wait_until(lambda: not owner.is_owner, "it finds out")
    slow.may_end.set()
    stopping.result()
    assert slow.reported == 0
    lease = facts.lease()
    assert lease is not None
    assert (lease.owner, lease.is_released) == ("another process", False)


def test_a_lost_lease_is_not_taken_again_before_the_jobs_have_stopped(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next jobs would run beside those that are stopping, and without heartbeats."""
    slow, owner, facts = _SlowStop(monkeypatch), Owner(context), context.metastore.jobs
    owner.start()
    with owner._lease_lock:
        lease = facts.lease()
        assert lease is not None
        lost = replace(lease, owner="another process")
        assert facts.take_lease(lost, replacing=lease)
    assert slow.begun.wait(WAIT_SECONDS)
    assert facts.release_lease(lost)
    owner._try_take()
    assert not owner.is_owner
    slow.may_end.set()
    wait_until(lambda: owner.is_owner, "it runs the jobs again")

    def beat() -> int:
        lease = facts.lease()
        assert lease is not None
        return lease.heartbeat_ms

    before = beat()
    wait_until(lambda: beat() > before, "the lease is renewed")
    owner.stop()


def test_an_owner_that_ends_waits_for_the_jobs_of_a_lost_lease(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, owner, facts = _SlowStop(monkeypatch), Owner(context), context.metastore.jobs
    owner.start()
    with owner._lease_lock:
        lease = facts.lease()
        assert lease is not None
        assert facts.take_lease(replace(lease, owner="another process"), replacing=lease)
    assert slow.begun.wait(WAIT_SECONDS)
    stopping = prepare(owner.stop, "stop")
    assert not owner._ended.wait(0.3)
    slow.may_end.set()
    stopping.result()
    assert slow.reported == 0


def _another(context: Context) -> Owner:
    """An owner of the next session in this process."""
    name = f"{context.owner}-next"
    return Owner(replace(context, owner=name, owning=threading.Event(), applied=Applied()))


def _takes_the_lease(owner: Owner) -> None:
    owner.start()
    try:
        wait_until(lambda: owner.is_owner, "the next session runs the jobs")
    finally:
        owner.stop()


def test_an_interrupted_start_leaves_no_lease(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Owner) -> None:
        raise KeyboardInterrupt

    owner = Owner(context)
    with monkeypatch.context() as patched:
        patched.setattr(Owner, "_disown_statuses", interrupted)
        with pytest.raises(KeyboardInterrupt):
            owner.start()
    assert not owner.is_owner
    _takes_the_lease(_another(context))


def test_a_lease_that_could_not_be_released_is_free_for_this_process(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a local path, it would last as long as the process, which is a notebook."""

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    owner = Owner(context)
    owner.start()
    with monkeypatch.context() as patched:
        for name in ("release_lease", "write_job_status"):
            patched.setattr(JobStore, name, full)
        owner.stop()
    _takes_the_lease(_another(context))


def test_a_lease_is_taken_whose_commit_was_reported_as_failed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, answers = JobStore.take_lease, iter([True])

    def take_and_fail(self: JobStore, lease: Lease, replacing: Lease | None) -> bool:
        is_taken = take(self, lease, replacing)
        if next(answers, False):
            raise OSError("the connection was closed")
        return is_taken

    monkeypatch.setattr(JobStore, "take_lease", take_and_fail)
    owner = Owner(context)
    with pytest.raises(OSError, match="connection"):
        owner._try_take()
    _takes_the_lease(owner)


def test_jobs_stop_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, twenty busy jobs would take longer than a service manager waits."""
    jobs = Jobs(tmp_path / "jobs", monkeypatch)
    jobs.put_view("a")
    jobs.put_view("b")
    jobs.reach(lambda: len(jobs.jobs) == 2, "both jobs run")
    for job in jobs.jobs.values():
        job.may_stop.clear()
    stopping = prepare(jobs.reconciler.stop_all, "stop")
    wait_until(lambda: all(job.is_stopping.is_set() for job in jobs.jobs.values()), "both jobs are stopping")
    assert not stopping.done()
    for job in jobs.jobs.values():
        job.may_stop.set()
    stopping.result()
    assert all(job.is_stopped for job in jobs.jobs.values())
