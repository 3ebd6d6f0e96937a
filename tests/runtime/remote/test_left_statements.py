"""Statements after one for which the session stopped waiting, and which the owner continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import TAKEN, Request
from rw_sql.runtime.control.session_state import SessionState
from tests.runtime.remote.remote_sessions import SOURCE, Client, SlowPair
from tests.support.waits import wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.runtime.remote.request_messages import AnswerBody


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SlowPair]:
    made = SlowPair(WrittenWarehouse(tmp_path / "warehouse"))
    made.server.start()
    yield made
    made.over.set()
    made.server.stop()


def leave(pair: SlowPair, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs SHOW SOURCES, and sends Ctrl-C once the owner has taken the statement."""

    def wait_until_taken(request: Request, _: SessionState) -> AnswerBody:
        requests = pair.context.metastore.jobs.requests
        wait_until(lambda: (found := requests.find(request.request)) is not None and found.state == TAKEN, "taken")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(client.executor, "_wait", wait_until_taken)
        with pytest.raises(KeyboardInterrupt, match="the process that runs the jobs continues it"):
            client.run("SHOW SOURCES")


def test_the_next_statement_does_not_wait_for_it(pair: SlowPair, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(pair.written.uri)
    client.run("SET statement_timeout = '20s'")
    leave(pair, client, monkeypatch)
    assert client.run(SOURCE)[0][:2] == ("s", "CREATED")
    assert client.state.parameters == {"statement_timeout": "20000ms"}
    assert not pair.over.is_set()


def test_inside_a_block_the_next_statement_waits_for_it_and_the_error_says_so(
    pair: SlowPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(pair.written.uri)
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run("BEGIN UNSAFE")
    leave(pair, client, monkeypatch)
    client.state.parameters["statement_timeout"] = "1500ms"
    error = client.error("ROLLBACK")
    assert error.code == "RW425"
    assert "still runs the previous statement of this session" in error.message
    assert error.message.endswith("nothing was changed")
    assert client.state.block is not None
    pair.over.set()
    wait_until(lambda: not pair.context.metastore.jobs.requests.unanswered("default"), "the statement has ended")
    del client.state.parameters["statement_timeout"]
    assert client.run("ROLLBACK")[0][:2] == ("", "ROLLBACK")
    assert client.run("SHOW SOURCES") == []
