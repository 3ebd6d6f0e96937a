"""The JVM of a command writes its classes after the command has ended, and the next command's JVM loads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rw_sql.runtime.spark.jar_cache import cache_folder
from tests.support.spark_settings import java_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]


def _run(script: Path, warehouse: Path, cache: Path) -> list[str]:
    """Runs a script with a pipe as standard output, to whose end it reads, and returns what it printed."""
    without = ("RW_SQL_CLASS_ARCHIVE", "CI")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    environment |= {"XDG_CACHE_HOME": str(cache), "SPARK_SUBMIT_OPTS": java_properties()}
    command = [sys.executable, "-m", "rw_sql.cli.main", "run", str(script), "-w", str(warehouse)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_second_command_loads_what_the_first_one_has_written(tmp_path: Path) -> None:
    (tmp_path / "cache" / "rw_sql").mkdir(parents=True)
    for known in cache_folder().glob("*.classpath"):  # otherwise Ivy resolves the jars again
        shutil.copy(known, tmp_path / "cache" / "rw_sql")
    script = tmp_path / "a.sql"
    script.write_text("CREATE TABLE t (id INT) USING delta; SELECT 40 + 2 AS answer;", encoding="utf-8")
    folder = tmp_path / "cache" / "rw_sql" / "classes"

    first = _run(script, tmp_path / "first", tmp_path / "cache")
    assert [file.suffix for file in folder.iterdir() if file.suffix != ".new"] == [".classpath"]

    def is_written() -> bool:
        # Java writes the file's header last; until then the file begins with zeros.
        for new in folder.glob("*.new"):
            with new.open("rb") as content:
                return any(content.read(4))
        return False

    wait_until(is_written, "the JVM has written its classes", look_seconds=0.2)
    second = _run(script, tmp_path / "second", tmp_path / "cache")
    assert any("42" in line for line in first)
    assert any("42" in line for line in second)
    assert [file.suffix for file in folder.iterdir()] == [".jsa"]
