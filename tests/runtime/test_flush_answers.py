"""What FLUSH says of a source, and whom it waits for."""

from __future__ import annotations

from rw_sql.metastore.facts import JobStatus
from rw_sql.runtime.flush import is_given_up, read_to


def test_a_source_is_read_to_its_ends_or_has_none() -> None:
    assert read_to({"t:1": 4, "t:0": 3}) == "read to t:0=3, t:1=4"
    assert read_to({f"t:{number}": 1 for number in range(9)}).endswith("t:7=1 …")
    assert read_to({}) == "its rows are made as they are read: there is no end to read to"


def test_a_job_is_passed_over_once_it_has_been_stalled_for_a_while() -> None:
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no disk", updated_ms=1_000)
    assert not is_given_up(stalled, 3_000)
    assert is_given_up(stalled, 6_000)
    running = JobStatus(job="mv-1", object_id=1, state="RUNNING", updated_ms=1_000)
    assert not is_given_up(running, 60_000)
