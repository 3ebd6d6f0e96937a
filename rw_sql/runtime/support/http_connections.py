"""Mixins for HTTP servers that limit the number of connections, the time until a request has arrived, and the time for
each step of sending the response.

Without these limits, a connection on which no complete request arrives would occupy a thread for ever. If many
connections occupied threads, health probes would get no response.
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
"""The maximum time in seconds from the opening of a connection until the request line and all headers have arrived."""

MOST_CONNECTIONS = 64
"""The maximum number of connections that a server has at the same time."""

_ANSWER_SECONDS = 10.0
_CLOSING_SECONDS = 1.0


class LimitedThreads(ThreadingMixIn, BaseServer):
    """A server with a thread for each connection, and at most MOST_CONNECTIONS connections.

    If there are MOST_CONNECTIONS connections, a new connection replaces the oldest connection whose request has not
    arrived yet. If the requests of all connections have arrived, the new connection is closed.
    """

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS
    """The maximum number of connections that the operating system establishes before the server accepts them. A client
    that connects beyond this number repeats its attempt after a second."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # oldest first
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Responds to the request of a new connection on a new thread. If too many connections are open, closes one of
        them (see :class:`LimitedThreads`)."""
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
        """Responds to a request on the thread of its connection. Afterwards, the connection no longer counts towards
        MOST_CONNECTIONS."""
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
        """Logs the error only at level DEBUG, because the usual cause is that a client has closed its connection."""
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
    """Handles one request to a server of the class :class:`LimitedThreads`. If the request line and all headers have
    not arrived after HEAD_SECONDS, the connection is closed, even if single bytes keep arriving."""

    def setup(self) -> None:
        """Sets the time limit for the arrival of the request."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Timed(self.connection, time.monotonic() + HEAD_SECONDS))

    def parse_request(self) -> bool:
        """Reads the request's headers, and then sets the time limit for sending the response."""
        is_valid = super().parse_request()
        if isinstance(self.server, LimitedThreads):
            self.server.note_arrival(self.request)
        self.connection.settimeout(_ANSWER_SECONDS)
        return is_valid

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing. Probes send a request every second, so the log would be large. The path of a request may
        contain arbitrary text."""


class _Timed(io.RawIOBase):
    """A file that reads from a connection. A read that does not end before ``deadline`` raises TimeoutError."""

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
