"""The JSON document of ``rw-sql apply``, and the values of secret variables in its errors."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.errors import UPSTREAM_UNREACHABLE, Span, SqlError
from rw_sql.plan.deploy.plan_file import from_json
from rw_sql.session.scripts import StatementText
from tests.cli.deploy.test_deploy_commands import SOURCE, VIEW, made, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "tok-123456"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose source has a property with a secret value. Spark starts at once."""

    @contextmanager
    def starting(*_: object, **__: object) -> Iterator[None]:
        yield

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", starting)
    monkeypatch.setattr("rw_sql.session.scripts.run_dry", lambda *_: ())
    folder = tmp_path / "pipelines"
    folder.mkdir()
    source = SOURCE.replace("topic =", "properties.client.id = '${API_TOKEN}', topic =")
    (folder / "all.sql").write_text(source + VIEW, encoding="utf-8")
    (folder / "prod.env").write_text(f"BROKER=127.0.0.1:9092\nAPI_TOKEN={TOKEN}\n", encoding="utf-8")
    return folder


def report(*words: str) -> tuple[int, dict[str, object], list[bool], str]:
    """The exit status, the error, whether each change was made, and standard error."""
    result = CliRunner().invoke(app, ["apply", *words, "-o", "json"])
    found = json.loads(result.stdout)
    assert set(found) == {"warehouse", "changes", "error"}
    return result.exit_code, found["error"], [change["is_made"] for change in found["changes"]], result.stderr


def test_a_refused_plan_is_reported_with_its_changes(folder: Path, tmp_path: Path) -> None:
    plan, warehouse = tmp_path / "plan.json", tmp_path / "w"
    run("diff", str(folder), "--env", "prod", "-w", str(warehouse), "--file", str(plan))
    made(warehouse, SOURCE.replace("${env}", "prod").replace("${BROKER}", "127.0.0.1:9092"))
    status, error, changes, told = report(str(plan), "--yes")
    assert (status, error["code"], changes) == (1, "RW309", [False, False])
    assert "the plan is outdated and was not applied" in told


def test_a_wrong_time_is_reported_with_the_changes(folder: Path, tmp_path: Path) -> None:
    words = (str(folder), "--env", "prod", "-w", str(tmp_path / "w"), "--yes", "--keep", "soon")
    status, error, changes, _ = report(*words)
    assert (status, error["code"], changes) == (2, "RW107", [False, False])


@pytest.mark.parametrize("text", ["", "the statement is committed as epoch 3"])
def test_after_ctrl_c_the_report_is_not_that_of_a_success(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    ran: list[str] = []

    def interrupt(_: object, statement: str, **__: object) -> None:
        if ran:
            raise KeyboardInterrupt(text)
        ran.append(statement)

    monkeypatch.setattr("rw_sql.session.scripts.run_statements", interrupt)
    status, error, changes, _ = report(str(folder), "--env", "prod", "-w", str(tmp_path / "w"), "--yes")
    assert (status, changes) == (130, [True, False])
    assert set(error) == {"code", "sqlstate", "message", "hint", "detail", "file", "line", "column"}
    assert (error["code"], error["sqlstate"]) == (None, "57014")
    assert error["message"] == (f"cancelled: {text}" if text else "cancelled")
    assert error["hint"] == "to continue, run the same command again"


def test_the_error_of_a_statement_does_not_show_the_value_of_a_secret_variable(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error quotes a line of the statement, which has the value and not the variable."""

    def refuse(_: object, text: str, **__: object) -> None:
        at = text.index("topic")
        line = text.count("\n", 0, at) + 1
        raise SqlError(
            UPSTREAM_UNREACHABLE, f"no answer to {TOKEN}", hint=f"omit {TOKEN}", span=Span(at, at + 5, line, 3)
        ).located(text.replace(",\n  topic", ", topic"))

    monkeypatch.setattr("rw_sql.session.scripts.run_statements", refuse)
    words = (str(folder), "--env", "prod", "-w", str(tmp_path / "w"), "--yes")
    status, error, changes, told = report(*words)
    assert (status, error["code"], changes) == (4, "RW401", [False, False])
    assert (error["message"], error["hint"]) == ("no answer to *****", "omit *****")
    assert "HINT: omit *****" in told
    with pytest.raises(SqlError) as caught:
        run("apply", *words)
    assert "properties.client.id = '*****'" in (caught.value.text or "")
    assert TOKEN not in caught.value.render()


def test_neither_diff_nor_apply_prints_the_value_of_a_secret_variable(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the statements that run, and the plan that ``apply`` reads, contain the value."""
    ran: list[str] = []

    def run_one(_: object, text: str, **options: Any) -> None:
        ran.append(text)
        options["on_result"](StatementText(text=text, line=1, column=1), None)

    monkeypatch.setattr("rw_sql.session.scripts.run_statements", run_one)
    words = (str(folder), "--env", "prod", "-w", str(tmp_path / "w"))
    plan = tmp_path / "plan.json"
    plan.write_text("an older plan, which everybody can read", encoding="utf-8")
    plan.chmod(0o644)
    for command in (
        ("diff", *words),
        ("diff", *words, "-o", "json"),
        ("diff", *words, "--file", str(plan)),
        ("apply", *words, "--yes"),
        ("apply", *words, "--yes", "-o", "json"),
        ("apply", str(plan), "--yes"),
        ("apply", str(plan), "--yes", "-o", "json"),
    ):
        ran.clear()
        result = CliRunner().invoke(app, list(command))
        assert result.exit_code == 0, result.output
        assert TOKEN not in result.output
        assert "properties.client.id = '*****'" in result.output
        assert [TOKEN in text for text in ran] == ([True, False] if command[0] == "apply" else [])
    assert plan.stat().st_mode & 0o777 == 0o600
    assert from_json(plan.read_text(encoding="utf-8"), "plan.json").secrets == (TOKEN,)


def test_apply_refuses_a_plan_whose_values_are_hidden(folder: Path, tmp_path: Path) -> None:
    plan = tmp_path / "shown.json"
    plan.write_text(
        run("diff", str(folder), "--env", "prod", "-w", str(tmp_path / "w"), "-o", "json")[1], encoding="utf-8"
    )
    with pytest.raises(SqlError, match="cannot be applied, because asterisks replace") as caught:
        run("apply", str(plan), "--yes")
    assert caught.value.hint == "rw-sql diff FOLDER --file FILE writes a plan with all values"


def test_a_plan_without_secret_values_stays_readable_and_can_be_applied_from_json(folder: Path, tmp_path: Path) -> None:
    (folder / "prod.env").write_text("BROKER=127.0.0.1:9092\nAPI_TOKEN=\n", encoding="utf-8")
    plan = tmp_path / "plan.json"
    _, shown = run("diff", str(folder), "--env", "prod", "-w", str(tmp_path / "w"), "-o", "json", "--file", str(plan))
    assert plan.read_text(encoding="utf-8") == shown
    assert len(from_json(shown, "plan.json").changes) == 2
    assert plan.stat().st_mode & 0o044 == 0o666 & ~_umask() & 0o044


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
