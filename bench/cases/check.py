"""``rw-sql check`` on a file of 200 statements, as CI runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench.harness import Case, Pair

SOURCES, VIEWS_EACH = 40, 4

_SOURCE = """CREATE SOURCE orders_{n} (
  id BIGINT, customer VARCHAR, item VARCHAR, pieces INT, amount NUMERIC(10, 2), placed_at TIMESTAMPTZ, tags VARCHAR[]
)
WITH (connector = 'kafka', topic = 'orders_{n}', properties.bootstrap.server = 'localhost:9092',
  scan.startup.mode = 'earliest', source_rate_limit = '1000')
FORMAT PLAIN ENCODE JSON;
"""
_VIEWS = (
    "CREATE MATERIALIZED VIEW lines_{n} AS SELECT id, upper(customer) AS customer, item, pieces * amount AS total, "
    "date_trunc('DAY', placed_at) AS day FROM orders_{n} WHERE pieces > 0;",
    "CREATE MATERIALIZED VIEW totals_{n} AS SELECT customer, count(*) AS orders, sum(total) AS total, "
    "max(total) AS most FROM lines_{n} GROUP BY customer;",
    "CREATE MATERIALIZED VIEW items_{n} AS SELECT l.item, t.customer, t.total FROM lines_{n} AS l "
    "JOIN totals_{n} AS t ON l.customer = t.customer WHERE t.orders > 1;",
    "CREATE MATERIALIZED VIEW busy_{n} AS WITH days AS (SELECT day, count(*) AS n FROM lines_{n} GROUP BY day) "
    "SELECT day, n, CASE WHEN n > 100 THEN 'busy' ELSE 'calm' END AS kind FROM days;",
)


def script() -> str:
    """The file: 40 sources with four views each."""
    return "\n".join("\n".join((_SOURCE, *_VIEWS)).replace("{n}", str(n)) for n in range(SOURCES))


def _milliseconds(file: Path) -> Callable[[], float]:
    # pip compiles the modules that it installs, so a command of an installation never compiles modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def measure() -> float:
        started = perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "rw_sql.cli.main", "check", str(file)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        elapsed = (perf_counter() - started) * 1000
        assert f"{SOURCES * (1 + VIEWS_EACH)} statements in 1 file: no errors" in done.stderr, done.stderr
        return elapsed

    return measure


@contextmanager
def _open_check() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipelines.sql"
        file.write_text(script(), encoding="utf-8")
        yield Pair(
            ours=_milliseconds(file),
            settings={"process": "a new Python process for each run, modules compiled, files cached by the system"},
        )


CASES = (
    Case(
        name="check_200",
        title="rw-sql check of 200 statements",
        peer="",
        unit="ms",
        goal=1000,
        open=_open_check,
        is_quick=True,
    ),
)
