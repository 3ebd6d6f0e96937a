"""Clients that the threads of a process share: which threads wait for each other while a client is opened."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.support.connections.shared_clients import SharedClients

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 10.0


class Servers:
    """Servers whose clients are objects. Address "slow" answers when ``answer`` is set; ``error`` is then raised."""

    def __init__(self) -> None:
        self.answer, self.asked = threading.Event(), threading.Event()
        self.opened: list[str] = []
        self.error: BaseException | None = None

    def open(self, address: str) -> object:
        self.opened.append(address)
        if address == "slow":
            self.asked.set()
            assert self.answer.wait(SECONDS)
            error, self.error = self.error, None
            if error is not None:
                raise error
        return object()


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.answer.set()


def test_a_server_that_does_not_respond_delays_no_other(servers: Servers) -> None:
    clients = SharedClients(servers.open)
    known = clients.of("known")
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(clients.of, "slow")
        assert servers.asked.wait(SECONDS)
        assert threads.submit(clients.of, "known").result(SECONDS) is known
        assert threads.submit(clients.of, "new").result(SECONDS) is not known
        assert not slow.done()
        servers.answer.set()
        assert slow.result(SECONDS) is clients.of("slow")
    assert servers.opened == ["known", "slow", "new"]


def test_threads_that_wait_get_the_same_client(servers: Servers) -> None:
    clients = SharedClients(servers.open)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(clients.of, "slow") for _ in range(4)]
        assert servers.asked.wait(SECONDS)
        servers.answer.set()
        assert len({each.result(SECONDS) for each in found}) == 1
    assert servers.opened == ["slow"]


def test_threads_that_wait_get_the_error_and_the_next_attempt_is_a_new_one(servers: Servers) -> None:
    servers.error = OSError("no answer")
    clients, waiting = SharedClients(servers.open), threading.Barrier(3)

    def ask() -> object:
        waiting.wait(SECONDS)
        return clients.of("slow")

    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(ask) for _ in range(3)]
        assert servers.asked.wait(SECONDS)
        servers.answer.set()
        errors = [each for each in found if each.exception(SECONDS) is not None]
    assert errors
    assert all(str(each.exception()) == "no answer" for each in errors)
    assert clients.of("slow") is clients.of("slow")
    assert servers.opened == ["slow", "slow"]


def test_a_thread_that_waits_for_an_interrupted_one_opens_the_client_itself(servers: Servers) -> None:
    servers.error = KeyboardInterrupt()
    clients = SharedClients(servers.open)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(clients.of, "slow")
        assert servers.asked.wait(SECONDS)
        second = threads.submit(clients.of, "slow")
        servers.answer.set()
        assert isinstance(first.exception(SECONDS), KeyboardInterrupt)
        assert second.result(SECONDS) is clients.of("slow")
    assert servers.opened == ["slow", "slow"]


def test_an_old_client_and_a_renewed_one_are_replaced(servers: Servers) -> None:
    lasting, short = SharedClients(servers.open), SharedClients(servers.open, life_seconds=-1.0)
    assert lasting.of("a") is lasting.of("a")
    assert short.of("a") is not short.of("a")
    before = lasting.of("a")
    lasting.renew("a")
    lasting.renew("unknown")
    assert lasting.of("a") is not before


def test_the_least_recently_used_client_is_dropped(servers: Servers) -> None:
    clients = SharedClients(servers.open, most=2)
    a, b = clients.of("a"), clients.of("b")
    assert clients.of("a") is a
    clients.of("c")
    assert clients.of("a") is a
    assert clients.of("b") is not b


def test_a_forked_process_begins_without_clients(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = SharedClients(servers.open)
    before = clients.of("a")
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert clients.of("a") is not before
