"""The parts of the command that need no Spark: help, lazy imports, and errors as messages with exit status 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rw_sql import __version__
from rw_sql.cli.main import app
from rw_sql.cli.servers import command as dev
from rw_sql.errors import SqlError
from tests.support.waits import LAST_RESORT_SECONDS


def rw_sql(
    *words: str, env: dict[str, str] | None = None, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a separate process."""
    program = "from rw_sql.cli.main import app; app()"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LAST_RESORT_SECONDS,
        env=env,
        input=input,
    )


def test_help_names_the_commands() -> None:
    told = rw_sql("--help")
    assert told.returncode == 0
    for command in ("run", "shell", "serve", "pyspark", "fmt", "check", "source", "dev"):
        assert command in told.stdout


def test_version_is_the_packages() -> None:
    told = rw_sql("--version")
    assert (told.returncode, told.stdout) == (0, f"rw-sql {__version__}\n")


def test_help_loads_neither_spark_nor_the_shell() -> None:
    program = (
        "import sys\n"
        "import rw_sql.cli.main\n"
        "heavy = {'pyspark', 'pandas', 'rich.console', 'pyarrow', 'deltalake', 'prompt_toolkit', 'confluent_kafka'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"\xff", "it is not UTF-8 text, byte 1 (line 1, byte 1 of it) is 0xFF")],
)
def test_a_script_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    script = tmp_path / "a.sql"
    if content is not None:
        script.write_bytes(content)
    told = rw_sql("run", str(script))
    assert told.returncode == 2
    first, hint = told.stderr.splitlines()
    assert first == f'RW408: cannot read "{script}": {reason}'
    assert hint.startswith("HINT: ")
    assert told.stdout == ""


@pytest.mark.long
def test_without_java_a_command_says_so(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SHOW SOURCES;")
    told = rw_sql("run", str(script), env={"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert told.returncode == 1
    assert told.stderr.startswith("RW404: Spark needs Java 17 or newer, but JAVA_HOME contains no ")
    assert "HINT: install one" in told.stderr
    assert "Traceback" not in told.stderr


def test_without_java_the_service_reports_no_start(tmp_path: Path) -> None:
    told = rw_sql(
        "serve", "--port", "0", "-w", str(tmp_path / "w"), env={"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}
    )
    assert told.returncode == 1
    assert "RW404" in told.stderr
    assert "status page" not in told.stdout + told.stderr
    assert "starting Spark" not in told.stdout + told.stderr


def test_an_unknown_argument_is_reported() -> None:
    assert rw_sql("run").returncode == 2


@pytest.mark.parametrize("words", [("topics",), ("topics", "--create", "t"), ("produce", "t")])
def test_without_a_broker_a_command_says_what_to_type(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "ANSWER_SECONDS", 0.5)
    told = CliRunner().invoke(dev.kafka_app, [*words, "--broker", "127.0.0.1:1"])
    assert isinstance(told.exception, SqlError)
    assert told.exception.message == "no broker answers at 127.0.0.1:1"
    assert "rw-sql dev kafka start" in (told.exception.hint or "")


def test_a_command_line_builds_the_command_that_it_names() -> None:
    check, source = app._only(["check"]), app._only(["source"])
    assert list(typer.main.get_command(check).commands) == ["check"]  # type: ignore[attr-defined]
    assert list(typer.main.get_command(source).commands) == ["source"]  # type: ignore[attr-defined]
    for words in (["chek"], ["--help"], []):
        assert app._only(words) is app
