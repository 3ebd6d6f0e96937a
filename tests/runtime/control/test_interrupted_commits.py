"""Ctrl-C during a statement's commit: the commit and what belongs to it are completed, and the message says so. No job
runs here."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.checkpoints.checkpoint import read_checkpoint
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.cli.main import app
from rw_sql.errors import CHECKPOINT_IN_USE, SqlError
from rw_sql.metastore import ConcurrentCommit, Metastore
from rw_sql.metastore.commits import CommitUnknown
from rw_sql.model.pauses import pauses_of
from rw_sql.runtime.control import executor
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.spark.interrupts import StatementInterrupted, interruptible
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement
from tests.checkpoints.made import kafka, make_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rw_sql.metastore.commits import Committed

pytestmark = pytest.mark.usefixtures("interrupted_as_by_default")

CREATE = "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20')"

INTERRUPTIBLE = (interruptible, nullcontext)
"""Statements of ``spark.sql``, and those of a command without Spark, which leaves Python's handler in place."""


@dataclass
class Session:
    """A session that confirms every request."""

    uri: str
    metastore: Metastore = field(init=False)

    def __post_init__(self) -> None:
        self.metastore = Metastore.open(self.uri)
        self._executor = Executor(
            Context(
                warehouse=Warehouse.at(self.uri), metastore=self.metastore, sessions=NoSpark(), owner="this process"
            ),
            None,
        )
        self._state = SessionState(ask=lambda _: True)

    def run(self, *texts: str) -> None:
        for text in texts:
            self._executor.run(parse_statement(text), self._state)

    @property
    def epoch(self) -> int:
        return self.metastore.snapshot().epoch

    @property
    def is_paused(self) -> bool:
        snapshot = self.metastore.snapshot()
        source = snapshot.find("source", "s")
        assert source is not None
        return bool(pauses_of(snapshot, source.id))

    @property
    def outcome(self) -> str | None:
        return self.metastore.operations(limit=1)[0].outcome


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(str(tmp_path / "warehouse"))
    made.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true")
    return made


def interrupt_commits(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """Sends Ctrl-C during each later commit, which fails if there is an ``error``."""
    commit = Metastore.commit

    def interrupted(metastore: Metastore, *given: Any, **named: Any) -> Committed:
        if error is None:
            committed = commit(metastore, *given, **named)
        os.kill(os.getpid(), signal.SIGINT)
        if error is not None:
            raise error
        return committed

    monkeypatch.setattr(Metastore, "commit", interrupted)


@pytest.mark.parametrize("inside", INTERRUPTIBLE)
@pytest.mark.parametrize("texts", [("PAUSE SOURCE s",), ("BEGIN UNSAFE", "PAUSE SOURCE s", "COMMIT")])
def test_the_message_says_that_the_statement_is_committed(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    texts: tuple[str, ...],
    inside: Callable[[], AbstractContextManager[None]],
) -> None:
    before = session.epoch
    handler = signal.getsignal(signal.SIGINT)
    interrupt_commits(monkeypatch)
    with pytest.raises(KeyboardInterrupt) as caught, inside():
        session.run(*texts)
    assert isinstance(caught.value, StatementInterrupted)
    assert str(caught.value) == f"stopped waiting for the jobs; the statement stays committed as epoch {before + 1}"
    assert (session.epoch, session.is_paused) == (before + 1, True)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("inside", INTERRUPTIBLE)
def test_a_checkpoint_is_changed_and_the_outcome_recorded(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    inside: Callable[[], AbstractContextManager[None]],
) -> None:
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[20])], [kafka(a=[40])]))
    interrupt_commits(monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="stays committed as epoch"), inside():
        session.run(f"INJECT CHECKPOINT OFFSETS '{path}' VALUES ('a:0' = 12) WITH (watch = '1ms')")
    assert '{"a":{"0":12}}' in read_checkpoint(CheckpointFiles.at(path)).entry.render()
    assert session.outcome == "applied"


def test_a_change_of_a_checkpoint_that_fails_is_an_error_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[20])], [kafka(a=[40])]))

    def refuse(*_: object, **__: object) -> int:
        raise SqlError(CHECKPOINT_IN_USE, "a job is using the checkpoint")

    monkeypatch.setattr(executor, "carry_out", refuse)
    interrupt_commits(monkeypatch)
    with pytest.raises((SqlError, KeyboardInterrupt), match="a job is using the checkpoint"), interruptible():
        session.run(f"INJECT CHECKPOINT OFFSETS '{path}' VALUES ('a:0' = 12) WITH (watch = '1ms')")
    assert session.outcome == "failed: a job is using the checkpoint"


def test_a_commit_whose_outcome_is_unknown_is_an_error_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_commits(monkeypatch, CommitUnknown(9, OSError("away")))
    unknown = "it is not known whether the statement is committed as epoch 9"
    with pytest.raises((SqlError, KeyboardInterrupt), match=unknown), interruptible():
        session.run("PAUSE SOURCE s")


def test_a_statement_that_lost_the_race_to_another_is_not_planned_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.epoch
    interrupt_commits(monkeypatch, ConcurrentCommit(before + 1, before))
    with pytest.raises(KeyboardInterrupt) as caught, interruptible():
        session.run("PAUSE SOURCE s")
    assert not isinstance(caught.value, StatementInterrupted)
    assert session.epoch == before


def test_a_command_prints_that_the_statement_is_committed(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = session.epoch
    interrupt_commits(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        app(["source", "pause", "-s", "s", "--warehouse", session.uri])
    assert ended.value.code == 130
    told = f"cancelled: stopped waiting for the jobs; the statement stays committed as epoch {before + 1}"
    assert told in " ".join(capsys.readouterr().err.split())
    assert session.is_paused
