"""Statements and locks while other sessions and the owner itself commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import DISCOVERY, Operation, ParameterRecord, PutObject, SourceRecord
from rw_sql.runtime.control import discovery, executor
from rw_sql.runtime.control.discovery import SplitDiscovery
from rw_sql.runtime.control.owner import Owner
from rw_sql.runtime.control.quiesce import lock_sources
from tests.runtime.control.test_blocks import CREATE, Session

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.plan.result.confirmation import Question


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path)
    made.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    return made


class Others:
    """Another process that commits ``left`` further operations, one during each planning of a statement."""

    def __init__(self, uri: str, left: int) -> None:
        self.metastore = Metastore.open(uri)
        self.left = left

    def commit(self, _: str = "") -> None:
        if self.left == 0:
            return
        self.left -= 1
        snapshot = self.metastore.snapshot()
        put = PutObject(record=ParameterRecord(id=snapshot.next_id, name=f"p{snapshot.next_id}", value="1"))
        operation = Operation(kind="TEST", statement="", objects=(), changes=(put,))
        self.metastore.commit(operation, based_on=snapshot)

    def disturb(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def at(point: str) -> None:
            if point == "statement.before_commit":
                self.commit()

        monkeypatch.setattr(executor, "fault", at)
        monkeypatch.setattr(executor, "_PAUSE_SECONDS", 0.0)


def test_a_statement_is_planned_again_until_its_timeout(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(session.warehouse.uri, executor._ATTEMPTS + 5)
    others.disturb(monkeypatch)
    session.run(CREATE.replace("SOURCE s", "SOURCE crowded"))
    assert others.left == 0
    session.run("SET statement_timeout = '0s'")
    others.left = executor._ATTEMPTS
    error = session.refused(CREATE.replace("SOURCE s", "SOURCE later"))
    assert error.code == "RW309"
    assert error.message.startswith("other statements were committed during each of the 20 attempts in ")
    assert error.message.endswith(": nothing was changed")
    assert error.hint == (
        "run the statement again; if it fails again, make it try for longer: SET statement_timeout = '1s'"
    )


def test_a_question_is_not_asked_without_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(session.warehouse.uri, executor._ATTEMPTS + 5)
    others.disturb(monkeypatch)
    error = session.refused("INJECT SOURCE OFFSETS s TO EARLIEST")
    assert (error.code, error.hint) == ("RW309", "run the statement again"), "no timeout limits these attempts"
    assert others.left == 5


@pytest.mark.parametrize(("seconds", "longest"), [(60.0, executor._PAUSE_SECONDS), (0.01, 0.01)])
def test_a_statement_that_has_lost_often_pauses_no_longer_than_a_newcomer(
    session: Session, monkeypatch: pytest.MonkeyPatch, seconds: float, longest: float
) -> None:
    """A newcomer that loses for the first time pauses as long as the first pause here."""
    others = Others(session.warehouse.uri, 12)
    pauses: list[float] = []

    def pause(least: float, most: float) -> float:
        assert least == 0.0
        pauses.append(most)
        return 0.0

    class Clock:
        now = 0.0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now

        @staticmethod
        def sleep(_: float) -> None: ...

    def at(point: str) -> None:
        if point == "statement.before_commit":
            Clock.now += seconds  # The attempt takes this time.
            others.commit()

    monkeypatch.setattr(executor, "fault", at)
    monkeypatch.setattr(executor, "uniform", pause)
    monkeypatch.setattr(executor, "time", Clock)
    session.run(CREATE.replace("SOURCE s", "SOURCE crowded"))
    assert len(pauses) == 12
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] == pytest.approx(longest)
    assert pauses[-1] <= longest / 10


def test_the_owner_finds_splits_only_after_a_lock_has_ended(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.run("RESUME SOURCE s")
    session.give_a_reader()
    snapshot = session.metastore.snapshot()
    source = snapshot.find("source", "s")
    assert isinstance(source, SourceRecord)
    looks = SplitDiscovery(session.context, lambda *_: None)

    def found(*_: Any) -> tuple[tuple[PutObject, ...], tuple[str, ...]]:
        return (PutObject(record=source),), ("1 new split",)

    monkeypatch.setattr(discovery, "take_up_new_topics", found)
    locks = lock_sources(session.context, snapshot, [source.id], 5.0, lambda: None)
    looks._look_after(source.id)
    assert session.epoch == snapshot.epoch
    assert looks._next_check[source.id] > 0
    assert source.id in looks._changed
    session.metastore.jobs.release_locks(locks)
    looks._look_after(source.id)
    assert session.epoch == snapshot.epoch + 1
    assert session.metastore.operations(limit=1)[0].kind == DISCOVERY


def test_a_block_over_a_source_with_new_splits_asks_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.run("RESUME SOURCE s")
    session.give_a_reader()
    source = session.metastore.snapshot().find("source", "s")
    assert isinstance(source, SourceRecord)
    looks = SplitDiscovery(session.context, lambda *_: None)
    monkeypatch.setattr(discovery, "take_up_new_topics", lambda *_: ((PutObject(record=source),), ("1 new split",)))

    def yes(question: Question) -> bool:
        looks._look_after(source.id)
        return session.yes(question)

    session.state.ask = yes
    session.run("BEGIN UNSAFE", "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "RESUME SOURCE s", "COMMIT")
    assert len(session.questions) == 1


def test_the_owner_is_held_back_until_a_lock_has_ended(session: Session) -> None:
    session.run("RESUME SOURCE s")
    session.give_a_reader()
    snapshot, owner = session.metastore.snapshot(), Owner(session.context)
    source = snapshot.find("source", "s")
    assert isinstance(source, SourceRecord)
    assert not owner._is_held_back()
    locks = lock_sources(session.context, snapshot, [source.id], 5.0, lambda: None)
    assert owner._is_held_back()
    session.metastore.jobs.release_locks(locks)
    assert not owner._is_held_back()
