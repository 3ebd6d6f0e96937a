"""The jobs that a statement waits for, in the owner's process."""

from __future__ import annotations

import threading

from rw_sql.runtime.jobs.applied_epoch import Applied
from tests.runtime.controlled_jobs import wait_until
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS


def test_a_missing_job_delays_only_the_statement_that_waits_for_it() -> None:
    applied = Applied()
    applied.tell(7, {"ingest-1"})
    assert applied.has_applied(7, ["ingest-2", "mv-3"])
    assert applied.has_applied(7, [])
    assert not applied.has_applied(7, ["ingest-1"])
    assert not applied.has_applied(7)
    assert not applied.has_applied(8, ["mv-3"])


def test_waiting_ends_when_the_job_is_there() -> None:
    applied = Applied()
    applied.tell(7, {"ingest-1"})
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(applied.wait(7, WAIT_SECONDS, jobs=["ingest-1"], is_over=lambda: False))
    )
    waiting.start()
    applied.tell(7, {"mv-2"})
    waiting.join(WAIT_SECONDS)
    assert answers == [True]


def test_waiting_ends_when_the_lease_is_lost() -> None:
    applied = Applied()
    is_lost = threading.Event()
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(applied.wait(7, WAIT_SECONDS, is_over=is_lost.is_set)))
    waiting.start()
    is_lost.set()
    applied.forget()
    wait_until(lambda: answers == [False], "nobody waits any more")
