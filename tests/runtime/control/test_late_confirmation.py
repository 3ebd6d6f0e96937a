"""A statement that is confirmed long after its preview. The upstream may have changed, although the catalog has not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.plan.lower import lower
from rw_sql.plan.result.confirmation import token_of
from rw_sql.plan.result.plan import Plan
from rw_sql.runtime.control import executor
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.syntax import parse_statement
from tests.runtime.control.test_blocks import CREATE, Session

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.base import Upstream
    from rw_sql.plan.result.confirmation import Question

LATEST = "INJECT SOURCE OFFSETS s TO LATEST"


@dataclass
class Changed:
    """The bounds and the incarnation that the upstream has now."""

    start: int = 0
    end: int = 20
    incarnation: str | None = "first"


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Changed:
    changed = Changed()
    kind = type(connector("datagen"))
    real = kind.look

    def look(self: object, options: object, **rest: object) -> Upstream:
        found: Upstream = real(self, options, **rest)  # type: ignore[arg-type]
        splits = {
            name: replace(split, start=changed.start, end=changed.end, incarnation=changed.incarnation)
            for name, split in found.splits.items()
        }
        return replace(found, splits=splits)

    monkeypatch.setattr(kind, "look", look)
    return changed


@pytest.fixture
def session(tmp_path: Path, upstream: Changed) -> Session:
    made = Session(tmp_path)
    made.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    made.state.ask = None
    return made


def refused_token(session: Session, text: str) -> str:
    error = session.refused(text)
    assert error.code == "RW304"
    found = re.search(r"CONFIRM '(\w+)'", error.hint or "")
    assert found is not None
    return found[1]


def position(session: Session) -> object:
    (row,) = session.sql("SHOW SOURCE SPLITS s")
    return row[1]


def test_confirm_sets_the_offsets_of_the_preview_although_records_have_come(
    session: Session, upstream: Changed
) -> None:
    token = refused_token(session, LATEST)
    upstream.end = 30
    assert [row[1] for row in session.sql(f"CONFIRM '{token}'")] == ["INJECTED"]
    assert position(session) == 20


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (LATEST, {"incarnation": "second"}),
        ("INJECT SOURCE OFFSETS s VALUES ('0' = 15)", {"incarnation": "second"}),
        (LATEST, {"end": 10}),
        (LATEST, {"start": 25, "end": 30}),
    ],
)
def test_confirm_is_refused_once_the_upstream_lacks_what_the_preview_showed(
    text: str, change: dict[str, object], session: Session, upstream: Changed
) -> None:
    epoch = session.epoch
    token = refused_token(session, text)
    for name, value in change.items():
        setattr(upstream, name, value)
    again = refused_token(session, f"CONFIRM '{token}'")
    assert session.epoch == epoch
    # The new preview has a token of its own.
    session.run(f"CONFIRM '{again}'")
    assert session.epoch == epoch + 1


def test_an_offset_that_no_longer_exists_is_an_error_and_not_committed(session: Session, upstream: Changed) -> None:
    token = refused_token(session, "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    epoch = session.epoch
    upstream.start = 16
    assert session.refused(f"CONFIRM '{token}'").code == "RW211"
    assert session.epoch == epoch


def test_a_position_without_identity_is_not_confirmed_for_another_incarnation(
    tmp_path: Path, upstream: Changed
) -> None:
    upstream.incarnation = None
    session = Session(tmp_path)
    session.run(CREATE, "ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE s")
    session.state.ask = None
    upstream.incarnation = "first"
    token = refused_token(session, "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    upstream.incarnation = "second"
    # The effect is the same, and so is the token, but nobody has seen the new preview.
    assert refused_token(session, f"CONFIRM '{token}'") == token
    session.run(f"CONFIRM '{token}'")
    assert position(session) == 15


def test_only_an_injection_is_confirmed_by_the_plan_that_was_shown(session: Session) -> None:
    snapshot = session.metastore.snapshot()
    shown = lower(parse_statement(LATEST), snapshot, WarehouseInspector(session.context, snapshot))
    found = session.executor._plan_as(shown, {token_of(snapshot, shown)})
    assert found is not None
    assert found[1] is shown
    for text in ("REWIND SOURCE s TO OPERATION 1", "ALTER SOURCE s UNSAFE SET (datagen.split.num = 2)"):
        other = Plan(statement=parse_statement(text), fingerprint="what else it stands for")
        assert session.executor._plan_as(other, {token_of(snapshot, other)}) is None


@pytest.mark.parametrize(("seconds", "is_asked_again"), [(1000.0, False), (0.0, True)])
def test_a_block_gives_its_reader_more_time(
    seconds: float, is_asked_again: bool, session: Session, upstream: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_QUICK_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(executor, "_QUICK_COMMIT_SECONDS", seconds)
    asked: list[Question] = []

    def answer(question: Question) -> bool:
        asked.append(question)
        upstream.end = 30
        return True

    session.state.ask = answer
    session.run("BEGIN UNSAFE", LATEST, "COMMIT")
    assert len(asked) == 1 + is_asked_again
    assert position(session) == (30 if is_asked_again else 20)


@pytest.mark.parametrize(
    ("text", "is_changed"),
    [
        (LATEST, False),
        (LATEST, True),
        ("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", False),
        ("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", True),
    ],
)
def test_a_preview_that_a_user_has_looked_at_for_long_is_compared_with_the_upstream(
    text: str, is_changed: bool, session: Session, upstream: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_QUICK_ANSWER_SECONDS", 0.0)
    asked: list[Question] = []

    def answer(question: Question) -> bool:
        asked.append(question)
        if is_changed:
            upstream.incarnation = "second"
        return True

    session.state.ask = answer
    epoch = session.epoch
    session.run(text)
    assert session.epoch == epoch + 1
    assert len(asked) == 1 + is_changed
    if is_changed:
        assert "UNKNOWN (topic was re-created)" in asked[-1].preview
