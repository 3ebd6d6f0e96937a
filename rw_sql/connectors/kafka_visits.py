"""Clients of Kafka's brokers that outlive a question by some seconds: statements come one after the other.

A client's threads and its connection take longer to start and to end than most questions take to answer.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.connectors.kafka_admin import EARLIEST, LATEST, BrokerAdmin, BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
C = TypeVar("C")

KEPT_SECONDS = 5.0
"""How long a client is kept that nobody asks anything."""

_MOST_KEPT = 16
_STALE_SECONDS = 1.0
_VISIT_SECONDS = 10.0

Properties = tuple[tuple[str, str], ...]


class KeptClients(Generic[C]):
    """Clients by their properties, each used by one thread at a time and ended when nobody has used it for a while."""

    def __init__(self, make: Callable[[Mapping[str, str]], C], end: Callable[[C], object]) -> None:
        self._make = make
        self._end = end
        self._idle: list[tuple[float, Properties, C]] = []
        self._lock = threading.Lock()
        self._is_sweeping = False
        atexit.register(self.end_all)

    def visit(self, properties: Mapping[str, str], ask: Callable[[C], T]) -> T:
        """What ``ask`` gets of a client, which is kept where that raised nothing.

        What a kept client soon fails at with a BrokerError a new one is asked again: its brokers may have moved.
        """
        started = time.monotonic()
        kept = self.take(properties)
        if kept is not None:
            try:
                found = ask(kept)
            except BaseException as error:
                self._end(kept)
                if not isinstance(error, BrokerError) or time.monotonic() - started > _STALE_SECONDS:
                    raise
            else:
                self.give(properties, kept)
                return found
        made = self._make(properties)
        try:
            found = ask(made)
        except BaseException:
            self._end(made)
            raise
        self.give(properties, made)
        return found

    def take(self, properties: Mapping[str, str]) -> C | None:
        """One that is not in use, which is the caller's from now on; None where there is none."""
        wanted = _key(properties)
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at][1] == wanted:
                    return self._idle.pop(at)[2]
        return None

    def give(self, properties: Mapping[str, str], client: C) -> None:
        """Keeps one for who asks next."""
        with self._lock:
            self._idle.append((time.monotonic(), _key(properties), client))
            ended = [self._idle.pop(0)[2]] if len(self._idle) > _MOST_KEPT else []
            self._sweep_later(KEPT_SECONDS)
        self._end_each(ended)

    def end_all(self) -> None:
        """Ends all that are not in use."""
        with self._lock:
            ended, self._idle = [client for _, _, client in self._idle], []
        self._end_each(ended)

    def _sweep_later(self, seconds: float) -> None:
        if self._is_sweeping:
            return
        timer = threading.Timer(seconds, self._sweep)
        timer.name, timer.daemon = "rw_sql-kafka-clients", True
        timer.start()
        self._is_sweeping = True

    def _sweep(self) -> None:
        since = time.monotonic() - KEPT_SECONDS
        with self._lock:
            ended = [client for used, _, client in self._idle if used <= since]
            self._idle = [kept for kept in self._idle if kept[0] > since]
            self._is_sweeping = False
            if self._idle:
                self._sweep_later(self._idle[0][0] - since)
        self._end_each(ended)

    def _end_each(self, clients: list[C]) -> None:
        while clients:
            self._end(clients.pop())


def _key(properties: Mapping[str, str]) -> Properties:
    return tuple(sorted(properties.items()))


def _admin(properties: Mapping[str, str]) -> BrokerAdmin:
    return BrokerAdmin(properties, timeout=_VISIT_SECONDS)


ADMINS: KeptClients[BrokerAdmin] = KeptClients(_admin, BrokerAdmin.close)
"""Those that ask for metadata."""


def visit(
    properties: Mapping[str, str],
    ask: Callable[[BrokerAdmin], T],
    *,
    timeout: float,
    is_read_committed: bool = True,
) -> T:
    """What ``ask`` gets of the brokers; all its calls together end within ``timeout`` seconds. Raises BrokerError."""
    since = time.monotonic()

    def within(admin: BrokerAdmin) -> T:
        admin.renew(timeout, since=since, is_read_committed=is_read_committed)
        return ask(admin)

    return ADMINS.visit(properties, within)


def look(
    properties: Mapping[str, str], topics: Iterable[str], *, timeout: float, is_read_committed: bool = True
) -> Upstream:
    """The partitions of the topics with their bounds; faults become ``Upstream.error``."""

    def ask(admin: BrokerAdmin) -> Upstream:
        cluster, found, missing = admin.describe(topics)
        listed = [(topic, number) for topic, view in found.items() for number in view.partitions]
        starts, ends = admin.offsets(listed, EARLIEST, LATEST)
        splits = {
            f"{topic}:{number}": UpstreamSplit(
                split=f"{topic}:{number}",
                start=starts[topic, number],
                end=ends[topic, number],
                cluster=cluster,
                incarnation=found[topic].id,
            )
            for topic, number in listed
        }
        return Upstream(splits=splits, cluster=cluster, missing=missing)

    try:
        return visit(properties, ask, timeout=timeout, is_read_committed=is_read_committed)
    except BrokerError as error:
        return Upstream(error=str(error))
