"""Connections whose requests do not arrive: neither their number nor their duration blocks other requests."""

from __future__ import annotations

import http.client
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.runtime.observe.metrics import Metrics, metrics_of
from rw_sql.runtime.observe.metrics_server import serve_metrics
from rw_sql.runtime.status.http_server import StatusServer
from rw_sql.runtime.support import http_connections
from rw_sql.runtime.support.http_connections import MOST_CONNECTIONS
from tests.support.waits import LAST_RESORT_SECONDS
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def metrics_port(folder: Path) -> Iterator[int]:
    """The port of the server of ``--metrics``."""
    server = serve_metrics(metrics_of(WrittenWarehouse(folder).context()), "0")
    yield server.server_port
    server.shutdown()
    server.server_close()


@contextmanager
def status_port(folder: Path) -> Iterator[int]:
    """The port of the status page."""
    server = StatusServer("127.0.0.1", 0)
    yield server.port
    server.close()


@pytest.fixture(params=[status_port, metrics_port], ids=["status page", "metrics"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    serving: Callable[[Path], Iterator[int]] = request.param
    with serving(tmp_path) as port:  # type: ignore[attr-defined]
        yield port


def status_of(port: int) -> int:
    """The status of a request for ``/healthz``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def opened(port: int, stack: ExitStack, count: int) -> list[socket.socket]:
    """Connections that have sent half of a request."""
    found = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
    for one in found:
        one.sendall(b"GET / HT")
    return found


@pytest.mark.parametrize("count", [1, MOST_CONNECTIONS, 3 * MOST_CONNECTIONS])
def test_requests_that_do_not_arrive_block_no_other(port: int, count: int) -> None:
    with ExitStack() as stack:
        opened(port, stack, count)
        assert [status_of(port) for _ in range(3)] == [200, 200, 200]


def test_a_new_connection_replaces_the_oldest_whose_request_has_not_arrived(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 2 * LAST_RESORT_SECONDS)
    with ExitStack() as stack:
        first, *_, last = opened(port, stack, MOST_CONNECTIONS)
        # The server accepts connections in their order, so it has accepted all of these before this one.
        assert status_of(port) == 200
        first.settimeout(LAST_RESORT_SECONDS)
        assert first.recv(1) == b""
        last.sendall(b"TP/1.0\r\nHost: localhost\r\n\r\n")
        last.settimeout(LAST_RESORT_SECONDS)
        assert last.recv(8) == b"HTTP/1.0"


def test_a_connection_is_closed_although_single_bytes_arrive(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(0.1)
        started = time.monotonic()
        slow.sendall(b"GET / HTTP/1.0\r\nX: ")
        while time.monotonic() < started + 8:
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:  # The server has closed the connection.
                break
        assert time.monotonic() < started + 4


def test_the_port_of_the_metrics_may_be_taken(tmp_path: Path) -> None:
    metrics: Metrics = metrics_of(WrittenWarehouse(tmp_path / "w").context())
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(SqlError, match="metrics cannot be served at"):
            serve_metrics(metrics, str(other.getsockname()[1]))
