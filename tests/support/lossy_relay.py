"""A relay between clients and a server. From a chosen moment on, the relay loses every packet of the clients, as a
firewall or a failed host does."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""The program of a packet filter that accepts no byte: BPF_RET with 0."""


@contextmanager
def relay(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yields the relay's port on this machine, and a function. After a call of this function, the relay loses all
    packets, and no packet is confirmed."""
    server = socket.create_server(("127.0.0.1", 0))
    clients: list[socket.socket] = []
    others: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                other = socket.create_connection(("127.0.0.1", port))
                clients.append(client)
                others.append(other)
                for pair in ((client, other), (other, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    def lose() -> None:
        code = ctypes.create_string_buffer(_DROP_ALL)
        program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], lose
    finally:
        for each in (server, *clients, *others):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
