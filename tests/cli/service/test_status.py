"""``rw-sql status``, ``rw-sql lineage`` and the read-only commands of ``rw-sql source`` start no JVM and write
nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.errors import SqlError
from rw_sql.runtime.observe.commit_numbers import LogReading
from rw_sql.runtime.observe.lag import ONCE_SECONDS
from rw_sql.runtime.status.words import ago, duration
from tests.support.warehouses import Absence, WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.jobs.context import Context

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app(prog_name='rw-sql')"]


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(
        written.connection(1, "broker"),
        *written.source(2, "orders", uses=(1,)),
        written.view(3, "totals", 2),
        written.sink(4, "out", 3),
    )
    written.commit(
        kind="UNSAFE SET", is_unsafe=True, statement="ALTER SOURCE orders UNSAFE SET (a = 'b')", objects=("orders",)
    )
    written.lease()
    written.status("ingest-2", "RUNNING")
    written.status("mv-3", "STALLED", reason="GONE t: REBUILD MATERIALIZED VIEW totals")
    return written


def told(*words: str, status: int = 0) -> str:
    """The output of a command."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def test_status_as_text(written: WrittenWarehouse) -> None:
    said = told("status", "-w", written.uri)
    assert f"warehouse {written.uri}, epoch 2" in said
    assert "all statements applied" in said
    assert "jobs: 1 RUNNING, 1 STALLED, 1 STARTING" in said
    assert said.index("totals |") < said.index("orders |")
    assert (
        "totals (mv-3) is STALLED: GONE t: REBUILD MATERIALIZED VIEW totals\n  REBUILD MATERIALIZED VIEW totals;"
        in said
    )
    assert "ALTER SOURCE orders UNSAFE SET (a = 'b');" in said


def test_status_as_json(written: WrittenWarehouse) -> None:
    found = json.loads(told("status", "-w", written.uri, "-o", "json"))
    assert [job["state"] for job in found["jobs"]] == ["RUNNING", "STALLED", "STARTING"]
    assert found["jobs"][1]["statements"] == ["REBUILD MATERIALIZED VIEW totals"]


def test_a_word_that_is_no_form_is_refused(written: WrittenWarehouse) -> None:
    for words in (["status", "-o", "table"], ["lineage", "--format", "png"]):
        with pytest.raises(SqlError, match="but is '"):
            told(*words, "-w", written.uri)


def test_a_warehouse_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    where = tmp_path / "none"
    for words in (["status"], ["source", "list"], ["source", "show", "-s", "s"], ["lineage"]):
        with pytest.raises(SqlError, match="there is no warehouse at"):
            told(*words, "-w", str(where))
    assert not where.exists()


def test_lineage_in_each_form(written: WrittenWarehouse, tmp_path: Path) -> None:
    assert told("lineage", "-w", written.uri).splitlines() == [
        "broker (connection)",
        "└─ orders (source · RUNNING)",
        "   └─ totals (materialized view · STALLED)",
        "      └─ out (sink · STARTING)",
    ]
    assert "n2 --> n3" in told("lineage", "-w", written.uri, "--of", "orders", "--format", "mermaid")
    assert len(json.loads(told("lineage", "-w", written.uri, "--format", "json"))["nodes"]) == 4
    file = tmp_path / "lineage.svg"
    told("lineage", "-w", written.uri, "--format", "svg", "--file", str(file))
    assert ElementTree.parse(file).getroot().tag.endswith("svg")
    with pytest.raises(SqlError, match="does not exist"):
        told("lineage", "-w", written.uri, "--of", "nothing")


@pytest.mark.long
def test_looks_at_sources_need_no_java(written: WrittenWarehouse, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    for words in (
        ["status", "-o", "json"],
        ["source", "list", "-o", "json"],
        ["source", "pause", "-s", "orders", "--dry-run", "-o", "json"],
    ):
        done = subprocess.run(
            [*PROGRAM, *words, "-w", written.uri], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "orders" in json.dumps(json.loads(done.stdout))


def test_a_source_is_paused_without_java_for_the_process_that_runs_the_jobs(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"))
    rows = json.loads(told("source", "pause", "-s", "orders", "--reason", "a rest", "-w", written.uri, "-o", "json"))
    assert rows[0]["object"] == "orders"
    (pause,) = written.metastore.snapshot().all("pause")
    assert pause.reason == "a rest"
    (listed,) = json.loads(told("source", "list", "-w", written.uri, "-o", "json"))
    assert (listed["state"], listed["reason"]) == ("PAUSED", "a rest")


@pytest.mark.parametrize(("words", "seconds"), [((), ONCE_SECONDS), (("--watch",), 0.7)])
def test_a_single_status_has_more_time_for_unread_commits(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], seconds: float
) -> None:
    """Later statuses of ``--watch`` complete what the first one has not read."""
    limits = []

    def noted(self: LogReading, context: Context, limit: float) -> None:
        limits.append(limit)
        made(self, context, limit)

    made = LogReading.__init__
    monkeypatch.setattr(LogReading, "__init__", noted)
    monkeypatch.setattr("rw_sql.cli.service.status.time.sleep", Absence(written.folder))
    CliRunner().invoke(app, ["status", "--warehouse", written.uri, *words])
    assert limits[0] == seconds


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.04, "0 s"),
        (0.42, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (10.5, "11 s"),
        (10.831, "11 s"),
        (59.6, "1 min"),
        (119.7, "2 min"),
        (3599.7, "1 h"),
        (7859, "2 h 11 min"),
        (86399, "1 d"),
        (12, "12 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (356400, "4 d 3 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
    assert ago(1_000_000_000 - int(seconds * 1000), 1_000_000_000) == f"{words} ago"


@pytest.mark.parametrize("output", ["text", "json"])
def test_watch_outlasts_an_error_of_the_store(
    written: WrittenWarehouse, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absence = Absence(written.folder)
    monkeypatch.setattr("rw_sql.cli.service.status.time.sleep", absence)
    result = CliRunner().invoke(app, ["status", "--watch", "-w", written.uri, "-o", output])
    assert absence.pauses == 3
    assert result.stderr.startswith("the status cannot be read: ")
    assert "the last status is from 0" in result.stderr
    assert result.stderr.rstrip().endswith("trying again in 2.0 s")
    if output == "json":
        assert [json.loads(line)["epoch"] for line in result.stdout.splitlines()] == [2, 2]
    else:
        assert result.stdout.count("totals (mv-3) is STALLED") == 2


def test_an_error_of_the_store_has_a_code(written: WrittenWarehouse) -> None:
    log = written.folder / "rw_catalog" / "operations" / "_delta_log"
    log.rename(written.folder / "away")
    for words in (["status"], ["lineage"], ["source", "list"], ["doctor"]):
        with pytest.raises(SqlError, match="the warehouse cannot be read or written: ") as caught:
            told(*words, "-w", written.uri)
        assert caught.value.code == "RW418"
