"""The jobs that a statement waits for, in a status line and in a timeout's message."""

from __future__ import annotations

import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.control.takeover import take_over
from rw_sql.runtime.jobs.groups import owners_of
from rw_sql.runtime.jobs.lease import resume_command
from rw_sql.runtime.jobs.silent_owners import LATE_SECONDS, silence_of
from rw_sql.runtime.observe.statement_progress import (
    JobPhase,
    StatementProgress,
    Waiting,
    job_phases,
    progress_of,
    what_goes_on,
)
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.status.reading import measure, read_status
from rw_sql.runtime.status.words import owner_text
from rw_sql.runtime.support.processes import is_process_suspended, now_ms, process_start
from tests.support.waits import wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def suspended_process() -> Iterator[int]:
    """A process that SIGSTOP has suspended."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        start = process_start(process.pid)
        assert not is_process_suspended(process.pid, start)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_process_suspended(process.pid, start), "it is suspended")
        assert not is_process_suspended(process.pid, f"{start}0"), "another process with the same id"
        yield process.pid
    finally:
        process.kill()
        process.wait()


def written_at(folder: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(folder)
    written.commit(*written.source(1, "s"), written.view(2, "m", 1), written.view(3, "bad", 1))
    written.status("ingest-1", "RUNNING")
    written.status("mv-2", "RUNNING")
    written.status("mv-3", "STALLED", reason="no such topic")
    return written


def test_the_phase_of_each_job(tmp_path: Path) -> None:
    written = written_at(tmp_path / "w")
    written.lease()
    context = written.context()
    assert [str(phase) for phase in job_phases(context, ("mv-2", "mv-3", "mv-9"))] == [
        "m (mv-2): RUNNING",
        "bad (mv-3): STALLED: no such topic",
        "mv-9 (mv-9): STARTING",
    ]
    assert [phase.job for phase in job_phases(context, None)] == ["mv-3"]
    assert str(JobPhase(job="mv-2", name="m", phase="reading history", done=300, total=5000)) == (
        "m (mv-2): reading history, 300 of 5,000 rows"
    )
    assert what_goes_on(context, None) == (
        "the jobs continue: bad (mv-3): STALLED: no such topic; s (ingest-1): RUNNING; m (mv-2): RUNNING"
    )


def test_a_job_that_a_statement_stops_has_its_reason(tmp_path: Path) -> None:
    written = written_at(tmp_path / "w")
    written.status("ingest-1", "STOPPED", reason="waits for a rewind point or a REWIND")
    written.status("mv-2", "STOPPED")
    assert [str(phase) for phase in job_phases(written.context(), ("ingest-1", "mv-2"))] == [
        "s (ingest-1): STOPPED: waits for a rewind point or a REWIND",
        "m (mv-2): STOPPED",
    ]


def test_without_an_owner_nothing_continues(tmp_path: Path) -> None:
    assert what_goes_on(written_at(tmp_path / "w").context(), None) is None


def test_a_suspended_owner_is_named_with_what_resumes_it(tmp_path: Path) -> None:
    written = written_at(tmp_path / "w")
    with suspended_process() as pid:
        written.lease(jvm_pid=pid)
        assert what_goes_on(written.context(), None) == (
            f"process {pid}, which runs the jobs, is suspended: kill -CONT {pid} resumes it"
        )
        context = written.context()
        owner = read_status(context, measure(context, context.metastore.snapshot())).owner
        assert (owner.state, owner.pid) == ("SUSPENDED", pid)
        told = owner_text(owner, 1, now_ms(), "/w")
        assert told.startswith(f"owner: process {pid} is suspended")
        assert told.endswith(f"kill -CONT {pid} resumes it")


def test_the_command_resumes_the_jvm_too_if_ctrl_z_suspended_both(tmp_path: Path) -> None:
    written = written_at(tmp_path / "w")
    with suspended_process() as python, suspended_process() as jvm:
        free = written.lease()
        written.metastore.jobs.release_lease(free)
        both = replace(
            free, python_pid=python, python_start=process_start(python), jvm_pid=jvm, jvm_start=process_start(jvm)
        )
        late = replace(both, owner="suspended", heartbeat_ms=now_ms() - int(LATE_SECONDS * 1000) - 1)
        assert written.metastore.jobs.take_lease(late, replacing=written.metastore.jobs.lease())
        context = written.context()
        owner = read_status(context, measure(context, context.metastore.snapshot())).owner
        silence = silence_of(context, late)
        assert silence is not None
        with pytest.raises(SqlError) as refused:
            take_over(context, DEFAULT_GROUP, is_forced=False)
        for told in (
            what_goes_on(context, None),
            owner_text(owner, 1, now_ms(), "/w"),
            owners_of(context)[DEFAULT_GROUP].hint,
            silence.reason,
            refused.value.hint,
            *(found.remedy for found in examine(context) if found.subject == "suspended"),
        ):
            assert f"kill -CONT {python} {jvm} resumes it" in str(told)
        assert resume_command(replace(both, jvm_pid=0)) == f"kill -CONT {python}"


def test_progress_is_what_the_statement_wrote_last(tmp_path: Path) -> None:
    context = written_at(tmp_path / "w").context()
    waiting = Waiting()
    waiting.begin("planning")
    assert progress_of(context, waiting) == StatementProgress(what="planning")
    waiting.begin("waiting until every existing record is read", ("mv-3",), lambda: "m is 3 rows behind")
    progress = progress_of(context, waiting)
    assert progress.what == "waiting until every existing record is read: m is 3 rows behind"
    assert [phase.name for phase in progress.jobs] == ["bad"]
    waiting.end()
    assert progress_of(context, waiting) == StatementProgress(what="Spark plans it")


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    def left() -> str:
        raise SqlError(NOT_SUPPORTED, "the upstream is away")

    waiting = Waiting()
    waiting.begin("waiting", None, left)
    assert progress_of(written_at(tmp_path / "w").context(), waiting) == StatementProgress(what="waiting")
