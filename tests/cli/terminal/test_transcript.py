"""The transcript of a script: each statement is printed once, before its question or its rows."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.script.loading import hiding, load_scripts
from rw_sql.cli.script.report import RunReport, StatementRun
from rw_sql.cli.script.running import RunOptions, ScriptRun
from rw_sql.cli.terminal.output import console_for
from rw_sql.cli.terminal.transcript import Transcript
from rw_sql.errors import CONFIRMATION_NEEDED, SqlError
from rw_sql.plan.result.confirmation import Question
from rw_sql.session.results import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rw_sql.syntax import ScriptStatement


def question(statement: str) -> Question:
    return Question(statement=statement, preview=f"the preview of {statement}", token="t")


def test_a_statement_is_printed_once_with_its_question_and_its_outcome() -> None:
    shown = io.StringIO()
    transcript = Transcript(console_for(shown), lambda _: True)
    assert transcript.answer is not None
    transcript.begin()
    assert transcript.answer(question("INJECT a"))
    assert transcript.answer(question("INJECT a"))  # The effect has changed, so the question is asked again.
    transcript.show_outcome("inject a", None)
    transcript.begin()
    transcript.show_outcome("SELECT 2", None)
    assert shown.getvalue().split("\n") == ["INJECT a", "", "SELECT 2", "", ""]


@pytest.mark.parametrize("is_text", [True, False])
def test_the_text_of_a_statement_is_printed_after_one_that_was_declined(
    is_text: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "move.sql"
    file.write_text("INJECT a; INJECT b; SELECT 3", encoding="utf-8")
    ask: Callable[[Question], bool] | None = None

    @contextmanager
    def answering(_: object, answer: Callable[[Question], bool] | None) -> Iterator[SimpleNamespace]:
        nonlocal ask
        ask = answer
        yield SimpleNamespace(block_state=None)

    def run_part(
        _: object, part: ScriptStatement, script: str, file: str | None, on_result: Callable[[Values], None]
    ) -> None:
        assert ask is not None
        if part.text.startswith("INJECT") and not ask(question(part.text)):
            raise SqlError(CONFIRMATION_NEEDED, f"{part.text} was not confirmed")
        on_result(None)  # type: ignore[arg-type]

    monkeypatch.setattr("rw_sql.session.scripts.answering", answering)
    monkeypatch.setattr("rw_sql.session.scripts.run_part", run_part)
    monkeypatch.setattr("rw_sql.cli.script.running.read_values", lambda _: None)
    shown = io.StringIO()
    transcript = Transcript(console_for(shown), lambda asked: asked.statement == "INJECT b")
    scripts, hide = load_scripts([str(file)], {})
    report = RunReport(hide=hide)
    run = ScriptRun(scripts, RunOptions(keeps_going=True), report, transcript if is_text else None)
    run.carry_out(None, transcript)  # type: ignore[arg-type]
    assert [statement.status for statement in report.statements] == ["refused", "done", "done"]
    printed = [line.strip() for line in shown.getvalue().splitlines() if line.strip()]
    assert printed == ["INJECT a", "INJECT b", *(["SELECT 3"] if is_text else [])]


def test_a_preview_and_an_explain_do_not_show_the_value_of_a_secret_variable() -> None:
    hide, shown, previews = hiding(["hunter2"]), io.StringIO(), []

    def confirm(asked: Question) -> bool:
        previews.append(asked.preview)
        return True

    transcript = Transcript(console_for(shown), confirm, hide=hide, hide_values=hide.values)
    assert transcript.answer is not None
    assert transcript.answer(question("ALTER SOURCE s UNSAFE SET (client.id = 'hunter2')"))
    rows = Values(columns=("plan", "n"), rows=(("client.id becomes 'hunter2'", 1),))
    transcript.show_outcome("EXPLAIN ALTER SOURCE s …", rows)
    transcript.show_outcome("SELECT 'x'", Values(columns=("x",), rows=(("hunter2",),)))
    assert previews == ["the preview of ALTER SOURCE s UNSAFE SET (client.id = '*****')"]
    assert "client.id becomes '*****'" in shown.getvalue()
    assert shown.getvalue().count("hunter2") == 1  # A row of a query shows the stored value.
    report = RunReport(hide=hide)
    for text in ("EXPLAIN ALTER SOURCE s …", "SELECT 'x'"):
        report.statements.append(StatementRun(file=None, line=1, column=1, text=text, status="done", result=rows))
    explained, queried = json.loads(report.as_json())["statements"]
    assert (explained["rows"], queried["rows"]) == (
        [["client.id becomes '*****'", 1]],
        [["client.id becomes 'hunter2'", 1]],
    )
