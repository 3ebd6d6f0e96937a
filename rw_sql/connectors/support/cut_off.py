"""Ends another thread's wait for a server."""

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
    """Shuts down a connection's socket. A thread that waits for the server then gets an error.

    ``errors`` are the exceptions that :meth:`HasDescriptor.fileno` raises for a closed connection. This function raises
    no error. It does not close the connection: the waiting thread would otherwise wait on a descriptor that no longer
    exists.
    """
    with (
        contextlib.suppress(OSError, ValueError, *errors),
        socket.socket(fileno=os.dup(connection.fileno())) as copied,
    ):
        copied.shutdown(socket.SHUT_RDWR)
