"""How long the Pulsar connector waits for a message of a broker that answers slowly. No broker runs here."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rw_sql.connectors.pulsar import client

_ADDRESS = client.address_of({"topic": "orders", "service.url": "pulsar://broker:6650"})


class SlowReader:
    """A reader of pulsar-client whose broker answers after 50 ms."""

    def __init__(self) -> None:
        self._reader = self
        self.waited: list[int] = []

    def has_message_available(self) -> bool:
        time.sleep(0.05)
        return True

    def read_next(self, milliseconds: int) -> str:
        self.waited.append(milliseconds)
        return "a message"


def test_a_message_of_a_slow_broker_gets_more_time() -> None:
    slow = SlowReader()
    assert client.next_message(_ADDRESS, slow, 0.1) == "a message"
    assert slow.waited[0] >= 1000 * client.MESSAGE_FACTOR * 0.05


@pytest.mark.parametrize(("given", "waited_ms"), [(0.1, 500), (0.8, 800)])
def test_a_message_of_a_slow_broker_gets_limited_time(
    given: float, waited_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MESSAGE_SECONDS", 0.5)
    slow = SlowReader()
    client.next_message(_ADDRESS, slow, given)
    assert slow.waited == [waited_ms]


def test_a_broker_that_accepts_no_connection_delays_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    other = client.address_of({"service.url": "pulsar://other:6650"})
    answer, asked = threading.Event(), threading.Event()

    def unreachable(url: str) -> str | None:
        if "other" in url:
            return None
        asked.set()
        assert answer.wait(10.0)
        return "cannot connect"

    monkeypatch.setattr(client, "_unreachable", unreachable)
    monkeypatch.setattr(client, "_new_client", dict)
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(client.CLIENTS.of, _ADDRESS)
        try:
            assert asked.wait(10.0)
            assert threads.submit(client.CLIENTS.of, other).result(5.0) == dict(other)
        finally:
            answer.set()
            client.CLIENTS.renew(other)
        with pytest.raises(client.PulsarError, match="cannot connect"):
            slow.result(10.0)
