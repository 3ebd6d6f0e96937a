"""What FLUSH says of a source, and whom it waits for."""

from __future__ import annotations

from dataclasses import replace

from rw_sql.metastore.facts import JobStatus
from rw_sql.runtime.flush import Patience, read_to


def test_a_source_is_read_to_its_ends_or_has_none() -> None:
    assert read_to({"t:1": 4, "t:0": 3}) == "read to t:0=3, t:1=4"
    assert read_to({f"t:{number}": 1 for number in range(9)}).endswith("t:7=1 …")
    assert read_to({}) == "its rows are made as they are read: there is no end to read to"


def test_a_job_is_passed_over_once_it_has_been_stalled_for_a_while() -> None:
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no disk", updated_ms=1_000)
    assert not Patience().is_over(stalled, 3_000)
    assert Patience().is_over(stalled, 6_000)
    running = JobStatus(job="mv-1", object_id=1, state="RUNNING", updated_ms=1_000)
    assert not Patience().is_over(running, 60_000)


def test_another_try_that_fails_soon_is_no_new_beginning() -> None:
    patience = Patience()
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no disk", updated_ms=1_000)
    assert not patience.is_over(stalled, 1_100)
    assert not patience.is_over(replace(stalled, state="RUNNING", updated_ms=2_000), 2_900)
    assert not patience.is_over(replace(stalled, updated_ms=3_000), 3_100)
    assert not patience.is_over(replace(stalled, state="RUNNING", updated_ms=5_000), 6_500)
    assert patience.is_over(replace(stalled, updated_ms=7_000), 7_100)
    # A batch that takes its time to fail.
    assert not patience.is_over(replace(stalled, state="RUNNING", updated_ms=8_000), 20_000)
    assert patience.is_over(replace(stalled, updated_ms=21_000), 21_100)
    assert not patience.is_over(replace(stalled, state="RUNNING", updated_ms=22_000), 52_000)
    assert not patience.is_over(replace(stalled, updated_ms=53_000), 53_100)


def test_what_waits_for_another_has_not_stalled() -> None:
    patience = Patience()
    waiting = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="WAITING for a", updated_ms=1_000)
    assert not patience.is_over(waiting, 20_000)
    assert not patience.is_over(replace(waiting, state="RUNNING", updated_ms=20_500), 20_600)
    assert not patience.is_over(replace(waiting, reason="no disk", updated_ms=21_000), 21_100)
