"""Statements that need stopped readers, directly after a PAUSE that the owner has not applied yet: the PAUSE of another
session, or of a process that was killed after its commit."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.runtime.control import quiesce
from tests.runtime.control.test_blocks import CREATE, Session
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

IN_A_BLOCK = ("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)", "COMMIT")
ALONE = ("INJECT SOURCE OFFSETS s VALUES ('0' = 5)",)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path)
    made.run(CREATE)
    made.give_a_reader()
    made.run("ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    made.pretend_to_own()
    report(made, "RUNNING")
    return made


def report(session: Session, state: str) -> None:
    session.metastore.jobs.write_job_status([JobStatus(job="ingest-1", object_id=1, state=state, run=1)])


def apply_the_pause(session: Session) -> None:
    report(session, "STOPPED")
    lease = session.metastore.jobs.lease()
    assert lease is not None
    assert session.metastore.jobs.renew_lease(replace(lease, applied_epoch=session.epoch))


@pytest.mark.parametrize("statements", [ALONE, IN_A_BLOCK])
def test_an_inject_waits_until_the_owner_has_applied_the_pause(
    session: Session, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    paused = session.epoch
    asked = threading.Event()

    def look(seconds: float) -> None:
        assert seconds < 1
        asked.set()
        time.sleep(seconds)

    monkeypatch.setattr(quiesce, "time", SimpleNamespace(monotonic=time.monotonic, sleep=look))
    # Nobody applies the INJECT itself: its answer waits for the whole of the timeout.
    session.run("SET statement_timeout = '3s'")
    with ThreadPoolExecutor() as threads:
        running = threads.submit(session.run, *statements)
        assert asked.wait(LAST_RESORT_SECONDS)
        assert session.epoch == paused
        apply_the_pause(session)
        running.result()
    assert session.epoch == paused + 1


def test_an_inject_whose_reader_does_not_stop_is_refused_after_the_timeout(session: Session) -> None:
    paused = session.epoch
    session.run("SET statement_timeout = '300ms'")
    with pytest.raises(SqlError) as refused:
        session.run(*ALONE)
    assert refused.value.code == "RW305"
    assert "its job ingest-1 still runs" in refused.value.message
    assert refused.value.hint == "run the statement again when SHOW JOBS shows that the job has stopped"
    assert session.epoch == paused


@pytest.mark.parametrize(
    ("pause", "before"),
    [
        ("PAUSE SOURCE s", ("RESUME SOURCE s", "PAUSE SOURCE s")),
        ("PAUSE ALL SOURCES", ("PAUSE SOURCE s", "RESUME ALL SOURCES")),
    ],
)
def test_a_block_that_replaces_an_applied_pause_does_not_wait(
    session: Session, monkeypatch: pytest.MonkeyPatch, pause: str, before: tuple[str, ...]
) -> None:
    session.run("SET statement_timeout = '0s'", "RESUME SOURCE s", pause)
    apply_the_pause(session)
    paused = session.epoch

    def never(_: float) -> None:
        raise AssertionError("the readers have stopped")

    monkeypatch.setattr(quiesce, "time", SimpleNamespace(monotonic=time.monotonic, sleep=never))
    session.run("BEGIN UNSAFE", *before, *ALONE, "COMMIT")
    assert session.epoch == paused + 1
