"""The commands as an operator runs them: processes of their own, on real Spark, judged by what they print."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app(prog_name='rw-sql')"]
# A terminal that answers no questions about itself.
TERMINAL = {"TERM": "dumb", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "200"}
CREATE = """\
SET statement_timeout = '3min';
CREATE SOURCE numbers (id BIGINT)
WITH (connector = 'datagen', datagen.rows.total = '100', fields.id.kind = 'sequence');

CREATE MATERIALIZED VIEW all_numbers AS SELECT id FROM numbers;

FLUSH;

SELECT count(*) AS rows, max(id) AS greatest FROM all_numbers;
"""


def run(script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """``rw-sql run`` of a script in a folder, whose warehouse all scripts there share."""
    (folder / "script.sql").write_text(script)
    return subprocess.run(
        [*PROGRAM, "run", "script.sql", "--warehouse", "warehouse", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_script_stops_at_its_first_error_and_tells_where(tmp_path: Path) -> None:
    refused = run(
        CREATE + "ALTER SYSTEM SET enable_unsafe_ops = true;\n"
        "PAUSE SOURCE numbers;\n"
        "INJECT SOURCE OFFSETS numbers VALUES ('0' = 90);\n"
        "DROP SOURCE numbers CASCADE;\n",
        tmp_path,
    )
    assert refused.returncode == 1
    assert re.search(r"\n +100 \| +99 \n", refused.stdout)
    assert "DROP SOURCE" not in refused.stdout
    assert refused.stderr.startswith("script.sql: RW304: this operation needs a confirmation and nobody can be asked\n")
    assert "LINE 12: INJECT SOURCE OFFSETS" in refused.stderr
    assert "DUPLICATES 10" in refused.stderr
    token = re.search(r"CONFIRM '(\w+)'", refused.stderr)
    assert token is not None

    confirmed = run(
        "INJECT SOURCE OFFSETS numbers VALUES ('0' = 90);\n"
        "SET statement_timeout = '3min';\n"
        "RESUME SOURCE numbers;\n"
        "FLUSH;\n"
        "SELECT count(*) AS rows FROM all_numbers;\n"
        "SELECT id,\n"
        "       nothing FROM all_numbers;\n"
        "SELECT 'not reached';\n",
        tmp_path,
        "--confirm",
        token[1],
    )
    assert f"Confirmed by --confirm {token[1]}." in confirmed.stdout
    assert re.search(r"\n +110 \n", confirmed.stdout)
    assert "not reached" not in confirmed.stdout
    assert confirmed.returncode == 1
    assert confirmed.stderr.startswith("script.sql: RW409: [UNRESOLVED_COLUMN")
    assert "LINE 7:        nothing FROM all_numbers\n               ^^^^^^^" in confirmed.stderr.replace(";", "")
    assert "Traceback" not in confirmed.stderr


def test_serve_runs_the_jobs_of_another_process_until_told(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "serve", "--warehouse", "warehouse"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert "serving" in server.stdout.readline()
            done = run(CREATE, tmp_path, "--quiet")
            assert done.returncode == 0, done.stderr
            assert re.search(r"\n +100 \| +99 \n", done.stdout)
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
            assert "stopping" in server.stdout.read()
        finally:
            server.kill()


@contextmanager
def at_a_terminal(folder: Path, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A command in a terminal of its own: the terminal's end to type at, and the process."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words],
        cwd=folder,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "RW_SQL_WAREHOUSE": str(folder / "warehouse"), "XDG_STATE_HOME": str(folder), **TERMINAL},
        start_new_session=True,
    )
    os.close(inner)
    try:
        yield terminal, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        os.close(terminal)


def test_the_pyspark_shell_is_attached(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "pyspark", "--master", "local[1]") as (terminal, process):
        read_until(terminal, "rw_sql is attached")
        os.write(terminal, b"sql(\"CREATE SOURCE s (a INT) WITH (connector = 'datagen')\").collect()\n")
        read_until(terminal, "change='CREATED'")
        os.write(terminal, b"[row.name for row in spark.sql('SHOW SOURCES').collect()]\n")
        read_until(terminal, "['s']")
        os.write(terminal, b"exit()\n")
        assert process.wait(timeout=60) == 0


def test_the_shell_asks_before_an_unsafe_statement(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "shell") as (terminal, process):
        read_until(terminal, "rw_sql> ")
        os.write(terminal, b"CREATE SOURCE s (a INT)\nWITH (connector = 'datagen');\n")
        read_until(terminal, "CREATED")
        reset = b"RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true);\n"
        os.write(terminal, b"ALTER SYSTEM SET enable_unsafe_ops = true; " + reset)
        read_until(terminal, "Go ahead? Type yes:")
        os.write(terminal, b"no\n")
        read_until(terminal, "RW304: the operation was not confirmed")
        read_until(terminal, "rw_sql> ")
        os.write(terminal, reset)
        read_until(terminal, "Go ahead? Type yes:")
        os.write(terminal, b"yes\n")
        read_until(terminal, " ms")
        read_until(terminal, "rw_sql> ")
        os.write(terminal, b"SELECT * FROM nowhere;\n")
        read_until(terminal, "RW409: [TABLE_OR_VIEW_NOT_FOUND]")
        read_until(terminal, "rw_sql> ")
        os.write(terminal, b"exit\n")
        assert process.wait(timeout=60) == 0


def read_until(terminal: int, wanted: str, *, seconds: float = 120) -> str:
    """What the terminal shows up to and with a text."""
    shown = ""
    deadline = time.monotonic() + seconds
    while wanted not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{wanted!r} did not come; the terminal shows:\n{shown}"
        try:
            shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:
            raise AssertionError(f"the shell ended before {wanted!r}:\n{shown}") from None
    return shown
