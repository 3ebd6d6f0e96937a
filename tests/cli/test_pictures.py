"""Pictures from the command line and from statements, on a warehouse that is only read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.session.sparkless import answer, sparkless
from rw_sql.syntax import parse_statement
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(
        written.connection(1, "broker"),
        *written.source(2, "orders", uses=(1,)),
        written.view(3, "totals", 2),
    )
    written.lease()
    written.status("ingest-2", "RUNNING")
    return written


def shown(written: WrittenWarehouse, text: str) -> str:
    with sparkless(written.uri, only_reads=True) as context:
        ((cell,),) = answer(context, parse_statement(text)).rows
    return str(cell)


def test_the_lineage_as_a_statement(written: WrittenWarehouse) -> None:
    svg = shown(written, "EXPLAIN (FORMAT SVG) SHOW LINEAGE OF totals")
    assert "totals" in "".join(ElementTree.fromstring(svg).itertext())
    assert "n2 --> n3" in shown(written, "EXPLAIN (FORMAT MERMAID) SHOW LINEAGE")
    lineage = json.loads(shown(written, "EXPLAIN (FORMAT JSON) SHOW LINEAGE"))["lineage"]
    assert [node["state"] for node in lineage["nodes"] if node["name"] == "orders"] == ["RUNNING"]


def test_the_preview_of_a_command(written: WrittenWarehouse) -> None:
    words = ["source", "pause", "-s", "orders", "--dry-run", "-w", written.uri, "-o"]
    svg = CliRunner().invoke(app, [*words, "svg"], catch_exceptions=False)
    assert "orders" in "".join(ElementTree.fromstring(svg.stdout).itertext())
    mermaid = CliRunner().invoke(app, [*words, "mermaid"], catch_exceptions=False)
    assert mermaid.stdout.startswith("flowchart LR\n")
