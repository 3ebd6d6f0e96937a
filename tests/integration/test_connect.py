from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long
KEY = base64.b64encode(b"k" * 32).decode()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"process ended with {process.wait(LAST_RESORT_SECONDS)}"
    return line.strip()


def started(module: str, *arguments: str, log: IO[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.integration.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **environment},
    )


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


class World:
    """The owner with its Connect server, and a client without a JVM."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        with socket.create_server(("localhost", 0)) as free:
            port = str(free.getsockname()[1])
        warehouse = str(folder / "warehouse")
        self.log = (folder / "log").open("w+")
        self.owner = started("connect_owner", warehouse, port, log=self.log, RW_SQL_SECRET_KEY=KEY)
        self.client: subprocess.Popen[str] | None = None
        try:
            while line_of(self.owner) != "ready":
                pass
            data = str(folder / "data")
            self.client = started(
                "connect_client", warehouse, port, data, log=self.log, JAVA_HOME="/nowhere", RW_SQL_SECRET_KEY=KEY
            )
            self.warehouse = warehouse
            self.seen: dict[str, Any] = self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> dict[str, Any]:
        """The next JSON object of the client; output of a notebook is left out."""
        assert self.client is not None
        try:
            while not (line := line_of(self.client)).startswith("{"):
                pass
        except AssertionError as error:
            self.log.seek(0)
            raise AssertionError(f"{error}\n{self.log.read()[-8000:]}") from None
        return dict(json.loads(line))

    def close(self) -> None:
        for process in (self.client, self.owner):
            if process is not None:
                process.kill()
                process.wait(LAST_RESORT_SECONDS)
        self.log.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("connect"))
    yield made
    made.close()


def test_the_workflow_runs_over_connect(world: World) -> None:
    seen = world.seen
    assert seen["has JVM"] is False
    assert seen["created"][0][:2] == ["orders", "CREATED"]
    assert seen["sums"] == [[v, sum(i for i in range(30) if i % 3 == v), 10] for v in range(3)]
    assert (seen["frame"], seen["shown"]) == (1, ["sums"])
    assert seen["qualified"] == seen["by path"] == [[28], [29]]
    assert seen["by argument"] == [[28, 29], [28, 29]]
    assert seen["catalog"] == [["raw.big"], ["sums"]]
    assert seen["path"] == [["raw, public"]]
    assert seen["joined"][0][0] >= 10
    assert seen["dropped"]
    assert seen["secrets"] == ["word"]
    assert seen["cell"] == [[3]]


def test_errors_name_the_place_as_elsewhere(world: World) -> None:
    lines = world.seen["error"].splitlines()
    assert lines[0].startswith("RW203: ")
    assert lines[1:3] == ["LINE 1: PAUSE SOURCE ordrs", " " * 21 + "^^^^^"]
    assert world.seen["source"].startswith('RW415: source "orders" cannot be read in a session of Spark Connect')
    assert world.seen["change"].startswith("RW236: ")
    lines = world.seen["argument"].splitlines()
    assert lines[0].startswith("RW236: ")
    assert lines[1].endswith("DELETE FROM IDENTIFIER(:t) WHERE v = 1")


def test_unsafe_statements_are_confirmed_in_the_client(world: World) -> None:
    seen = world.seen
    assert "this session is not interactive" in seen["unconfirmed"]
    assert seen["declined"].startswith("RW304: the operation was not confirmed")
    assert seen["asked"] == [True, True]
    assert seen["confirmed"][0][0] == "orders"


def test_blocks_belong_to_their_session(world: World) -> None:
    assert world.seen["block"] == ["open", None, "aborted", None]
    assert world.seen["in block"].startswith("RW331: ")


def test_a_secret_is_in_no_request(world: World) -> None:
    from deltalake import DeltaTable

    found = DeltaTable(f"{world.warehouse}/rw_catalog/runtime_requests").to_pyarrow_table()
    assert found.num_rows > 10
    assert "hidden value" not in json.dumps(found.to_pylist())


def test_without_an_owner_statements_are_refused_and_views_are_read(world: World) -> None:
    tell(world.owner, "detach")
    while line_of(world.owner) != "detached":
        pass
    assert world.client is not None
    tell(world.client, "without owner")
    seen = world.read()
    assert seen["missing"].startswith("RW425: no process runs the jobs of this warehouse")
    assert seen["missing"].endswith(f"HINT: rw-sql serve --warehouse {world.warehouse}")
    assert seen["read"] == [[3]]
    assert seen["detached"] is False
