"""The shell's session survives mistakes: a warehouse that cannot be opened, and a statement that a block lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.processes import PROGRAM, Terminal, at_a_terminal
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]


def typed(shell: Terminal, line: str, wanted: str, prompt: str = "rw_sql> ") -> str:
    """Types a line; returns the output up to the next prompt, which must contain a text."""
    shell.type_line(line)
    return shell.read_until(wanted) + shell.read_until(prompt)


def runs_of(shell: Terminal) -> dict[str, str]:
    """The run and the restarts of each job."""
    shown = typed(shell, "SELECT job || '/' || run || '/' || restarts AS runs FROM rw_catalog.rw_jobs;", " row")
    return dict(re.findall(r"(\w+-\d+)/(\d+/\d+)", shown))


def test_mistakes_at_the_shell(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "MASTER": "local[2]"}
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rw_catalog").write_text("no folder", encoding="utf-8")
    with at_a_terminal([*PROGRAM, "shell", "--warehouse", "w"], tmp_path, environment) as shell:
        shell.read_until("rw_sql> ")
        typed(shell, "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '50');", "CREATED")
        typed(shell, "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM s;", "CREATED")
        typed(shell, "FLUSH;", "FLUSHED")

        typed(shell, "ALTER SYSTEM SET idle_job_timeout = '-1';", "SET")
        runs = runs_of(shell)
        assert len(runs) == 2, runs

        typed(shell, "\\c broken", "RW418")
        typed(shell, "\\c", f"This is warehouse {tmp_path}/w.")
        assert runs_of(shell) == runs
        typed(shell, "SELECT 'has ' || n AS rows FROM m;", "has 50")
        typed(shell, "SHOW MATERIALIZED VIEWS;", "(1 row)")
        assert not (tmp_path / "rw_warehouse").exists()

        typed(shell, "ALTER SYSTEM SET enable_unsafe_ops = true;", "SET")
        for mistake, wanted in (
            ("INJECT SOURCE OFFSETS s VALUES ('0' = :off);", "RW250"),
            ("\\i missing.sql", "missing.sql"),
        ):
            typed(shell, "BEGIN UNSAFE;", "BEGIN", "rw_sql*> ")
            typed(shell, "PAUSE SOURCE s;", "collected", "rw_sql*> ")
            typed(shell, mistake, wanted, "rw_sql!> ")
            typed(shell, "COMMIT;", "RW332")
        typed(shell, "SELECT 'paused: ' || count(*) AS p FROM rw_catalog.rw_jobs WHERE state = 'PAUSED';", "paused: 0")

        typed(shell, "\\c other", f"This is warehouse {tmp_path}/other.")
        typed(shell, "SHOW SOURCES;", "(0 rows)")
        shell.type_line("exit")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0
