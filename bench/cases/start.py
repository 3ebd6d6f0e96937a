"""The time before a user's first statement."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.harness import Case, NotRunError, Pair
from bench.streaming import end_group, program

_MEASURE = """
import time
started = time.perf_counter()
import rw_sql
rw_sql.parse("SHOW SOURCES")
took = time.perf_counter() - started
import sys
assert "pyspark" not in sys.modules
print(took)
"""


_CONNECT = """
import sys
import rw_sql
spark = rw_sql.connect(sys.argv[1])
print(">", spark.sql("SELECT 1 AS one").collect()[0][0], flush=True)
sys.stdin.read()
"""
_PROMPT = "rw_sql> "


def _import_and_parse() -> float:
    told = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True)
    return float(told.stdout)


@contextmanager
def _open_import() -> Iterator[Pair]:
    yield Pair(
        ours=_import_and_parse, settings={"process": "a new Python process for each run, files cached by the system"}
    )


def _until_prompt() -> float:
    """The seconds until ``rw-sql shell`` shows its prompt at a terminal, in an empty warehouse."""
    with TemporaryDirectory(prefix="rw_sql_bench_") as folder:
        ours, terminal = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": folder}
        command = (sys.executable, "-m", "rw_sql", "shell", "--warehouse", f"{folder}/warehouse")
        started = perf_counter()
        process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        os.close(terminal)
        try:
            shown = ""
            while _PROMPT not in shown:
                shown += os.read(ours, 65536).decode(errors="replace")
            return perf_counter() - started
        except OSError:  # Linux raises this error when the terminal's last program has ended.
            raise NotRunError(f"the shell ended before its prompt: {shown}") from None
        finally:
            end_group(process)
            os.close(ours)


def _until_answer() -> float:
    """The seconds until a new Python process has connected and has the result of its first query."""
    with TemporaryDirectory(prefix="rw_sql_bench_") as folder:
        started = perf_counter()
        with program(sys.executable, "-c", _CONNECT, f"{folder}/warehouse") as process:
            assert process.read_line() == "1"
            return perf_counter() - started


@contextmanager
def _open_prompt() -> Iterator[Pair]:
    yield Pair(ours=_until_prompt, settings={"process": "a new shell for each run; Spark starts behind the prompt"})


@contextmanager
def _open_answer() -> Iterator[Pair]:
    yield Pair(
        ours=_until_answer,
        settings={"process": "a new Python process for each run: import, rw_sql.connect, SELECT 1; no class archive"},
    )


CASES = (
    Case(
        name="import_time",
        title="import rw_sql and parse the first statement, without Spark",
        peer="",
        unit="s",
        goal=0.3,
        open=_open_import,
        is_quick=True,
    ),
    Case(
        name="shell_prompt",
        title="rw-sql shell, from the command to the prompt",
        peer="",
        unit="s",
        goal=2.0,
        open=_open_prompt,
    ),
    Case(
        name="first_answer",
        title="a new process, from its start to the result of its first query",
        peer="",
        unit="s",
        goal=6.0,
        open=_open_answer,
    ),
)
