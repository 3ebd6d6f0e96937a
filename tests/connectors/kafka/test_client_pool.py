"""Pooled clients: which caller gets one, when it ends, and the case of a client that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from rw_sql.connectors.kafka import client_pool as kafka_visits
from rw_sql.connectors.kafka.admin import BrokerError
from rw_sql.connectors.kafka.client_pool import ClientPool
from tests.support.waits import LAST_RESORT_SECONDS

ONE, OTHER = {"bootstrap.servers": "a:1"}, {"bootstrap.servers": "a:1", "sasl.password": "new"}


@dataclass
class _Client:
    properties: Mapping[str, str]
    is_ended: bool = False
    asked: list[str] = field(default_factory=list)

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
def made() -> list[_Client]:
    return []


@pytest.fixture
def clients(made: list[_Client]) -> ClientPool[_Client]:
    def make(properties: Mapping[str, str]) -> _Client:
        made.append(_Client(properties))
        return made[-1]

    return ClientPool(make, _Client.end)


def reach(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_so()


def test_the_next_request_with_the_same_properties_uses_the_same_client(
    clients: ClientPool[_Client], made: list[_Client]
) -> None:
    clients.with_client(ONE, lambda client: client.asked.append("a"))
    clients.with_client(ONE, lambda client: client.asked.append("b"))
    clients.with_client(OTHER, lambda client: client.asked.append("c"))
    assert [client.asked for client in made] == [["a", "b"], ["c"]]
    clients.end_all()
    assert all(client.is_ended for client in made)


def test_a_client_is_used_by_one_at_a_time(clients: ClientPool[_Client], made: list[_Client]) -> None:
    clients.with_client(ONE, lambda outer: clients.with_client(ONE, lambda inner: None))
    assert len(made) == 2
    assert not any(client.is_ended for client in made)


def test_what_a_kept_client_fails_at_a_new_one_is_asked(clients: ClientPool[_Client], made: list[_Client]) -> None:
    clients.with_client(ONE, lambda client: None)

    def ask(client: _Client) -> str:
        if client is made[0]:
            raise BrokerError("its brokers have moved")
        return "answered"

    assert clients.with_client(ONE, ask) == "answered"
    assert [client.is_ended for client in made] == [True, False]


def test_a_failure_that_took_long_and_one_of_the_callers_are_not_asked_again(
    clients: ClientPool[_Client], made: list[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients.with_client(ONE, lambda client: None)

    def ask(_: _Client) -> None:
        raise ValueError("of the caller's own")

    with pytest.raises(ValueError, match="own"):
        clients.with_client(ONE, ask)
    clients.with_client(ONE, lambda client: None)
    monkeypatch.setattr(kafka_visits, "_STALE_SECONDS", -1.0)

    def fail(_: _Client) -> None:
        raise BrokerError("no answer")

    with pytest.raises(BrokerError):
        clients.with_client(ONE, fail)
    assert [client.is_ended for client in made] == [True, True]


def test_an_unused_client_is_closed(
    clients: ClientPool[_Client], made: list[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_visits, "KEPT_SECONDS", 0.05)
    clients.with_client(ONE, lambda client: None)
    reach(lambda: made[0].is_ended)


def test_no_more_than_some_are_kept(clients: ClientPool[_Client], made: list[_Client]) -> None:
    for number in range(40):
        clients.with_client({"bootstrap.servers": f"a:{number}"}, lambda client: None)
    assert sum(not client.is_ended for client in made) == kafka_visits._MOST_KEPT


def test_many_threads_share_them(clients: ClientPool[_Client], made: list[_Client]) -> None:
    in_use: set[int] = set()
    doubled: list[int] = []

    def ask(client: _Client) -> None:
        if id(client) in in_use:
            doubled.append(id(client))
        in_use.add(id(client))
        time.sleep(0.001)
        in_use.discard(id(client))

    threads = [threading.Thread(target=lambda: [clients.with_client(ONE, ask) for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not doubled
    assert len(made) <= 8


def test_one_that_is_asked_again_and_again_ends_some_day(
    clients: ClientPool[_Client], made: list[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_visits, "LIFE_SECONDS", 0.2)
    monkeypatch.setattr(kafka_visits, "KEPT_SECONDS", 0.4)
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while len(made) < 3 and time.monotonic() < deadline:
        clients.with_client(ONE, lambda client: client.asked.append("a"))
        time.sleep(0.01)
    reach(lambda: all(client.is_ended for client in made[:2]))
    assert len(made[0].asked) > 2


def test_a_request_that_is_repeated_uses_a_new_client(
    clients: ClientPool[_Client], made: list[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_visits, "KEPT_SECONDS", 0.4)

    def ask(properties: Mapping[str, str], text: str) -> None:
        clients.with_client(properties, lambda client: client.asked.append(text))

    ask(ONE, "a")
    ask(OTHER, "b")
    clients.renew(ONE)
    ask(ONE, "c")
    ask(OTHER, "d")
    # A client that is in use at that moment is not reused afterwards.
    clients.with_client(ONE, lambda client: clients.renew(ONE))
    ask(ONE, "e")
    ask(ONE, "f")
    assert [client.asked for client in made] == [["a"], ["b", "d"], ["c"], ["e", "f"]]
    reach(lambda: made[0].is_ended and made[2].is_ended)


def test_where_there_can_be_no_more_threads_answers_come_all_the_same(
    clients: ClientPool[_Client], made: list[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", start)
    assert clients.with_client(ONE, lambda client: "answered") == "answered"
    assert clients.with_client(ONE, lambda client: "again") == "again"
    clients.end_all()
    assert [client.is_ended for client in made] == [True]
