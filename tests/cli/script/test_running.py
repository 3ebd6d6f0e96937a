"""A run whose first statement cannot be parsed reports that before Spark starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.script.loading import load_scripts
from rw_sql.cli.script.running import RunOptions, run_scripts

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.script.report import RunReport

WRONG = "CREATE SOURCE s (id INT) WIHT (connector = 'datagen');\nSHOW SOURCES;\n"


class SparkStartsError(Exception):
    """Spark is started."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise SparkStartsError

    monkeypatch.setattr("rw_sql.cli.script.running.spark_for", start)


def run(folder: Path, *texts: str, options: RunOptions | None = None) -> RunReport:
    files = [folder / f"{number}.sql" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    scripts, hide = load_scripts([str(file) for file in files], {})
    return run_scripts(scripts, options or RunOptions(warehouse=str(folder / "w")), hide)


@pytest.mark.parametrize("is_dry", [False, True])
def test_an_error_of_the_first_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str], is_dry: bool) -> None:
    options = RunOptions(warehouse=str(tmp_path / "w"), is_dry=is_dry)
    report = run(tmp_path, "\\echo one\n", WRONG, "SHOW JOBS;", options=options)
    assert report.exit_status == 1
    assert [run.status for run in report.statements] == ["failed", "not run", "not run"]
    said = capsys.readouterr()
    assert said.out == "one\n"
    assert f"{tmp_path}/1.sql: RW101" in said.err
    assert "LINE 1: CREATE SOURCE s" in said.err
    assert "3 statements: 1 failed, 2 not run" in said.err
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("output", ["json", "junit"])
def test_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    report = run(tmp_path, WRONG, options=RunOptions(output=output))
    said = capsys.readouterr()
    assert report.exit_status == 1
    assert said.err == ""
    if output == "json":
        first, second = json.loads(said.out)["statements"]
        assert (first["status"], first["error"]["code"], second["status"]) == ("failed", "RW101", "not_run")
    else:
        assert 'type="RW101"' in said.out


@pytest.mark.parametrize(
    ("texts", "keeps_going"),
    [
        ((WRONG,), True),
        (("SELECT 1;\n" + WRONG,), False),
        (("SHOW SOURCES;", WRONG), False),
        (("SELEC 1;",), False),  # Spark may have an extension with this statement.
        (("DROP TABLE a b;",), False),  # Only the catalog shows whose table this is.
        ((), False),
    ],
)
def test_other_runs_start_spark(tmp_path: Path, texts: tuple[str, ...], keeps_going: bool) -> None:
    with pytest.raises(SparkStartsError):
        run(tmp_path, *texts, options=RunOptions(keeps_going=keeps_going))
