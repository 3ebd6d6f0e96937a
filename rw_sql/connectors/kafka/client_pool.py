"""A pool of Kafka clients that stay open for a few seconds between statements.

The clients stay open because starting and ending a client's threads and connections takes longer than most requests.
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.connectors.kafka.admin import BrokerAdmin, BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
C = TypeVar("C")

KEPT_SECONDS = 5.0
"""The time in seconds after which an unused client is closed."""

LIFE_SECONDS = 30.0
"""The maximum age of a client in seconds. The limit exists because broker names and certificate files may change."""

_MOST_KEPT = 16
_STALE_SECONDS = 1.0
_VISIT_SECONDS = 10.0

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept(Generic[C]):
    """A client in the pool, with two times from ``time.monotonic()``: the time at which the client was made, and the
    time at which the client was last returned to the pool."""

    client: C
    properties: Properties
    made: float
    used: float = 0.0


class ClientPool(Generic[C]):
    """A pool from which a caller gets a client with the requested properties.

    Only one thread at a time uses a client. A client that is idle for KEPT_SECONDS is closed.
    """

    def __init__(self, make: Callable[[Mapping[str, str]], C], end: Callable[[C], object]) -> None:
        self._make = make
        self._end = end
        self._idle: list[_Kept[C]] = []
        # For each set of properties, the time of the last renewal: clients that were made earlier are no longer used.
        # Entries older than LIFE_SECONDS have no effect.
        self._renewed: dict[Properties, float] = {}
        self._lock = threading.Lock()
        self._is_sweeping = False
        atexit.register(self.end_all)

    def with_client(self, properties: Mapping[str, str], ask: Callable[[C], T]) -> T:
        """Calls ``ask`` with a client. If ``ask`` raises no error, the client is put back into the pool; otherwise, the
        client is closed.

        If a pooled client raises BrokerError within _STALE_SECONDS, the call is retried with a new client, because the
        brokers may have moved.
        """
        started = time.monotonic()
        key = _key(properties)
        kept = self._take(key)
        if kept is not None:
            try:
                found = ask(kept.client)
            except BaseException as error:
                # After any exception, including Ctrl-C, this code must close the client, because no other code closes
                # it.
                self._end(kept.client)
                if not isinstance(error, BrokerError) or time.monotonic() - started > _STALE_SECONDS:
                    raise
            else:
                self._give(kept)
                return found
        since = time.monotonic()
        made = _Kept(self._make(properties), key, since)
        try:
            found = ask(made.client)
        except BaseException:
            # See the comment above.
            self._end(made.client)
            raise
        self._give(made)
        return found

    def renew(self, properties: Mapping[str, str]) -> None:
        """Discards the pooled clients with these properties. Later calls create new clients."""
        now = time.monotonic()
        with self._lock:
            self._renewed = {key: at for key, at in self._renewed.items() if now - at < LIFE_SECONDS}
            self._renewed[_key(properties)] = now

    def end_all(self) -> None:
        """Closes all idle clients."""
        with self._lock:
            ended, self._idle = [kept.client for kept in self._idle], []
        self._end_each(ended)

    def _is_over(self, kept: _Kept[C], now: float) -> bool:
        oldest = max(now - LIFE_SECONDS, self._renewed.get(kept.properties, kept.made))
        return now - kept.used >= KEPT_SECONDS or kept.made < oldest

    def _take(self, key: Properties) -> _Kept[C] | None:
        now = time.monotonic()
        with self._lock:
            usable = (kept for kept in reversed(self._idle) if kept.properties == key and not self._is_over(kept, now))
            found = next(usable, None)
            if found is not None:
                self._idle.remove(found)
        return found

    def _give(self, kept: _Kept[C]) -> None:
        with self._lock:
            # Even an expired client is added, because the caller does not wait until it is closed.
            self._idle.append(replace(kept, used=time.monotonic()))
            ended = [self._idle.pop(0).client] if len(self._idle) > _MOST_KEPT else []
            self._sweep_later(KEPT_SECONDS)
        self._end_each(ended)

    def _sweep_later(self, seconds: float) -> None:
        if self._is_sweeping:
            return
        timer = threading.Timer(seconds, self._sweep)
        timer.name, timer.daemon = "rw_sql-kafka-clients", True
        # If the process is ending and no thread can start, the few expired clients end with the process.
        with suppress(RuntimeError):
            timer.start()
            self._is_sweeping = True

    def _sweep(self) -> None:
        now = time.monotonic()
        with self._lock:
            over = {kept for kept in self._idle if self._is_over(kept, now)}
            self._idle = [kept for kept in self._idle if kept not in over]
            self._is_sweeping = False
            if self._idle:
                self._sweep_later(min(kept.used for kept in self._idle) + KEPT_SECONDS - now)
        self._end_each([kept.client for kept in over])

    def _end_each(self, clients: list[C]) -> None:
        while clients:
            self._end(clients.pop())


def _key(properties: Mapping[str, str]) -> Properties:
    return tuple(sorted(properties.items()))


def _admin(properties: Mapping[str, str]) -> BrokerAdmin:
    return BrokerAdmin(properties, timeout=_VISIT_SECONDS)


ADMINS: ClientPool[BrokerAdmin] = ClientPool(_admin, BrokerAdmin.close)
"""The pool of administrative clients."""


def with_client(
    properties: Mapping[str, str],
    ask: Callable[[BrokerAdmin], T],
    *,
    timeout: float,
    is_read_committed: bool = True,
) -> T:
    """Calls ``ask`` with an administrative client.

    All requests of this call of ``ask`` together end within ``timeout`` seconds. Raises BrokerError.
    """
    since = time.monotonic()

    def within(admin: BrokerAdmin) -> T:
        admin.renew(timeout, since=since, is_read_committed=is_read_committed)
        return ask(admin)

    return ADMINS.with_client(properties, within)


def look(
    properties: Mapping[str, str], topics: Iterable[str], *, timeout: float, is_read_committed: bool = True
) -> Upstream:
    """The partitions of the topics with their first and end offsets. If the brokers report an error, ``Upstream.error``
    contains the error."""

    def ask(admin: BrokerAdmin) -> Upstream:
        cluster, found, missing = admin.describe(topics)
        listed = [(topic, number) for topic, view in found.items() for number in view.partitions]
        bounds = admin.bounds(listed)
        splits = {
            f"{topic}:{number}": UpstreamSplit(
                split=f"{topic}:{number}",
                start=bounds[topic, number].start,
                end=bounds[topic, number].end,
                cluster=cluster,
                incarnation=found[topic].id,
                term=bounds[topic, number].epoch,
            )
            for topic, number in listed
        }
        return Upstream(splits=splits, cluster=cluster, missing=missing, present=admin.topic_names() if missing else ())

    try:
        return with_client(properties, ask, timeout=timeout, is_read_committed=is_read_committed)
    except BrokerError as error:
        return Upstream(error=str(error))
