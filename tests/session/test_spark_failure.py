"""A Spark that does not start: one error with a code, and the next attempt with other settings starts it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
import rw_sql
from rw_sql.errors import SqlError

def connect(**settings):
    return rw_sql.connect(sys.argv[1], run_jobs=False, config={"spark.ui.enabled": "false", **settings})

for settings in ({"spark.driver.memory": "900000g"}, {"spark.master": "nowhere"}):
    try:
        connect(**settings)
    except SqlError as error:
        print(error.code, error.message)
connect().stop()
try:
    connect(**{"spark.testing.memory": "1"})
except SqlError as error:
    print(error.code, error.message.partition(" 1 ")[0])
"""


def test_settings_with_which_no_spark_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        check=False,
        timeout=LAST_RESORT_SECONDS,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("RW")] == [
        "RW419 Spark does not start: its Java process has ended",
        "RW419 Spark does not start: its Java process has ended",
        "RW419 Spark does not start: [INVALID_DRIVER_MEMORY] System memory",
    ], done.stderr
    # Java writes this message to its standard output.
    assert "Could not reserve enough space" in done.stdout
