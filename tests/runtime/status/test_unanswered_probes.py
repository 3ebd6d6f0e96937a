"""Requests that read the warehouse while its store does not answer: they leave connections for the liveness probe."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, NoReturn

import pytest

from rw_sql.runtime.status import http_server
from rw_sql.runtime.status.http_server import MOST_READINGS, StatusServer
from rw_sql.runtime.support.http_connections import MOST_CONNECTIONS
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Silent:
    """A warehouse whose store does not answer until ``over`` is set. ``reads`` has an entry for each reading."""

    over: Event = field(default_factory=Event)
    reads: list[str] = field(default_factory=list)

    def _wait(self, what: str) -> None:
        self.reads.append(what)
        assert self.over.wait(LAST_RESORT_SECONDS)

    @property
    def metrics(self) -> NoReturn:
        self._wait("metrics")
        raise OSError("the store has failed")

    def status(self) -> NoReturn:
        self._wait("status")
        raise OSError("the store has failed")

    def why_not_ready(self) -> None:
        self._wait("readiness")


@pytest.fixture
def silent() -> Iterator[Silent]:
    made = Silent()
    yield made
    made.over.set()


@pytest.fixture
def server(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusServer]:
    monkeypatch.setattr(http_server, "_PLACE_SECONDS", 0.2)
    server = StatusServer("127.0.0.1", 0)
    server.show(silent)
    yield server
    server.close()


def get(server: StatusServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LAST_RESORT_SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/readyz", "/metrics", "/status.json", "/"])
def test_the_process_is_alive_although_nothing_else_is_answered(
    server: StatusServer, silent: Silent, path: str
) -> None:
    with ThreadPoolExecutor(MOST_CONNECTIONS) as clients:
        asked = [clients.submit(get, server, path) for _ in range(MOST_CONNECTIONS)]
        try:
            wait_until(lambda: sum(each.done() for each in asked) == MOST_CONNECTIONS - MOST_READINGS, "refused")
            refused = [each.result() for each in asked if each.done()]
            assert get(server, "/healthz") == (200, "alive\n")
            assert get(server, "/style.css")[0] == 200
        finally:
            silent.over.set()
    assert set(refused) == {(503, f"the warehouse's store has not answered {MOST_READINGS} earlier requests yet\n")}
    assert len(silent.reads) == MOST_READINGS


def test_readiness_is_read_although_no_page_is_answered(server: StatusServer, silent: Silent) -> None:
    with ThreadPoolExecutor(MOST_CONNECTIONS) as clients:
        for _ in range(MOST_CONNECTIONS - 1):
            clients.submit(get, server, "/")
        try:
            wait_until(lambda: len(silent.reads) == MOST_READINGS, "read")
            clients.submit(get, server, "/readyz")
            wait_until(lambda: "readiness" in silent.reads, "read")
        finally:
            silent.over.set()


def test_the_endpoints_answer_again_when_the_store_does(server: StatusServer, silent: Silent) -> None:
    with ThreadPoolExecutor(MOST_CONNECTIONS) as clients:
        asked = [clients.submit(get, server, "/readyz") for _ in range(MOST_READINGS)]
        wait_until(lambda: len(silent.reads) == MOST_READINGS, "read")
        silent.over.set()
        assert {each.result(LAST_RESORT_SECONDS) for each in asked} == {(200, "ready\n")}
    assert get(server, "/readyz") == (200, "ready\n")
