from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import uuid
from typing import IO, TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import produce_json
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.long, pytest.mark.kafka]
TOPIC = f"connect.{uuid.uuid4().hex[:8]}"
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


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port)).close()
    except OSError:
        return False
    return True


class World:
    """The owner with its Connect server, and a client without a JVM."""

    def __init__(self, folder: Path, broker: BrokerInfo) -> None:
        (folder / "data").mkdir()
        with socket.create_server(("localhost", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.warehouse = str(folder / "warehouse")
        self.log = (folder / "log").open("w+")
        self.owner = self.started_owner()
        self.client: subprocess.Popen[str] | None = None
        try:
            self.wait_for_owner("ready")
            given = (self.warehouse, str(self.port), str(folder / "data"), broker.bootstrap, TOPIC)
            self.client = started("connect_client", *given, log=self.log, JAVA_HOME="/nowhere", RW_SQL_SECRET_KEY=KEY)
            self.seen: dict[str, Any] = self.read()
        except BaseException:
            self.close()
            raise

    def started_owner(self) -> subprocess.Popen[str]:
        given = (self.warehouse, str(self.port))
        return started("connect_owner", *given, log=self.log, RW_SQL_SECRET_KEY=KEY, OF_OWNER="a value")

    def wait_for_owner(self, line: str) -> None:
        while line_of(self.owner) != line:
            pass

    def restart_owner(self) -> None:
        tell(self.owner, "end")
        assert self.owner.wait(LAST_RESORT_SECONDS) == 0
        wait_until(lambda: not is_open(self.port), "the server of the ended owner has closed its port")
        self.owner = self.started_owner()
        self.wait_for_owner("ready")

    def told(self, part: str) -> dict[str, Any]:
        """What the client sees in one of its parts."""
        assert self.client is not None
        tell(self.client, part)
        return self.read()

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
def world(tmp_path_factory: pytest.TempPathFactory, broker: BrokerInfo) -> Iterator[World]:
    create_topic(broker.bootstrap, TOPIC)
    produce_json(broker.bootstrap, TOPIC, [{"id": id_} for id_ in range(40)])
    made = World(tmp_path_factory.mktemp("connect"), broker)
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
    assert seen["secrets"] == ["of_owner", "word"]
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


def test_a_result_without_rows_is_empty(world: World) -> None:
    assert world.seen["empty"] == [["name"], [], [], 0]


def test_progress_is_shown_and_another_thread_does_not_wait(world: World) -> None:
    assert world.seen["slow"] == ["slow", "CREATED"]
    told = world.seen["progress"]
    assert len({job for job, *_ in told}) == 1
    assert told[0][0].startswith("mv-")
    assert all(0 <= done <= total == 40 for _, _, done, total in told)
    assert any(0 < done < total for _, _, done, total in told)
    assert world.seen["history"] == [[40, 0, 39]]
    assert world.seen["parallel"] == [["flights", "orders"], False]


def test_a_session_that_the_server_has_forgotten_says_what_was_changed(world: World) -> None:
    seen = world.told("forgotten")
    assert seen["before"].startswith("RW410: ")
    assert "SESSION_CLOSED" in seen["before"] or "Session was closed" in seen["before"]
    assert seen["before"].splitlines()[0].endswith("; nothing was changed")
    assert seen["after"].splitlines()[0].endswith("; the statement took effect")
    assert ("before" in seen["schemas"], "after" in seen["schemas"]) == (False, True)


def test_a_restarted_owner_does_not_hide_its_views_with_its_own(world: World) -> None:
    world.restart_owner()
    seen = world.told("restarted")
    assert seen["ended"].splitlines()[0].endswith("; nothing was changed")
    before = seen["read"][0][0]
    assert seen["rebuilt"] == [[[before + 10]], [[before + 10]]]
    assert [error[:5] for error in seen["change"]] == ["RW236", "RW236"]
    assert seen["dropped"] == "TABLE_OR_VIEW_NOT_FOUND"


def test_without_an_owner_statements_are_refused_and_views_are_read(world: World) -> None:
    tell(world.owner, "detach")
    world.wait_for_owner("detached")
    seen = world.told("without owner")
    assert seen["missing"].startswith("RW425: no process runs the jobs of this warehouse")
    assert seen["missing"].endswith(f"HINT: rw-sql serve --warehouse {world.warehouse}")
    assert seen["read"] == [[3]]
    assert seen["detached"] is False
