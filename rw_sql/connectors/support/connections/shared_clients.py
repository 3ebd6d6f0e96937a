"""Keeps at most one open client per address, which all threads of the process share."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

A = TypeVar("A", bound="Hashable")
C = TypeVar("C")


class SharedClients(Generic[A, C]):
    """The clients of this process, at most one per address. Several threads may use a client at once. Thread-safe.

    ``open_client`` is the function that opens a client. While a call of this function runs, only threads that need a
    client of the same address wait for it. If the call fails, all of these threads get its exception. The next call of
    :meth:`of` tries again. A client that is older than ``life_seconds`` is replaced at its next use; if
    ``life_seconds`` is None, clients never expire. If there are more than ``most`` clients, the least recently used
    client is removed. Replaced and removed clients are not closed, because other threads may still use them. A forked
    process begins without clients.
    """

    def __init__(self, open_client: Callable[[A], C], *, life_seconds: float | None = None, most: int = 1024) -> None:
        self._open_client = open_client
        self._life_seconds = life_seconds
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[A, tuple[float, C]] = {}
        self._opening: dict[A, Future[C]] = {}
        self._pid = os.getpid()

    def of(self, address: A) -> C:
        """The client of an address. Raises the exceptions of ``open_client``."""
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    self._known, self._opening, self._pid = {}, {}, os.getpid()
                found = self._known.pop(address, None)
                if found is not None and not self._is_old(found[0]):
                    self._known[address] = found  # at the end, as the most recently used client
                    return found[1]
                opening = self._opening.get(address)
                if opening is None:
                    own = self._opening[address] = Future[C]()
                    break
            try:
                return opening.result()
            except CancelledError:
                continue  # The thread that was opening the client was interrupted.
        return self._opened(address, own)

    def renew(self, address: A) -> None:
        """Makes later calls of :meth:`of` use a new client."""
        with self._lock:
            self._known.pop(address, None)

    def _opened(self, address: A, outcome: Future[C]) -> C:
        try:
            client = self._open_client(address)
        except BaseException as error:
            self._end(address, outcome)
            if isinstance(error, Exception):
                outcome.set_exception(error)
            else:
                outcome.cancel()
            raise
        with self._lock:
            self._known[address] = (time.monotonic(), client)
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        self._end(address, outcome)
        outcome.set_result(client)
        return client

    def _end(self, address: A, outcome: Future[C]) -> None:
        with self._lock:
            if self._opening.get(address) is outcome:
                del self._opening[address]

    def _is_old(self, made: float) -> bool:
        return self._life_seconds is not None and time.monotonic() - made > self._life_seconds
