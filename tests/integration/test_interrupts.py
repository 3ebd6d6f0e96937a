"""Ctrl-C ends only the running statement: the next statement answers, and no job has restarted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import KernelManager

from rw_sql.metastore import Metastore
from tests.integration.attached import wait_until
from tests.integration.processes import PROGRAM, Terminal, at_a_terminal
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from jupyter_client.blocking.client import BlockingKernelClient

pytestmark = [pytest.mark.spark, pytest.mark.long]

ENDLESS = "SELECT sum(id) FROM range(1000000000000)"
SOURCE = "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '5000')"


def typed(shell: Terminal, line: str, wanted: str) -> str:
    """Types a line; returns the output up to the next prompt, which must contain a text."""
    shell.type_line(line)
    return shell.read_until(wanted) + shell.read_until("rw_sql> ")


def interrupted(shell: Terminal, statement: str, wanted: str = "cancelled") -> str:
    """Types a statement after another, and Ctrl-C once the first has answered; returns the output up to the next
    prompt."""
    shell.type_line(f"SELECT 'be' || 'gun' AS b; {statement};")
    shell.read_until("begun")
    shell.read_until("(1 row)")
    shell.interrupt()
    return shell.read_until(wanted) + shell.read_until("rw_sql> ")


def runs_of(shell: Terminal) -> dict[str, str]:
    """The run and the restarts of each job."""
    shown = typed(shell, "SELECT job || '/' || run || '/' || restarts AS runs FROM rw_catalog.rw_jobs;", " row")
    return dict(re.findall(r"(\w+-\d+)/(\d+/\d+)", shown))


@pytest.mark.alone
def test_at_the_shell(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "MASTER": "local[2]"}
    with at_a_terminal([*PROGRAM, "shell", "--warehouse", "w"], tmp_path, environment) as shell:
        said = shell.read_until("rw_sql> ")
        said += typed(shell, "SET streaming_use_shared_source = true;", "ms")
        said += typed(shell, f"{SOURCE};", "CREATED")
        said += typed(shell, "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM s;", "CREATED")
        said += typed(shell, "FLUSH;", "FLUSHED")
        # The log gets its rows twice: it is not the history of a view any more, which then is read record by record.
        said += typed(shell, "ALTER SYSTEM SET enable_unsafe_ops = true;", "SET")
        said += typed(shell, "PAUSE SOURCE s;", "PAUSED")
        shell.type_line("INJECT SOURCE OFFSETS s TO EARLIEST ALLOW DUPLICATES;")
        said += shell.read_until("Go ahead? Type yes: ")
        said += typed(shell, "yes", "INJECTED")
        said += typed(shell, "RESUME SOURCE s;", "RESUMED")
        said += typed(shell, "FLUSH;", "FLUSHED")
        runs = runs_of(shell)
        assert len(runs) == 2, runs

        shell.interrupt()  # idle
        said += shell.read_until("rw_sql> ")
        shell.type_text("SELECT 1 AS")  # typing
        said += shell.read_until("SELECT 1 AS")
        shell.interrupt()
        said += shell.read_until("rw_sql> ")
        said += typed(shell, "SELECT 40 + 2 AS x;", "42")

        said += interrupted(shell, ENDLESS)  # planning, or running
        said += typed(shell, "SELECT 40 + 3 AS x;", "43")
        shell.type_line(
            f"INSERT OVERWRITE LOCAL DIRECTORY '{tmp_path}/rows' USING json {ENDLESS.replace('sum(id)', 'id')};"
        )
        wait_until(lambda: any((tmp_path / "rows").rglob("*.json*")), "the statement writes")
        said += shell.read_until(" tasks done")  # the status line
        shell.interrupt()  # running
        said += shell.read_until("cancelled") + shell.read_until("rw_sql> ")
        said += typed(shell, "SELECT 40 + 4 AS x;", "44")
        # A call without a job to cancel is abandoned.
        (tmp_path / "stuck" / "_delta_log").mkdir(parents=True)
        os.mkfifo(tmp_path / "stuck" / "_delta_log" / "_last_checkpoint")
        said += interrupted(shell, f"SELECT * FROM delta.`{tmp_path}/stuck`")
        said += typed(shell, "SELECT 40 + 5 AS x;", "45")

        said += typed(shell, "SET backfill_rate_limit = 1;", "ms")
        shell.type_line("CREATE MATERIALIZED VIEW slow AS SELECT id FROM s;")
        catalog = Metastore.open(str(tmp_path / "w"))
        wait_until(lambda: catalog.snapshot().find("materialized_view", "slow") is not None, "slow is committed")
        said += shell.read_until("committed; waiting for its backfill; slow (mv-")
        said += shell.read_until(" of 5,000 rows")
        shell.interrupt()  # waiting for its history
        told = shell.read_until("committed as epoch") + shell.read_until("rw_sql> ")
        assert "cancelled: " in told
        said += interrupted(shell, "WAIT")
        said += interrupted(shell, "FLUSH")
        said += typed(shell, "SELECT count(*) AS n FROM slow;", "(1 row)")
        wait_until(lambda: all(slow.done for slow in catalog.jobs.backfills().values()), "the history is being read")
        (slow,) = catalog.jobs.backfills().values()
        assert 0 < slow.done < slow.total == 5000
        assert runs.items() <= runs_of(shell).items()

        said += typed(shell, "PAUSE SOURCE s;", "PAUSED")
        shell.type_line("ALTER SOURCE s UNSAFE SET (datagen.rows.per.second = '10');")
        said += shell.read_until("Go ahead? Type yes: ")
        shell.interrupt()  # confirming
        said += shell.read_until("RW304") + shell.read_until("rw_sql> ")
        shell.type_line("ALTER SOURCE s UNSAFE SET (datagen.rows.per.second = '10');")
        said += shell.read_until("Go ahead? Type yes: ")
        shell.type_text("\x04")  # the end of input is a no, and the shell continues
        said += shell.read_until("RW304") + shell.read_until("rw_sql> ")
        said += typed(shell, "RESUME SOURCE s;", "RESUMED")
        shell.type_line("exit")
        assert shell.process.wait(timeout=LAST_RESORT_SECONDS) == 0
    assert "Traceback" not in said


def test_a_cell(tmp_path: Path) -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, "MASTER": "local[2]"})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LAST_RESORT_SECONDS)
        assert outcome_of(client, "import rw_sql; spark = rw_sql.connect('w')\n%load_ext rw_sql") == []
        for cell in (
            f"%%rw\nSELECT 1 AS x;\n{ENDLESS}",
            f"display(1); spark.sql('CREATE TABLE t AS {ENDLESS}')",
        ):
            client.execute(cell)
            read_until_shown(client)
            manager.interrupt_kernel()
            (told,) = rest_of(client)
            assert "KeyboardInterrupt" in told or told == (
                "cancelled: statement 2 of 2 (line 2) was interrupted; the one before it is complete"
            )
            assert outcome_of(client, "%%rw\nSELECT 40 + 2 AS x") == []
            assert outcome_of(client, "assert spark.sql('SELECT 40 + 3 AS x').first().x == 43") == []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def read_until_shown(client: BlockingKernelClient) -> None:
    """Reads a kernel's messages up to the first result. The status of a slow statement is displayed too, with an id by
    which it is updated."""
    while True:
        message = client.get_iopub_msg(timeout=LAST_RESORT_SECONDS)
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] == "display_data" and "display_id" not in message["content"].get("transient", {}):
            return


def rest_of(client: BlockingKernelClient) -> list[str]:
    """The errors that a cell shows until it has ended."""
    errors = []
    while True:
        message = client.get_iopub_msg(timeout=LAST_RESORT_SECONDS)
        if message["msg_type"] == "error":
            errors.append("\n".join(message["content"]["traceback"]))
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return errors


def outcome_of(client: BlockingKernelClient, cell: str) -> list[str]:
    """Runs a cell; its errors."""
    asked = client.execute(cell)
    while True:
        message = client.get_iopub_msg(timeout=LAST_RESORT_SECONDS)
        if message["msg_type"] == "status" and message["parent_header"].get("msg_id") == asked:
            return rest_of(client)


def test_a_script(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text(f"SELECT 'done' AS first;\n{ENDLESS};\nSELECT 'never' AS last;\n", encoding="utf-8")
    process = subprocess.Popen(
        [*PROGRAM, "run", str(script), "--warehouse", "w"],
        cwd=tmp_path,
        env={**os.environ, "MASTER": "local[2]"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "(1 row)" not in (line := process.stdout.readline()):
            assert line, process.communicate()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=LAST_RESORT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    # Without a terminal the status is a line now and then.
    said = [line for line in error.splitlines() if not line.startswith("running for ")]
    assert said == ["cancelled: statement 2 of 3 (line 2) was interrupted; the one before it is complete"]
    assert "never" not in out
