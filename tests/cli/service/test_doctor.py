"""``rw-sql doctor`` over a warehouse that a dropped object has left a folder in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.metastore.records import DropObject
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


def test_without_a_warehouse_nothing_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "-w", str(tmp_path / "none")])
    assert result.exit_code != 0
    assert not (tmp_path / "none").exists()
