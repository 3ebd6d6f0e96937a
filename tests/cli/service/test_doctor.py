"""``rw-sql doctor`` over a warehouse that a dropped object has left a folder in."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.metastore.records import DropObject
from rw_sql.runtime.status import doctor
from rw_sql.runtime.status.findings import Finding
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "orders"))
    written.fence("ingest-2", 1)
    return written


def told(*words: str, status: int) -> str:
    result = CliRunner().invoke(app, ["doctor", *words])
    assert result.exit_code == status, result.output
    return result.stdout


def test_a_sound_warehouse_has_status_0(written: WrittenWarehouse) -> None:
    assert told("-w", written.uri, status=0) == "nothing found\n"


def test_a_finding_has_status_1_and_a_repair_says_what_it_did(written: WrittenWarehouse) -> None:
    written.commit(DropObject(id=2))
    found = "folder: data/2: its object was dropped\n  rw-sql doctor --repair\n"
    assert told("-w", written.uri, status=1) == found
    (finding,) = json.loads(told("-w", written.uri, "-o", "json", status=1))["findings"]
    assert (finding["subject"], finding["is_repairable"]) == ("data/2", True)
    said = told("-w", written.uri, "--repair", status=0)
    assert said == "repaired: data/2: its object was dropped\nnothing else found\n"
    assert told("-w", written.uri, status=0) == "nothing found\n"


def test_only_what_a_repair_can_mend_is_called_repaired(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent owner is silent for longer at the second look, and another finding ends by itself meanwhile."""
    written.commit(DropObject(id=2))
    lease = written.lease()
    silent = replace(lease, heartbeat_ms=lease.heartbeat_ms - 48_000)
    assert written.metastore.jobs.renew_lease(silent)
    written.status("ingest-2", "STOPPED")
    seconds = count()
    monkeypatch.setattr(doctor, "now_ms", lambda: lease.heartbeat_ms + 1000 * next(seconds))
    ended = Finding(about="job", subject="mv-3", problem="it does not run", remedy="restart it")
    looks = iter([(ended,), ()])
    monkeypatch.setattr(doctor, "_of_jobs", lambda _: next(looks))
    report = json.loads(told("-w", written.uri, "--repair", "-o", "json", status=1))
    assert report["repaired"] == []
    (finding, *_) = report["findings"]
    assert "its last heartbeat is" in finding["problem"]


def test_without_a_warehouse_nothing_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "-w", str(tmp_path / "none")])
    assert result.exit_code != 0
    assert not (tmp_path / "none").exists()
