"""TLS to a server without TLS: a broker's reactions to a handshake that it does not understand."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.kafka.source import KafkaConnector

if TYPE_CHECKING:
    from collections.abc import Callable


def close_at_once(connection: socket.socket) -> None:
    """Closes before the client has sent anything."""
    connection.close()


def read_and_close(connection: socket.socket) -> None:
    """After the client's first message, as a broker does which takes its beginning for the length of a request."""
    connection.recv(65536)
    connection.close()


def read_a_part_and_close(connection: socket.socket) -> None:
    """Closes in the middle of the handshake: unread bytes turn the close into a reset."""
    connection.recv(4)
    connection.close()


@pytest.mark.long
@pytest.mark.parametrize("answer", [close_at_once, read_and_close, read_a_part_and_close])
def test_a_closed_connection_instead_of_a_handshake_is_reported(answer: Callable[[socket.socket], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        options = {
            "properties.bootstrap.server": address,
            "properties.security.protocol": "ssl",
            "topic": "any",
        }
        error = KafkaConnector().look(options).error
    assert error == f"{address}: Broker does not support SSL connections: check properties.security.protocol"
