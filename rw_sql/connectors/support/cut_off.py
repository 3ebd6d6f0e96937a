"""Ends a wait for a server that does not respond."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Protocol


class HasDescriptor(Protocol):
    """A connection with a socket, such as psycopg's."""

    def fileno(self) -> int:
        """The descriptor of the connection's socket. Raises an error if the connection is closed."""
        ...


def cut_off(connection: HasDescriptor, *errors: type[Exception]) -> None:
    """Shuts down the socket of a connection, so that a thread that waits for the server gets an error.

    ``errors`` are the exceptions that :meth:`HasDescriptor.fileno` raises for a closed connection. This function raises
    no error. The connection itself is not closed. If it were closed, the waiting thread would wait for a descriptor
    that does not exist any more.
    """
    with (
        contextlib.suppress(OSError, ValueError, *errors),
        socket.socket(fileno=os.dup(connection.fileno())) as copied,
    ):
        copied.shutdown(socket.SHUT_RDWR)
