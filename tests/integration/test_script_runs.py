"""Scripts as ``rw-sql run`` runs them, on an attached session: the result of each statement, and the printed output."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError

from rw_sql.cli.script.loading import load_scripts
from rw_sql.cli.script.report import RunReport
from rw_sql.cli.script.running import RunOptions, ScriptRun, run_scripts
from rw_sql.cli.terminal.output import console_for
from rw_sql.cli.terminal.transcript import Transcript
from rw_sql.errors import SqlError
from rw_sql.magics.cell import StatementMagic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark

FIRST = """\
\\set name s
\\echo making :name
CREATE SOURCE :name (id INT) WITH (connector = 'datagen', datagen.rows.total = :'total');
CREATE SECRET hidden WITH (backend = 'env', name = :'my_token');
\\ir more.sql
SELECT :'quoted' AS q, :'back' AS b, 'a\\\\b' AS c;
CREATE SOURCE :name (id INT) WITH (connector = 'datagen');
\\echo the end of the first
"""
MORE = "SELECT 'more' AS m;\nSELECT nothing\n  FROM range(:total);\n"
SECOND = """\
ALTER SYSTEM SET enable_unsafe_ops = true;
RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true);
BEGIN UNSAFE;
PAUSE SOURCE s
"""
VARIABLES = {"total": "5", "my_token": "MY_ENVIRONMENT", "quoted": "it's", "back": "a\\b"}


def run(session: AttachedSession, folder: Path, *files: str, **options: bool) -> tuple[RunReport, str]:
    """The report of scripts, and their transcript."""
    scripts, hide = load_scripts([str(folder / file) for file in files], VARIABLES)
    shown = io.StringIO()
    report = RunReport(hide=hide)
    transcript = Transcript(console_for(shown), None, hide=hide)
    ScriptRun(scripts, RunOptions(**options), report, transcript).carry_out(session.spark, transcript)  # type: ignore[arg-type]
    return report, shown.getvalue()


def test_scripts_go_on_or_stop(
    session: AttachedSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_ENVIRONMENT", "a token")
    for name, text in (("first.sql", FIRST), ("more.sql", MORE), ("second.sql", SECOND)):
        (tmp_path / name).write_text(text, encoding="utf-8")

    report, shown = run(session, tmp_path, "first.sql", "second.sql", keeps_going=True)
    told = [(run.file, run.line, run.status, run.error and run.error.code) for run in report.statements]
    first, more, second = (str(tmp_path / name) for name in ("first.sql", "more.sql", "second.sql"))
    assert told == [
        (first, 3, "done", None),
        (first, 4, "done", None),
        (more, 1, "done", None),
        (more, 2, "failed", "RW205"),
        (first, 6, "done", None),
        (first, 7, "failed", "RW201"),
        (second, 1, "done", None),
        (second, 2, "refused", "RW304"),
        (second, 3, "done", None),
        (second, 4, "failed", "RW333"),
    ]
    assert report.exit_status == 1
    assert session.attached.block_state is None
    assert report.summary.startswith("10 statements: 6 done, 3 failed, 1 refused;")
    errors = capsys.readouterr().err
    assert f'{more}: RW205: column "nothing" does not exist' in errors
    assert "LINE 2: SELECT nothing\n               ^^^^^^^" in errors
    assert "LINE 7: CREATE SOURCE :name (id INT)" in errors
    assert shown.startswith("making s\nCREATE SOURCE s (id INT)")
    assert shown.index("the end of the first") < shown.index("ALTER SYSTEM")
    assert "MY_ENVIRONMENT" not in shown + errors + report.as_json() + report.as_junit()
    # A literal keeps its value, in rw_sql's statements and in Spark's.
    rows = json.loads(report.as_json())["statements"][4]["rows"]
    assert rows == [["it's", "a\\b", "a\\b"]]

    report, shown = run(session, tmp_path, "more.sql", "second.sql")
    assert [run.status for run in report.statements] == ["done", "failed", "not run", "not run", "not run", "not run"]
    assert report.exit_status == 1


BLOCK = """\
SET spark.sql.scripting.enabled = true;
BEGIN
  DECLARE n INT DEFAULT 1;
  WHILE n < 3 DO
    SET n = n + 1;
  END WHILE;
  SELECT n AS counted;
END;
SELECT 'after' AS a;
BEGIN NOT ATOMIC
  DECLARE n INT DEFAULT 1;
  `more;`: BEGIN NOT ATOMIC
    SET n = n + 4;
  END `more;`;
  SELECT CASE WHEN n > 1 THEN n END AS counted;
END;
BEGIN
  SELECT 1;
"""


def test_a_block_of_spark_runs_as_one_statement(
    session: AttachedSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "block.sql").write_text(BLOCK, encoding="utf-8")
    report, _ = run(session, tmp_path, "block.sql")
    assert [(run.line, run.status) for run in report.statements] == [
        (1, "done"),
        (2, "done"),
        (9, "done"),
        (10, "done"),
        (17, "failed"),
    ]
    statements = json.loads(report.as_json())["statements"]
    assert [statements[at]["rows"] for at in (1, 3)] == [[[3]], [[5]]]
    assert "this BEGIN has no END" in capsys.readouterr().err


def test_variables_of_cells(session: AttachedSession) -> None:
    shell = SimpleNamespace(user_ns={"spark": session.spark, "least": 3, "name": "notebook"})
    magic = StatementMagic(shell)
    answers = [
        magic.run("--var name=cell", "\\set more 'it''s'\nSELECT :least + 1 AS n, :'name' AS name, :'more' AS more"),
        magic.run("", "SELECT :'name' AS name, :'more' AS more"),
        magic.run("SELECT :least AS least"),
    ]
    text = "\n".join(map(repr, answers))
    told = [line.split(" | ") for line in text.splitlines() if line.strip()[:1].isalnum()]
    assert [[cell.strip() for cell in line] for line in told] == [
        ["n", "name", "more"],
        ["4", "cell", "it's"],
        ["name", "more"],
        ["notebook", "it's"],
        ["least"],
        ["3"],
    ]
    for cell, place in (("SELECT 1;\nSELECT :nope", (2, 8)), ("SELECT :'name',\n nothing", (2, 2))):
        with pytest.raises(SqlError) as caught:
            magic.run("", cell)
        assert (caught.value.line, caught.value.column) == place
        assert cell.splitlines()[1] in caught.value.render()


@pytest.mark.parametrize(
    ("options", "cell"),
    [
        ("", "PAUSE SOURCE s; INJECT SOURCE OFFSETS s VALUES ('0' = :nope)"),
        ("", "\\i missing.sql"),
        ("--var nothing", "PAUSE SOURCE s"),
        # The first statement runs, but its result cannot be shown.
        ("", "SELECT make_timestamp(12000, 1, 1, 0, 0, 0) AS t; PAUSE SOURCE s"),
    ],
)
def test_a_statement_that_a_cell_does_not_run_aborts_the_block(
    session: AttachedSession, options: str, cell: str
) -> None:
    session.allow_unsafe()
    session.run("CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20')", "BEGIN UNSAFE")
    magic = StatementMagic(SimpleNamespace(user_ns={"spark": session.spark}))
    with pytest.raises((SqlError, UsageError)):
        magic.run(options, cell)
    assert session.attached.block_state == "aborted"
    with pytest.raises(SqlError, match="aborted by an error"):
        magic.run("COMMIT")


def test_the_error_before_sparks_start_is_the_one_after_it(
    session: AttachedSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.sql").write_text(
        "\\echo :total\n\nCREATE SOURCE s (id INT) WIHT ();\nSELECT 1;\n", encoding="utf-8"
    )
    after, shown = run(session, tmp_path, "wrong.sql")
    told = capsys.readouterr().err
    monkeypatch.setattr("rw_sql.cli.script.running.spark_for", None)
    scripts, hide = load_scripts([str(tmp_path / "wrong.sql")], VARIABLES)
    before = run_scripts(scripts, RunOptions(), hide)
    assert [run.status for run in before.statements] == ["failed", "not run"]
    assert [(run.status, run.line, run.error and run.error.render()) for run in before.statements] == [
        (run.status, run.line, run.error and run.error.render()) for run in after.statements
    ]
    captured = capsys.readouterr()
    assert (captured.out, captured.err.partition("2 statements")[0]) == (shown, told)
