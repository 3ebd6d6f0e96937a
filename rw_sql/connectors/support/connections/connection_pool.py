"""A pool that keeps the connections to servers open between requests."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

LIFE_SECONDS = 30.0
"""When a client is put back into the pool, the pool closes idle clients that were created more than this number of
seconds ago.

The limit exists because server names may resolve to other servers later.
"""

_MOST_IDLE = 16


class Pooled(Protocol):
    """A client with one connection. The pool lends it to one thread at a time."""

    @property
    def is_open(self) -> bool:
        """True if the connection can be used."""
        ...

    def close(self) -> None:
        """Closes the connection. Raises no error."""
        ...


A = TypeVar("A", bound="Hashable")
C = TypeVar("C", bound=Pooled)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Idle(Generic[A, C]):
    """An idle client, with its address and the time of its creation (``time.monotonic()``)."""

    address: A
    client: C
    made: float


class ConnectionPool(Generic[A, C]):
    """A pool of clients for any number of addresses. Each client serves one thread at a time; concurrent threads get
    different clients.

    ``failed`` is the class of the errors that a failed connection or request raises. ``answered`` are the classes of
    errors after which the connection is still usable.
    """

    def __init__(
        self, make: Callable[[A], C], *, failed: type[Exception], answered: tuple[type[Exception], ...] = ()
    ) -> None:
        self._make = make
        self._failed = failed
        self._answered = answered
        self._idle: list[_Idle[A, C]] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def use(self, address: A, ask: Callable[[C], T]) -> T:
        """Calls ``ask`` with a client. If ``ask`` returns, or raises an error in ``answered``, the client is put back
        into the pool. After any other error, the client is closed. If this error is in ``failed`` and the client came
        from the pool, ``ask`` is called again with a new client.
        """
        idle = self._take(address)
        if idle is None:
            return self.use_new(address, ask)
        try:
            found = ask(idle.client)
        except self._answered:
            self._give(idle)
            raise
        except self._failed:
            idle.client.close()
            return self.use_new(address, ask)
        except BaseException:
            idle.client.close()
            raise
        self._give(idle)
        return found

    def use_new(self, address: A, ask: Callable[[C], T]) -> T:
        """Does the same as :meth:`use`, but always uses a new client."""
        made = _Idle(address, self._make(address), time.monotonic())
        try:
            found = ask(made.client)
        except self._answered:
            self._give(made)
            raise
        except BaseException:
            made.client.close()
            raise
        self._give(made)
        return found

    def renew(self, concerns: Callable[[A], bool]) -> None:
        """Closes the idle clients of each address for which ``concerns`` returns True. Later calls then open new
        connections."""
        with self._lock:
            old = [idle for idle in self._idle if concerns(idle.address)]
            self._idle = [idle for idle in self._idle if idle not in old]
        for idle in old:
            idle.client.close()

    def _take(self, address: A) -> _Idle[A, C] | None:
        with self._lock:
            if self._pid != os.getpid():
                self._idle, self._pid = [], os.getpid()
            for at in reversed(range(len(self._idle))):
                if self._idle[at].address == address and self._idle[at].client.is_open:
                    return self._idle.pop(at)
        return None

    def _give(self, idle: _Idle[A, C]) -> None:
        with self._lock:
            self._idle.append(idle)
            oldest = time.monotonic() - LIFE_SECONDS
            old = [each for each in self._idle if each.made < oldest]
            kept = [each for each in self._idle if each.made >= oldest]
            old += kept[:-_MOST_IDLE]
            self._idle = kept[-_MOST_IDLE:]
        for each in old:
            each.client.close()
