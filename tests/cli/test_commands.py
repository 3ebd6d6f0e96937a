"""The commands as an operator runs them: as separate processes on real Spark, judged by their output."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.waits import LAST_RESORT_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app(prog_name='rw-sql')"]
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


@pytest.mark.long
def test_a_script_stops_at_its_first_error_and_tells_where(tmp_path: Path) -> None:
    refused = run(
        CREATE.replace("'100'", ":'total'") + "ALTER SYSTEM SET enable_unsafe_ops = true;\n"
        "PAUSE SOURCE numbers;\n"
        "INJECT SOURCE OFFSETS numbers VALUES ('0' = 90);\n"
        "DROP SOURCE numbers CASCADE;\n",
        tmp_path,
        "--var",
        "total=100",
    )
    assert refused.returncode == 3
    assert re.search(r"\n +100 \| +99 \n", refused.stdout)
    assert "DROP SOURCE" not in refused.stdout
    assert without_status(refused.stderr).startswith(
        "script.sql: RW304: this operation needs a confirmation, but this session is not interactive\n"
    )
    assert "LINE 12: INJECT SOURCE OFFSETS" in refused.stderr
    assert re.search(r"\n9 statements: 7 done, 1 refused, 1 not run; \d+\.\d s\n\Z", refused.stderr)
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
    assert without_status(confirmed.stderr).startswith('script.sql: RW205: column "nothing" does not exist')
    assert "LINE 7:        nothing FROM all_numbers\n               ^^^^^^^" in confirmed.stderr.replace(";", "")
    assert "Traceback" not in confirmed.stderr

    planned = run("PAUSE SOURCE numbers;\nSELECT 1;\nDROP SOURCE none;\n", tmp_path, "--dry-run", "--output", "json")
    assert (planned.returncode, planned.stderr) == (1, "")
    told = json.loads(planned.stdout)
    assert [statement["status"] for statement in told["statements"]] == ["done", "done", "failed"]
    assert "CreateObject pause numbers" in " ".join(told["statements"][0]["plan"])
    assert told["statements"][2]["error"]["line"] == 3


def without_status(error: str) -> str:
    """Standard error without the status lines of long statements."""
    return "".join(line for line in error.splitlines(keepends=True) if not line.startswith("running for "))


class Terminal:
    """A command at its own terminal: its input and its display."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._end, inner = pty.openpty()
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            cwd=folder,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={
                **os.environ,
                "RW_SQL_WAREHOUSE": str(folder / "warehouse"),
                "XDG_STATE_HOME": str(folder),
                # A terminal that answers no queries about its capabilities.
                "TERM": "dumb",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "COLUMNS": "200",
            },
            start_new_session=True,
        )
        os.close(inner)
        self._shown = ""

    def type(self, line: str) -> None:
        """A line and Enter."""
        os.write(self._end, line.encode() + b"\n")

    def wait_for(self, wanted: str, *, seconds: float = 180) -> None:
        """Returns when the terminal shows a text; the text after it is kept for the next call."""
        deadline = time.monotonic() + seconds
        while wanted not in self._shown:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come; the terminal shows:\n{self._shown}"
            try:
                self._shown += os.read(self._end, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the command ended before {wanted!r}:\n{self._shown}") from None
        self._shown = self._shown.partition(wanted)[2]

    def close(self) -> None:
        """Ends the process that was started here, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self._end)


def test_the_pyspark_shell_is_attached(tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, "pyspark", "--master", "local[1]")) as terminal:
        terminal.wait_for("rw_sql is attached")
        terminal.type("sql(\"CREATE SOURCE s (a INT) WITH (connector = 'datagen')\").collect()")
        terminal.wait_for("change='CREATED'")
        terminal.type("[row.name for row in spark.sql('SHOW SOURCES').collect()]")
        terminal.wait_for("['s']")
        terminal.type("exit()")
        assert terminal.process.wait(timeout=LAST_RESORT_SECONDS) == 0


def test_the_shell_asks_before_an_unsafe_statement(tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, "shell")) as terminal:
        terminal.wait_for("rw_sql> ")
        terminal.type("CREATE SOURCE s (a INT)\nWITH (connector = 'datagen');")
        terminal.wait_for("CREATED")
        terminal.wait_for("rw_sql> ")
        reset = "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true);"
        terminal.type("ALTER SYSTEM SET enable_unsafe_ops = true; " + reset)
        terminal.wait_for("Go ahead? Type yes:")
        terminal.type("no")
        terminal.wait_for("RW304: the operation was not confirmed")
        terminal.wait_for("rw_sql> ")
        terminal.type(reset)
        terminal.wait_for("Go ahead? Type yes:")
        terminal.type("yes")
        terminal.wait_for("(1 row)")
        terminal.wait_for("rw_sql> ")
        terminal.type("SELECT * FROM nowhere;")
        terminal.wait_for('RW203: relation "nowhere" does not exist')
        terminal.wait_for("rw_sql> ")
        terminal.type("exit")
        assert terminal.process.wait(timeout=LAST_RESORT_SECONDS) == 0
