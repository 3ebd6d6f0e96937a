"""The statements that a session may run inside a BEGIN UNSAFE block, and the conditions of its COMMIT. No job runs
here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from deltalake.exceptions import DeltaError

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease, QuiesceLock
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject
from rw_sql.runtime.control import executor
from rw_sql.runtime.control import quiesce as holds
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.quiesce import COMMIT_SECONDS, are_valid, lock_sources, quiesced_jobs
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.support.processes import now_ms, process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.plan.result.confirmation import Question
    from rw_sql.runtime.spark.sessions import SparkSessions

CREATE = "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20')"


class NoSpark:
    """No statement here needs Spark."""

    def require_alive(self, done: str = "") -> None:
        """Does nothing: there is no Spark that could have ended."""


class Session:
    """A session that confirms every request, unless it is told not to answer."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.metastore = Metastore.open(self.warehouse.uri)
        sessions = cast("SparkSessions", NoSpark())
        self.context = Context(
            warehouse=self.warehouse, metastore=self.metastore, sessions=sessions, owner=new_owner_name(self.warehouse)
        )
        self.executor = Executor(self.context, None)
        self.questions: list[Question] = []
        self.state = SessionState(ask=self.yes)

    def yes(self, question: Question) -> bool:
        self.questions.append(question)
        return True

    def sql(self, text: str) -> tuple[tuple[object, ...], ...]:
        return self.executor.run(parse_statement(text), self.state).rows

    def run(self, *texts: str) -> None:
        for text in texts:
            self.sql(text)

    def refused(self, text: str) -> SqlError:
        with pytest.raises(SqlError) as caught:
            self.sql(text)
        return caught.value

    @property
    def epoch(self) -> int:
        return self.metastore.snapshot().epoch

    def give_a_reader(self) -> None:
        """Creates a view on ``s``, so that the catalog requires its reader."""
        snapshot = self.metastore.snapshot()
        source = snapshot.find("source", "s")
        assert source is not None
        view = MaterializedViewRecord(
            id=snapshot.next_id, name="v", definition="", query="", inputs=(source.id,), schema="{}"
        )
        operation = Operation(kind="CREATE", statement="", objects=("v",), changes=(PutObject(record=view),))
        self.metastore.commit(operation, based_on=snapshot)

    def pretend_to_own(self) -> None:
        """Takes a lease for this process, which runs no jobs and so never reports that one has stopped."""
        at = now_ms()
        lease = Lease(
            owner="this test",
            host=this_machine(),
            python_pid=os.getpid(),
            jvm_pid=0,
            python_start=process_start(os.getpid()),
            jvm_start="",
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + 60_000,
            applied_epoch=0,
        )
        assert self.metastore.jobs.take_lease(lease, None)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path)
    made.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    return made


def test_commit_is_one_operation_with_one_confirmation(session: Session) -> None:
    epoch = session.epoch
    session.run("BEGIN UNSAFE REASON 'again'", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)", "RESUME SOURCE s")
    assert session.epoch == epoch
    assert session.questions == []
    session.run("COMMIT")
    assert session.epoch == epoch + 1
    assert len(session.questions) == 1
    operation = session.metastore.operation(session.epoch)
    assert operation is not None
    assert (operation.kind, operation.reason, operation.is_unsafe) == ("BEGIN UNSAFE", "again", True)
    assert not session.metastore.snapshot().all("pause")
    assert session.state.block is None


def test_a_block_sees_its_own_changes_and_nobody_else_does(session: Session) -> None:
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    assert 5 in session.sql("SHOW SOURCE SPLITS s")[0]
    other = Session.__new__(Session)
    other.__dict__ |= {**session.__dict__, "state": SessionState()}
    assert 5 not in other.sql("SHOW SOURCE SPLITS s")[0]
    plan = "\n".join(str(row[0]) for row in session.sql("EXPLAIN COMMIT"))
    assert "BEGIN UNSAFE … COMMIT, 1 statements" in plan
    assert "unsafe: needs enable_unsafe_ops" in plan
    assert "INJECT SOURCE OFFSETS" in str(session.sql("EXPLAIN INJECT SOURCE OFFSETS s TO EARLIEST"))
    assert session.sql("BEGIN UNSAFE")[0][2] == "a block is already in progress"
    session.run("SET statement_timeout = '5s'", "ROLLBACK")
    assert 5 not in session.sql("SHOW SOURCE SPLITS s")[0]


def test_an_error_aborts_the_block(session: Session) -> None:
    epoch = session.epoch
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    assert session.refused("INJECT SOURCE OFFSETS s VALUES ('9' = 5)").code == "RW209"
    assert session.refused("SHOW SOURCES").code == "RW332"
    assert session.refused("BEGIN UNSAFE").code == "RW332"
    error = session.refused("COMMIT")
    assert (error.code, error.message) == (
        "RW332",
        "the block was aborted by an error: none of its statements took effect",
    )
    assert session.epoch == epoch
    assert session.sql("COMMIT")[0][2] == "no block is in progress"
    assert session.sql("ROLLBACK")[0][2] == "no block is in progress"


@pytest.mark.parametrize("text", ["DROP SOURCE s", CREATE.replace(" s ", " t "), "FLUSH", "UNDO OPERATION 1"])
def test_what_is_not_of_a_block_aborts_it(session: Session, text: str) -> None:
    session.run("BEGIN UNSAFE")
    assert session.refused(text).code == "RW331"
    assert session.state.block is not None
    assert session.state.block.is_aborted


def test_the_switch_is_asked_for_at_once(session: Session) -> None:
    session.run("ALTER SYSTEM SET enable_unsafe_ops = false")
    assert session.refused("BEGIN UNSAFE").code == "RW303"
    assert session.state.block is None


def test_a_yes_beforehand_is_used_up_by_the_block_and_not_by_what_is_inside(session: Session) -> None:
    session.state.ask = None
    session.run("SET unsafe_confirmation = 'yes'", "BEGIN UNSAFE")
    session.run("INJECT SOURCE OFFSETS s VALUES ('0' = 5) ALLOW GAPS", "COMMIT")
    assert session.refused("INJECT SOURCE OFFSETS s TO EARLIEST").code == "RW304"


def test_a_gap_that_no_statement_allows_needs_somebody_who_sees_it(session: Session) -> None:
    session.state.ask = None
    session.run("SET unsafe_confirmation = 'yes'", "BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    error = session.refused("COMMIT")
    assert error.code == "RW304"
    assert "ALLOW GAPS" in (error.hint or "")


def test_a_refused_commit_is_over_and_its_token_does_it(session: Session) -> None:
    session.state.ask = None
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    error = session.refused("COMMIT")
    assert session.state.block is None
    token = re.search(r"CONFIRM '(\w+)'", error.hint or "")
    assert token is not None
    epoch = session.epoch
    session.run(f"CONFIRM '{token[1]}'")
    assert session.epoch == epoch + 1


def test_a_reader_that_does_not_stop_holds_the_commit_up_no_longer_than_the_timeout(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true")
    session.give_a_reader()
    session.pretend_to_own()
    session.run("SET statement_timeout = '200ms'", "BEGIN UNSAFE", "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    error = session.refused("COMMIT")
    assert error.code == "RW305"
    assert "did not stop within 0.2 s" in error.message
    assert session.metastore.jobs.quiesce_locks() == ()


def test_a_quiesce_lock_ends_with_the_next_commit_and_with_its_process(session: Session) -> None:
    session.give_a_reader()
    snapshot = session.metastore.snapshot()
    source = snapshot.find("source", "s")
    assert source is not None
    (hold,) = lock_sources(session.context, snapshot, [source.id], 5.0, lambda: None)
    assert list(quiesced_jobs(session.context, snapshot)) == [f"ingest-{source.id}"]
    session.run("ALTER SYSTEM SET enable_unsafe_ops = false")
    assert quiesced_jobs(session.context, session.metastore.snapshot()) == {}
    assert hold.pid == os.getpid()


def test_metrics_count_operations_and_the_positions_they_set(session: Session) -> None:
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)", "COMMIT")
    session.run("INJECT SOURCE OFFSETS s VALUES ('0' = 6)")
    metrics = Metrics(session.context)
    for _ in range(2):
        found = {(sample.name, sample.labels): sample.value for sample in metrics.samples()}
        assert found["rw_sql_unsafe_operations_total", (("kind", "BEGIN UNSAFE"), ("source", "s"))] == 1
        assert found["rw_sql_unsafe_operations_total", (("kind", "INJECT SOURCE OFFSETS"), ("source", "s"))] == 1
        assert found["rw_sql_injected_split_states_total", (("source", "s"),)] == 2
    session.run("INJECT SOURCE OFFSETS s VALUES ('0' = 7)")
    found = {(sample.name, sample.labels): sample.value for sample in metrics.samples()}
    assert found["rw_sql_injected_split_states_total", (("source", "s"),)] == 3


def test_an_interrupted_wait_lets_the_reader_go(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.run("RESUME SOURCE s")
    session.give_a_reader()
    session.pretend_to_own()

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(holds, "_has_stopped", interrupted)
    source = session.metastore.snapshot().find("source", "s")
    assert source is not None
    with pytest.raises(KeyboardInterrupt):
        lock_sources(session.context, session.metastore.snapshot(), [source.id], 5.0, lambda: None)
    assert quiesced_jobs(session.context, session.metastore.snapshot()) == {}


def test_a_lock_lasts_as_long_as_its_readers_need_to_stop_and_then_its_whole_time(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, False])
    monkeypatch.setattr(holds, "_has_stopped", lambda *_: next(answers, True))
    monkeypatch.setattr(holds, "LOCK_SECONDS", 0.03)
    monkeypatch.setattr(holds, "COMMIT_SECONDS", 0.0)
    source = session.metastore.snapshot().find("source", "s")
    assert source is not None
    began = now_ms()
    (lock,) = lock_sources(session.context, session.metastore.snapshot(), [source.id], 5.0, lambda: None)
    assert next(answers, None) is None
    # Three looks of 20 ms, each longer than half a lock's time.
    assert lock.expires_ms >= began + 60 + 30
    (stored,) = session.metastore.jobs.quiesce_locks()
    assert stored == lock


def test_a_quiesce_lock_that_is_about_to_end_is_not_enough_for_a_commit(session: Session) -> None:
    snapshot = session.metastore.snapshot()
    hold = QuiesceLock(hold="h", source_id=1, epoch=snapshot.epoch, host="", pid=1, process_start="", expires_ms=0)

    def lasts(seconds: float, *, epoch: int = snapshot.epoch) -> bool:
        left = replace(hold, expires_ms=now_ms() + int(seconds * 1000), epoch=epoch)
        return are_valid(snapshot, [left])

    assert are_valid(snapshot, [])
    assert lasts(2 * COMMIT_SECONDS)
    assert not lasts(COMMIT_SECONDS / 2)
    assert not lasts(-1)
    assert not lasts(2 * COMMIT_SECONDS, epoch=snapshot.epoch - 1)


@pytest.mark.parametrize("apart", [-3600, 0, 3600])
def test_the_lock_of_another_machine_does_not_depend_on_its_clock(
    session: Session, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    holds._seen.clear()
    snapshot = session.metastore.snapshot()
    source = snapshot.find("source", "s")
    assert source is not None
    lock = QuiesceLock(
        hold=f"of another machine, {apart} s apart",
        source_id=source.id,
        epoch=snapshot.epoch,
        host="another machine",
        pid=1,
        process_start="",
        expires_ms=now_ms() + int((apart + holds.LOCK_SECONDS) * 1000),
    )
    session.metastore.jobs.add_locks([lock])
    assert quiesced_jobs(session.context, snapshot)
    (key,) = holds._seen
    for seconds, is_held in ((holds.LOCK_SECONDS / 2, True), (holds.LOCK_SECONDS + 1, False)):
        holds._seen[key] = time.monotonic() - seconds
        assert bool(quiesced_jobs(session.context, snapshot)) == is_held
    # A process that starts later gives the lock its whole time again, but not for days.
    holds._seen.clear()
    assert quiesced_jobs(session.context, snapshot)
    holds._seen.clear()
    monkeypatch.setattr(holds, "now_ms", lambda: lock.expires_ms + 86_400_001)
    assert not quiesced_jobs(session.context, snapshot)


def test_a_block_that_was_thought_about_for_long_is_held_and_planned_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(executor, "are_valid", lambda *_: next(answers))
    epoch = session.epoch
    session.run("BEGIN UNSAFE", "INJECT SOURCE OFFSETS s VALUES ('0' = 5)", "COMMIT")
    assert session.epoch == epoch + 1
    assert len(session.questions) == 1
    assert list(answers) == []


@pytest.mark.long
def test_an_applied_operation_has_an_outcome_though_its_process_was_killed_at_once(session: Session) -> None:
    """Outcomes are written within a second after the answer; here the process does not live that long."""
    program = (
        "import os, sys; from pathlib import Path; from tests.runtime.control.test_blocks import Session\n"
        "session = Session(Path(sys.argv[1]))\n"
        "session.run(\"INJECT SOURCE OFFSETS s VALUES ('0' = 5)\")\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, session.warehouse.uri], check=False)
    assert done.returncode == -9
    (killed,) = session.sql("SHOW UNSAFE OPERATIONS")
    assert killed[7] == "committed, not yet applied"
    session.pretend_to_own()
    lease = session.metastore.jobs.lease()
    assert lease is not None
    assert session.metastore.jobs.renew_lease(replace(lease, applied_epoch=session.epoch))
    (killed,) = session.sql("SHOW UNSAFE OPERATIONS")
    assert killed[7] == "applied"


@pytest.mark.parametrize("error", [OSError("the store is away"), DeltaError("the store is away")])
def test_a_statement_whose_wait_fails_is_committed_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    session = Session(tmp_path)
    session.run(CREATE)
    session.give_a_reader()
    session.pretend_to_own()
    epoch = session.epoch

    def fail(_epoch: int, *_: object) -> bool:
        raise error

    monkeypatch.setattr(session.executor._follow_up, "wait_applied", fail)
    refused = session.refused("PAUSE SOURCE s")
    assert (refused.code, refused.message) == (
        "RW406",
        f"the statement is committed as epoch {epoch + 1}, and the wait for the jobs failed: the store is away",
    )
    assert session.epoch == epoch + 1
