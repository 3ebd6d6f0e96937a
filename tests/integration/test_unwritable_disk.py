"""A server on a disk that becomes full or read-only, and then writable again."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.attached import AttachedSession, wait_until
from tests.integration.processes import PROGRAM, Server
from tests.support.small_disk import Disk, why_no_disk
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if why := why_no_disk():
        pytest.skip(why)
    made = Disk(tmp_path / "disk")
    yield made
    made.end()


def told(*words: str) -> tuple[int, str]:
    """The exit status and the output of a command of rw-sql."""
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, timeout=LAST_RESORT_SECONDS)
    return done.returncode, done.stdout + done.stderr


def warnings(server: Server) -> list[str]:
    return [line for line in server.said().splitlines() if " WARNING " in line or "Z ERROR " in line]


def require_lines(lines: list[str], *wanted: str) -> None:
    """Fails unless the lines contain these texts, one each, and there are no other lines."""
    assert [line for line in lines if not any(text in line for text in wanted)] == []
    assert [[text for text in wanted if text in line] for line in lines] == [[text] for text in wanted], lines


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("full", "the file system of the warehouse is full: free some space (df -h {})"),
        ("read-only", "the file system of the warehouse is read-only: mount it writable (mount -o remount,rw {})"),
    ],
)
def test_jobs_stand_still_and_continue_with_each_row_once(
    spark: SparkSession, disk: Disk, tmp_path: Path, how: str, cause: str
) -> None:
    warehouse = str(disk.folder / "warehouse")
    cause = cause.format(warehouse if how == "full" else disk.folder)
    server = Server(warehouse, tmp_path)
    session = None
    try:
        wait_until(server.is_serving, "the server serves")
        session = AttachedSession(spark, warehouse, run_jobs=False)
        session.run(
            "SET statement_timeout = '3min'",
            """CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', datagen.rows.per.second = '20',
            fields.id.kind = 'sequence', fields.id.start = '1') FORMAT NATIVE ENCODE NATIVE""",
            "CREATE MATERIALIZED VIEW every_row AS SELECT id FROM s",
        )
        wait_until(lambda: session.rows_of("every_row") != [], "the view has rows")
        before = len(warnings(server))
        disk.obstruct(how)
        wait_until(lambda: {job.state for job in session.jobs().values()} == {"STALLED"}, "the jobs are stalled")
        assert all(f"UNWRITABLE {cause}" in (job.reason or "") for job in session.jobs().values())
        status, text = told("status", "--warehouse", warehouse, "--output", "json")
        assert status == 0
        found = json.loads(text)
        assert found["owner"]["problem"] == cause
        assert {job["state"] for job in found["jobs"]} == {"STALLED"}
        status, text = told("doctor", "--warehouse", warehouse)
        assert (status, cause.partition(": ")[0] in text) == (1, True)
        until = time.monotonic() + 20  # a hundred passes of the owner's loop
        wait_until(lambda: time.monotonic() > until, "some time has passed")
        require_lines(warnings(server)[before:], "cannot be written")
        disk.free()
        wait_until(lambda: "can be written again" in server.said(), "the owner can write")
        wait_until(lambda: {job.state for job in session.jobs().values()} == {"RUNNING"}, "the jobs run")
        require_lines(warnings(server)[before:], "cannot be written", "can be written again")
        first = session.rows_of("every_row")
        wait_until(lambda: len(session.rows_of("every_row")) > len(first), "the view has new rows")
        rows = [row[0] for row in session.rows_of("every_row")]
        assert sorted(rows) == list(range(1, len(rows) + 1))
        assert told("doctor", "--warehouse", warehouse)[0] == 0
        assert server.terminate() == 0
    finally:
        disk.free()
        if session is not None:
            session.detach()
        server.close()
