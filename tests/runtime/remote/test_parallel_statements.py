"""Statements that several threads of one session without a JVM run at the same time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.runtime.remote.remote_sessions import SOURCE, Client, SlowPair
from tests.support.waits import LAST_RESORT_SECONDS, wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Rows = list[tuple[object, ...]]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SlowPair]:
    made = SlowPair(WrittenWarehouse(tmp_path / "warehouse"))
    made.server.start()
    yield made
    made.over.set()
    made.server.stop()


@pytest.fixture
def client(pair: SlowPair) -> Client:
    made = Client(pair.written.uri)
    made.run("SET statement_timeout = '20s'")
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def slow(pair: SlowPair, client: Client, threads: ThreadPoolExecutor) -> Iterator[Future[Rows]]:
    """SHOW SOURCES, which the owner has begun."""
    made = threads.submit(client.run, "SHOW SOURCES")
    wait_until(lambda: pair.taken() == 1, "taken")
    yield made
    pair.over.set()


def test_a_statement_does_not_wait_for_the_statement_of_another_thread(
    pair: SlowPair, client: Client, slow: Future[Rows]
) -> None:
    assert client.run(SOURCE)[0][:2] == ("s", "CREATED")
    assert client.run("SHOW SCHEMAS")
    assert not slow.done()
    pair.over.set()
    assert [row[0] for row in slow.result(LAST_RESORT_SECONDS)] == ["s"]


def test_many_statements_beside_a_slow_one_need_one_more_session_of_the_owner(
    pair: SlowPair, client: Client, slow: Future[Rows]
) -> None:
    for _ in range(5):
        client.run("SHOW SCHEMAS")
    assert not slow.done()
    assert len(pair.server._sessions) == 2


def test_a_statement_keeps_the_parameters_that_another_thread_has_set_since(
    pair: SlowPair, client: Client, slow: Future[Rows]
) -> None:
    client.run("SET search_path = raw")
    client.run("SET statement_timeout = '30s'")
    pair.over.set()
    slow.result(LAST_RESORT_SECONDS)
    assert client.state.parameters == {"search_path": "raw", "statement_timeout": "30000ms"}


def test_a_statement_that_began_earlier_does_not_end_the_block_of_another_thread(
    pair: SlowPair, client: Client, slow: Future[Rows]
) -> None:
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run("BEGIN UNSAFE")
    pair.over.set()
    slow.result(LAST_RESORT_SECONDS)
    assert client.state.block is not None
    assert client.run("ROLLBACK")[0][:2] == ("", "ROLLBACK")
    assert client.state.block is None


def test_a_refused_statement_is_confirmed_after_the_statement_of_another_thread(
    pair: SlowPair, client: Client, slow: Future[Rows]
) -> None:
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run(SOURCE)
    client.run("PAUSE SOURCE s")
    hint = client.error("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)").hint or ""
    token = hint.partition("CONFIRM '")[2].partition("'")[0]
    pair.over.set()
    slow.result(LAST_RESORT_SECONDS)
    assert client.run(f"CONFIRM '{token}'")


def test_a_confirm_waits_for_a_statement_that_has_the_name_of_the_refused_one(
    pair: SlowPair, client: Client, threads: ThreadPoolExecutor
) -> None:
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run(SOURCE)
    client.run("PAUSE SOURCE s")
    hint = client.error("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)").hint or ""
    token = hint.partition("CONFIRM '")[2].partition("'")[0]
    slow = threads.submit(client.run, "SHOW SOURCES")
    wait_until(lambda: pair.taken() == 1, "taken")
    client.state.parameters["statement_timeout"] = "1500ms"
    error = client.error(f"CONFIRM '{token}'")
    assert error.code == "RW425"
    assert "still runs another statement of the session: nothing was changed" in error.message
    pair.over.set()
    slow.result(LAST_RESORT_SECONDS)
    assert client.run(f"CONFIRM '{token}'")


def test_in_a_block_a_statement_waits_for_the_other_thread_and_the_error_says_so(
    pair: SlowPair, client: Client, threads: ThreadPoolExecutor
) -> None:
    client.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    client.run("BEGIN UNSAFE")
    slow = threads.submit(client.run, "SHOW SOURCES")
    wait_until(lambda: pair.taken() == 1, "taken")
    client.state.parameters["statement_timeout"] = "1500ms"
    error = client.error("ROLLBACK")
    assert error.code == "RW425"
    assert "still runs another statement of the block: nothing was changed" in error.message
    pair.over.set()
    assert slow.result(LAST_RESORT_SECONDS) == []
    assert client.run("ROLLBACK")[0][:2] == ("", "ROLLBACK")
