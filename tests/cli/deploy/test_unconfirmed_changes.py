"""The hint of ``rw-sql apply`` after a statement that nobody confirmed: the options in it can be used."""

from __future__ import annotations

import io
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from rw_sql.cli.deploy.execution import carry_out
from rw_sql.cli.terminal.question import first_unconfirmed
from rw_sql.errors import Span, SqlError
from rw_sql.metastore import Snapshot
from rw_sql.metastore.records import PutObject, RebuildRecord
from rw_sql.plan.deploy.change import DeployChange
from rw_sql.plan.deploy.plan_file import SavedPlan
from rw_sql.plan.result.confirmation import Question, UnconfirmedError
from rw_sql.plan.result.steps import after
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOVE = "ALTER SOURCE s UNSAFE SET (topic = 'new')"


def changes(*texts: str) -> tuple[DeployChange, ...]:
    """A change for each statement."""
    return tuple(
        DeployChange(action="alter", kind="source", name="s", statements=(parse_statement(text),)) for text in texts
    )


class Runner:
    """Runs no statement, and refuses the unsafe one."""

    def __init__(self, folder: Path) -> None:
        self.location = SimpleNamespace(uri=str(folder / "w"))

    @contextmanager
    def session(self) -> Iterator[None]:
        yield None

    def first_unconfirmed(self, questions: tuple[Question, ...]) -> Question:
        return questions[0]

    def run(self, _: object, text: str) -> None:
        if text == MOVE:
            question = Question(statement=text, preview="", token="0c", unallowed=("GAPS",))
            raise UnconfirmedError(question, "not confirmed", span=Span(0, 1, 1, 1), hint="CONFIRM '0c'")


@pytest.mark.parametrize(
    ("plan_file", "unallowed", "hint"),
    [
        (None, (), "nothing was changed; add --yes to the same command"),
        (None, ("GAPS",), "nothing was changed; to accept the predicted effects, add --yes --allow gaps to the same"),
        ("p.json", ("GAPS",), "make the plan again: rw-sql diff FOLDER --allow gaps --file p.json; and apply it with"),
    ],
)
def test_no_statement_runs_if_nobody_can_confirm_a_later_one(
    plan_file: str | None, unallowed: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question(statement=MOVE, preview="1 gap", token="0c", unallowed=unallowed)
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", lambda *_: (question,))
    ran: list[str] = []
    runner = Runner(tmp_path)
    monkeypatch.setattr(Runner, "run", lambda _, __, text: ran.append(text))
    found = changes("DROP SINK k", MOVE)
    plan = SavedPlan(warehouse=runner.location.uri, epoch=0, changes=found, epochs={}, free=())
    with pytest.raises(UnconfirmedError) as caught:
        carry_out(runner, plan, found, [], (), "run it again", plan_file)  # type: ignore[arg-type]
    assert (caught.value.code, ran) == ("RW304", [])
    assert hint in (caught.value.hint or "")
    assert "\n1 gap" in caught.value.render()


def test_a_change_is_not_made_while_its_view_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAIT only says so if the rebuild's job is stalled, or no process runs it."""
    monkeypatch.setattr("rw_sql.cli.deploy.execution._require_possible", lambda *_: None)
    ran: list[str] = []
    runner = Runner(tmp_path)
    monkeypatch.setattr(Runner, "run", lambda _, __, text: ran.append(text))
    found = changes("WAIT MATERIALIZED VIEW v", "DROP SINK k")
    plan = SavedPlan(warehouse=runner.location.uri, epoch=0, changes=found, epochs={}, free=())
    rebuild = PutObject(record=RebuildRecord(id=3, name="v", view_id=2, generation=2))
    then = after(Snapshot(), (rebuild,))
    monkeypatch.setattr("rw_sql.cli.deploy.execution.catalog_of", lambda _: (None, then))
    made: list[DeployChange] = []
    with pytest.raises(SqlError, match='"v" is still being rebuilt, and queries read its previous rows') as caught:
        carry_out(runner, plan, found, made, (), "run it again", None)  # type: ignore[arg-type]
    assert (caught.value.code, made, ran) == ("RW406", [], ["WAIT MATERIALIZED VIEW v"])
    monkeypatch.setattr("rw_sql.cli.deploy.execution.catalog_of", lambda _: (None, Snapshot()))
    carry_out(runner, plan, found, made, (), "run it again", None)  # type: ignore[arg-type]
    assert made == list(found)


@pytest.mark.parametrize(
    ("plan_file", "texts", "hint"),
    [
        (None, (MOVE,), "add --confirm 0c to the same command; --yes needs --allow gaps"),
        (None, ("PAUSE SOURCE s", MOVE), "add --confirm 0c to the same command; --yes needs --allow gaps"),
        ("p.json", (MOVE,), "add --confirm 0c to the same command; --yes needs a plan that is made with it"),
        ("p.json", ("PAUSE SOURCE s", MOVE), "rw-sql diff FOLDER --file p.json; and apply it with --confirm 0c"),
    ],
)
@pytest.mark.parametrize("is_one_change", [True, False])
def test_the_hint_after_an_unconfirmed_statement_fits_the_command(
    plan_file: str | None,
    texts: tuple[str, ...],
    hint: str,
    is_one_change: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rw_sql.cli.deploy.execution._require_possible", lambda *_: None)
    parts = (texts,) if is_one_change else tuple((text,) for text in texts)
    found = tuple(
        DeployChange(action="alter", kind="source", name="s", statements=tuple(map(parse_statement, part)))
        for part in parts
    )
    runner = Runner(tmp_path)
    plan = SavedPlan(warehouse=runner.location.uri, epoch=0, changes=found, epochs={}, free=())
    keeping = ("ALTER SYSTEM SET rollback_window = '7d'",)
    with pytest.raises(UnconfirmedError) as caught:
        carry_out(runner, plan, found, [], keeping, "run it again", plan_file)  # type: ignore[arg-type]
    assert hint in (caught.value.hint or "")


def test_a_token_confirms_the_question_that_it_belongs_to() -> None:
    console = Console(file=io.StringIO())
    plain, gap, later = (
        Question(statement=MOVE, preview="", token="0a"),
        Question(statement=MOVE, preview="", token="0b", unallowed=("GAPS",)),
        Question(statement=MOVE, preview="", token="0c", unallowed=("GAPS",), is_final=False),
    )

    def unconfirmed(*questions: Question, is_confirmed: bool = True, tokens: str = "") -> Question | None:
        return first_unconfirmed(console, questions, is_confirmed=is_confirmed, tokens=frozenset(tokens.split()))

    assert unconfirmed(plain) is None
    assert unconfirmed(plain, is_confirmed=False) is plain
    assert unconfirmed(plain, gap) is gap
    assert unconfirmed(plain, gap, tokens="ff") is gap
    assert unconfirmed(plain, gap, tokens="0b") is None
    assert unconfirmed(plain, later, tokens="ff") is None
    assert unconfirmed(gap, later, tokens="0b") is later
    assert unconfirmed(gap, later, tokens="0b ff") is None
