"""``rw-sql dev registry``: a real registry starts, answers, and ends."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.servers.schema_registry import is_running, start_registry
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.schema_registry import RegistryInfo


def run(*words: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["dev", "registry", *words])
    assert done.exit_code == exit_code, done.output
    return done.output


@pytest.mark.registry
@pytest.mark.long
def test_a_registry_s_start_and_end(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path / "registry"))
    assert run("status", *folder, exit_code=1) == "no registry is running\n"
    started = json.loads(run("start", "--port", "0", "--output", "json", *folder))
    assert not started["was_running"]
    body = json.dumps({"schema": '"string"'}).encode()
    wanted = urllib.request.Request(
        f"{started['url']}/subjects/t-value/versions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(wanted) as answer:
        assert json.load(answer)["id"] > 0
    assert "was already running" in run("start", "--port", "0", *folder)
    assert "answers" in run("status", *folder)
    assert run("stop", *folder) == "stopped\n"
    assert is_running(tmp_path / "registry") is None
    assert run("stop", *folder) == "no registry was running\n"
    again = start_registry(tmp_path / "registry", port=0)
    assert again.url == started["url"]
    assert run("stop", *folder) == "stopped\n"


@pytest.mark.registry
def test_a_registry_that_cannot_start_says_why(tmp_path: Path, schema_registry: RegistryInfo) -> None:
    port = int(schema_registry.url.partition("//")[2].partition("/")[0].rpartition(":")[2])
    with pytest.raises(SqlError, match=f"port {port} is taken by another process"):
        start_registry(tmp_path / "second", port=port)
