"""FLUSH's results for a source, and the jobs that it waits for."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import MaterializedViewRecord, PutObject, SinkRecord
from rw_sql.plan.result.plan import ResultRow
from rw_sql.runtime.observe.flush import _of_what_came, flush, read_to
from rw_sql.runtime.observe.stall_grace import StallGrace
from rw_sql.runtime.observe.statement_progress import Waiting
from tests.runtime.control.test_blocks import Session
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_source_is_read_to_its_ends_or_has_none() -> None:
    assert read_to({"t:1": 4, "t:0": 3}) == "read to t:0=3, t:1=4"
    assert read_to({f"t:{number}": 1 for number in range(9)}).endswith("t:7=1 …")
    assert read_to({}) == "its rows are generated while they are read, so it has no end"


def test_a_job_is_passed_over_once_it_has_been_stalled_for_a_while() -> None:
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no disk", updated_ms=1_000)
    assert not StallGrace().is_over(stalled, 3_000)
    assert StallGrace().is_over(stalled, 6_000)
    running = JobStatus(job="mv-1", object_id=1, state="RUNNING", updated_ms=1_000)
    assert not StallGrace().is_over(running, 60_000)


def test_another_try_that_fails_soon_is_no_new_beginning() -> None:
    patience = StallGrace()
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


def test_a_retry_that_takes_long_is_waited_for() -> None:
    patience = StallGrace()
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no worker", updated_ms=1_000)
    retrying = replace(stalled, reason="no worker; retrying")
    assert not patience.is_over(stalled, 1_100)
    assert not patience.is_over(replace(retrying, updated_ms=3_000), 17_000)
    assert not patience.is_over(replace(stalled, updated_ms=18_000), 18_100)
    assert not patience.is_over(replace(retrying, updated_ms=21_000), 40_000)
    assert patience.is_over(replace(stalled, updated_ms=41_000), 41_100)


def test_a_stalled_job_without_a_retry_in_sight_is_passed_over() -> None:
    patience = StallGrace()
    stalled = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="no disk", updated_ms=1_000)
    assert not patience.is_over(stalled, 1_100)
    assert not patience.is_over(replace(stalled, updated_ms=7_000), 11_900)
    assert patience.is_over(replace(stalled, updated_ms=7_000), 12_000)


def test_what_waits_for_another_has_not_stalled() -> None:
    patience = StallGrace()
    waiting = JobStatus(job="mv-1", object_id=1, state="STALLED", reason="WAITING for a", updated_ms=1_000)
    assert not patience.is_over(waiting, 20_000)
    assert not patience.is_over(replace(waiting, state="RUNNING", updated_ms=20_500), 20_600)
    assert not patience.is_over(replace(waiting, reason="no disk", updated_ms=21_000), 21_100)


def flushing(folder: Path, timeout: str, *, is_owner: bool = True) -> Session:
    """A session over a source with 20 records, whose reader never starts."""
    session = Session(folder)
    session.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20')",
        f"SET statement_timeout = '{timeout}'",
    )
    session.give_a_reader()
    if is_owner:
        session.pretend_to_own()
    return session


def test_flush_names_the_command_that_starts_a_process_for_the_jobs(tmp_path: Path) -> None:
    session = flushing(tmp_path, "200ms", is_owner=False)
    error = session.refused("FLUSH")
    assert "no process runs the jobs of this warehouse" in error.message
    start = f"rw-sql serve --warehouse {session.warehouse.uri}"
    assert error.hint == f"start a process that runs the jobs: {start}; then FLUSH"


def test_flush_gives_up_when_nothing_moves_and_says_what_is_missing(tmp_path: Path) -> None:
    session = flushing(tmp_path, "200ms")
    (source,) = session.metastore.snapshot().all("source")
    running = JobStatus(job=f"ingest-{source.id}", object_id=source.id, state="RUNNING", run=1, updated_ms=1)
    session.metastore.jobs.write_job_status([running])
    error = session.refused("FLUSH")
    assert (error.code, error.message) == (
        "RW406",
        'FLUSH gave up: no progress for 0.2 s: source "s" is 20 records behind (RUNNING)',
    )
    assert error.hint == "wait longer: SET statement_timeout = '1s'; FLUSH; SHOW JOBS shows what each job does"
    assert error.detail == f"the jobs continue: s ({running.job}): RUNNING"


@pytest.mark.long
def test_flush_goes_on_while_a_job_gets_on_with_its_batch(tmp_path: Path) -> None:
    session, stop = flushing(tmp_path, "1s"), threading.Event()
    (source,) = session.metastore.snapshot().all("source")
    beats = 6

    def get_on() -> None:
        for beat in range(beats):
            status = JobStatus(job=f"ingest-{source.id}", object_id=source.id, state="RUNNING", run=1, updated_ms=beat)
            session.metastore.jobs.write_job_status([status])
            stop.wait(0.5)

    work = threading.Thread(target=get_on, daemon=True)
    began = time.monotonic()
    work.start()
    error = session.refused("FLUSH")
    assert time.monotonic() - began > beats * 0.5
    assert 'no progress for 1 s (source "s" advanced last): source "s" is 20 records behind' in error.message
    work.join()


def test_what_reads_a_stalled_job_has_all_but_what_that_lacks() -> None:
    def view(id_: int, name: str, *inputs: int) -> MaterializedViewRecord:
        return MaterializedViewRecord(id=id_, name=name, definition="", query="", schema="", inputs=inputs)

    behind = {1: "s"}
    flushed = ResultRow(object="", change="FLUSHED")
    told = [
        _of_what_came(view(3, "a", 1), flushed, behind),
        _of_what_came(view(4, "b", 2), replace(flushed, change="NOTICE", detail="stalled, not waited for: x"), behind),
        _of_what_came(view(5, "c", 3, 4), flushed, behind),
        _of_what_came(view(6, "d", 2), flushed, behind),
    ]
    assert [answer.detail for answer in told] == [
        "except for rows missing in s",
        "stalled, not waited for: x",
        "except for rows missing in s, b",
        "",
    ]


def read_all(written: WrittenWarehouse, checkpoint: str, table: str) -> None:
    """Writes the checkpoint of a query that has read a table."""
    folder = written.folder / "checkpoints" / checkpoint
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    offset = {
        "sourceVersion": 1,
        "reservoirId": DeltaTable(table).metadata().id,
        "reservoirVersion": DeltaTable(table).version() + 1,
        "index": -1,
        "isStartingVersion": False,
    }
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}", encoding="utf-8")
    (folder / "commits" / "0").write_text("v1\n{}", encoding="utf-8")


def flushed(written: WrittenWarehouse, meanwhile: Callable[[], None]) -> list[tuple[str, str, str]]:
    """The answers of FLUSH, while another session does something as soon as FLUSH waits."""
    shown = Waiting()
    began = threading.Event()

    def act() -> None:
        while not began.is_set() and shown.what != "waiting until every existing record is read":
            time.sleep(0.01)
        meanwhile()

    other = threading.Thread(target=act, daemon=True)
    other.start()
    try:
        rows = flush(written.context(), 10.0, shown=shown)
    finally:
        began.set()
        other.join()
    return [(row.object, row.change, row.detail) for row in rows]


def test_a_sink_that_another_session_pauses_is_not_waited_for(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path)
    written.commit(written.view(3, "v"), written.sink(4, "out", 3))
    written.lease()
    written.status("sink-4", "RUNNING")
    written.batch(written.fence("mv-3", 1), "mv-3", 1, 0, 5)

    def pause() -> None:
        sink = written.metastore.snapshot().get(4)
        assert isinstance(sink, SinkRecord)
        written.commit(PutObject(record=replace(sink, is_paused=True)))

    assert flushed(written, pause) == [("v", "FLUSHED", ""), ("out", "NOTICE", "paused, not waited for")]


def test_the_new_table_of_a_view_that_is_replaced_meanwhile_is_waited_for(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path)
    written.commit(written.view(3, "v"), written.view(4, "w", 3))
    written.lease()
    written.status("mv-4", "RUNNING")
    table = written.fence("mv-3", 1)
    written.batch(table, "mv-3", 1, 0, 5)

    def swap() -> None:
        view = written.metastore.snapshot().get(4)
        assert isinstance(view, MaterializedViewRecord)
        read_all(written, "mv-4/2", table)
        written.commit(PutObject(record=replace(view, generation=2)))

    assert flushed(written, swap) == [("v", "FLUSHED", ""), ("w", "FLUSHED", "")]


def test_the_new_table_of_an_input_that_is_replaced_meanwhile_is_waited_for(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path)
    written.commit(written.view(3, "v"), written.sink(4, "out", 3))
    written.lease()
    written.status("sink-4", "RUNNING")
    written.batch(written.fence("mv-3", 1), "mv-3", 1, 0, 5)

    def swap() -> None:
        view = written.metastore.snapshot().get(3)
        assert isinstance(view, MaterializedViewRecord)
        table = written.fence("mv-3", 1, generation=2)
        written.batch(table, "mv-3", 1, 0, 5)
        read_all(written, "sink-4/1", table)
        written.commit(PutObject(record=replace(view, generation=2)))

    assert flushed(written, swap) == [("v", "FLUSHED", ""), ("out", "FLUSHED", "")]
