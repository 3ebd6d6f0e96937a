"""The hint of ``rw-sql apply`` after a statement that nobody confirmed: the options in it can be used."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.deploy.execution import carry_out
from rw_sql.errors import Span
from rw_sql.plan.deploy.change import DeployChange
from rw_sql.plan.deploy.plan_file import SavedPlan
from rw_sql.plan.result.confirmation import Question, UnconfirmedError
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOVE = "ALTER SOURCE s UNSAFE SET (topic = 'new')"


class Runner:
    """Runs no statement, and refuses the unsafe one."""

    def __init__(self, folder: Path) -> None:
        self.location = SimpleNamespace(uri=str(folder / "w"))

    @contextmanager
    def session(self) -> Iterator[None]:
        yield None

    def run(self, _: object, text: str) -> None:
        if text == MOVE:
            question = Question(statement=text, preview="", token="0c", unallowed=("GAPS",))
            raise UnconfirmedError(question, "not confirmed", span=Span(0, 1, 1, 1), hint="CONFIRM '0c'")


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
    changes = tuple(
        DeployChange(action="alter", kind="source", name="s", statements=tuple(map(parse_statement, part)))
        for part in parts
    )
    runner = Runner(tmp_path)
    plan = SavedPlan(warehouse=runner.location.uri, epoch=0, changes=changes, epochs={}, free=())
    keeping = ("ALTER SYSTEM SET rollback_window = '7d'",)
    with pytest.raises(UnconfirmedError) as caught:
        carry_out(runner, plan, changes, [], keeping, "run it again", plan_file)  # type: ignore[arg-type]
    assert hint in (caught.value.hint or "")
