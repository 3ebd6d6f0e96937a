"""The time before a user's first statement."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Case, Pair

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


def _import_and_parse() -> float:
    told = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True)
    return float(told.stdout)


@contextmanager
def _open_import() -> Iterator[Pair]:
    yield Pair(
        ours=_import_and_parse, settings={"process": "a new Python process for each run, files cached by the system"}
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
)
