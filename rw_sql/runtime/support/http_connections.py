"""Mixins for the HTTP servers of a process. They limit the number and the duration of connections.

Without these limits, a connection whose request does not arrive would occupy a thread for ever, and many such
connections would block the probes of the process.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingMixIn
from typing import Any

logger = logging.getLogger(__name__)

HEAD_SECONDS = 5.0
"""The maximum duration in seconds from the start of a connection until its request line and headers have arrived."""

MOST_CONNECTIONS = 64
"""The maximum number of connections that a server has at the same time."""

_ANSWER_SECONDS = 10.0
_CLOSING_SECONDS = 1.0


class LimitedThreads(ThreadingMixIn, BaseServer):
    """A server with a thread for each connection, and at most MOST_CONNECTIONS connections.

    If all connections are in use, a new connection replaces the oldest connection whose request has not arrived. If all
    requests have arrived, the new connection is closed.
    """

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS
    """The number of connections that the operating system completes before the server accepts them. If there are more
    connections, a client tries again after a second."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # oldest first
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Responds to a request on a new thread."""
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            if not self._free.acquire(timeout=_CLOSING_SECONDS):
                self.shutdown_request(request)
                return
        with self._lock:
            self._waiting[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # No thread could be started.
            self._end(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Responds to a request. Afterwards, another connection can take the place of the request's connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def note_arrival(self, request: Any) -> None:
        """Records that the request of a connection has arrived. From then on, no new connection replaces this
        connection."""
        with self._lock:
            self._waiting.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error, because no message is needed when a browser closes its connection."""
        logger.debug("a request was interrupted", exc_info=True)

    def _end(self, request: Any) -> None:
        self.note_arrival(request)
        self._free.release()

    def _end_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return
            del self._waiting[oldest]
        with suppress(OSError):  # The client, or the thread of the connection, has just closed it.
            oldest.shutdown(socket.SHUT_RDWR)


class TimedRequests(BaseHTTPRequestHandler):
    """Handles a request of :class:`LimitedThreads`. If the whole request has not arrived after HEAD_SECONDS, the
    connection is closed, even if single bytes of the request arrive in the meantime."""

    def setup(self) -> None:
        """Sets the time limit of the request."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Timed(self.connection, time.monotonic() + HEAD_SECONDS))

    def parse_request(self) -> bool:
        """Reads the headers, and sets the time limit of the response."""
        is_valid = super().parse_request()
        if isinstance(self.server, LimitedThreads):
            self.server.note_arrival(self.request)
        self.connection.settimeout(_ANSWER_SECONDS)
        return is_valid

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing, because probes send a request every second, and the path of a request may contain arbitrary
        text."""


class _Timed(io.RawIOBase):
    """A connection as a file. All reads from the connection must be finished by ``deadline``."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
