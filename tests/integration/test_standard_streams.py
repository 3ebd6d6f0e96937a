"""The standard streams of a command as a shell can set them: on a full disk, closed, and a pipe whose reader has
ended."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.integration.processes import PROGRAM
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "status",
    "status -o json",
    "source list",
    "lineage",
    "doctor",
    "export-catalog",
    "shell -c '\\ds'",
    "fmt - <s.sql",
    "check -o json s.sql",
    "--help",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written = WrittenWarehouse(tmp_path / "rw_warehouse")
    written.commit(*written.source(1, "orders"))
    (tmp_path / "s.sql").write_text("SHOW SOURCES;\n", encoding="utf-8")
    return tmp_path


def ran(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    text = f'rw-sql() {{ {shlex.join(PROGRAM)} "$@"; }}\n{command}'
    environment = {**os.environ, "JAVA_HOME": str(folder / "no-java")}
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_under_standard_output_is_named(folder: Path, command: str) -> None:
    done = ran(folder, f"rw-sql {command} >/dev/full")
    assert done.stderr.splitlines()[-2:] == [
        "RW408: cannot write to standard output: No space left on device",
        "HINT: send the output to another file; the changes that the command has already made remain",
    ]
    assert "warehouse" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(folder: Path, closed: str) -> None:
    done = ran(folder, f"rw-sql status {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert ("owner:" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_reader_that_has_ended_is_no_error_of_the_output(folder: Path) -> None:
    done = ran(folder, "rw-sql status | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("1\n", "")
