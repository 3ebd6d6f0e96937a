"""Keeps clients of Pulsar open, and turns their errors into messages without secrets."""

from __future__ import annotations

import functools
import os
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from rw_sql.connectors.support.connections.shared_clients import SharedClients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

LIFE_SECONDS = 300.0
"""The maximum age of a client in seconds; the limit exists because host names may change."""

OPERATION_SECONDS = 30
"""The time limit of a request in seconds, which is also pulsar-client's default. The client retries the request within
this time. A request to brokers that refuse connections fails earlier."""

MESSAGE_FACTOR = 20
"""If the broker responds slowly, the time limit for a message is this factor times the duration of the broker's last
response. A busy broker or machine delays both the response and the message."""

MESSAGE_SECONDS = 30.0
"""The maximum, in seconds, of the time limit that is computed with MESSAGE_FACTOR."""

_CONNECTION_KEYS = ("service.url", "auth.token")
_PROBE_SECONDS = 1.0
_BUSY_SECONDS = 6.0
_BUSY = frozenset(
    {
        "AlreadyClosed",
        "BrokerMetadataError",
        "BrokerPersistenceError",
        "ConsumerBusy",
        "Disconnected",
        "NotConnected",
        "RetryableError",
        "ServiceUnitNotReady",
    }
)

Address = tuple[tuple[str, str], ...]
"""The options that determine a connection, sorted."""


class PulsarError(Exception):
    """Raised if the brokers do not respond or refuse a request. The error's message contains no secret."""


class TopicMissingError(PulsarError):
    """Raised if the topic, or the topic's namespace, does not exist."""


class BusyError(PulsarError):
    """Raised if a topic is temporarily unavailable, for example because it moves to another broker."""


class NothingError(PulsarError):
    """Raised if no message arrives within the time limit."""


def address_of(options: Mapping[str, str]) -> Address:
    """The options of a source that determine its connection."""
    return tuple((key, options[key]) for key in _CONNECTION_KEYS if key in options)


def _new_client(options: Mapping[str, str]) -> Any:
    import pulsar

    token = options.get("auth.token")
    return pulsar.Client(
        options["service.url"].strip(),
        authentication=pulsar.AuthenticationToken(token) if token else None,
        operation_timeout_seconds=OPERATION_SECONDS,
        connection_timeout_ms=1000 * OPERATION_SECONDS,
        stats_interval_in_seconds=0,
        # Nothing is logged, because all errors are raised, including errors that occur while something is closed.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


def _opened(address: Address) -> Any:
    """A new client of an address. Raises PulsarError if no broker accepts a connection."""
    # Checks the addresses first, because a client would try to connect for OPERATION_SECONDS.
    if (reason := _unreachable(dict(address)["service.url"])) is not None:
        raise PulsarError(reason)
    return _new_client(dict(address))


CLIENTS: SharedClients[Address, Any] = SharedClients(_opened, life_seconds=LIFE_SECONDS)
"""The client of each address. If a client is replaced, the readers of the old client continue to work. The old client
is closed when its last reader is closed."""


@contextmanager
def told(address: Address) -> Iterator[None]:
    """A context manager that turns the errors of pulsar-client into PulsarError."""
    import pulsar

    try:
        yield
    except pulsar.PulsarException as error:
        raise _error(address, error) from error


def _error(address: Address, error: Exception) -> PulsarError:
    name = type(error).__name__
    if name in ("TopicNotFound", "NotFound"):
        return TopicMissingError("the topic or its namespace does not exist")
    if name in ("AuthenticationError", "AuthorizationError", "ErrorGettingAuthenticationData"):
        return PulsarError(f"authentication failed ({name})")
    if name in _BUSY:
        return BusyError(f"the topic cannot be used now ({name})")
    if name in ("Timeout", "ConnectError", "LookupError"):
        CLIENTS.renew(address)
        return PulsarError(_unreachable(dict(address)["service.url"]) or "the broker does not answer in time")
    return PulsarError(f"{name}: {' '.join(str(error).removeprefix('Pulsar error:').split())}")


def repeated(act: Callable[P, R]) -> Callable[P, R]:
    """A decorator that repeats the call for _BUSY_SECONDS while the function raises BusyError."""

    @functools.wraps(act)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return act(*args, **kwargs)
            except BusyError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    return run


def hosts_of(url: str) -> list[tuple[str, int]]:
    """The hosts and ports of a service URL. Raises ValueError."""
    scheme, _, rest = url.strip().partition("://")
    found = []
    for part in rest.rstrip("/").split(","):
        parts = urlsplit(f"{scheme}://{part.strip()}")
        if not parts.hostname or parts.path.strip("/") or parts.username is not None:
            raise ValueError("no host")
        found.append((parts.hostname, parts.port or (6651 if scheme == "pulsar+ssl" else 6650)))
    return found


def _unreachable(url: str) -> str | None:
    """The reason why no connection to any of the hosts is possible; None if a connection to a host is possible."""
    reason = None
    for host, port in hosts_of(url):
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()
        except ConnectionRefusedError:
            reason = f"cannot connect to {host}:{port} (connection refused)"
        except OSError as error:
            reason = f"cannot connect to {host}:{port} ({error.strerror or 'no answer'})"
        else:
            return None
    return reason


@repeated
def partitions_of(address: Address, topic: str) -> tuple[str, ...]:
    """Returns the full names of a topic's partitions. For a topic without partitions, returns the full name of the
    topic. Raises PulsarError."""
    with told(address):
        return tuple(sorted(str(name) for name in CLIENTS.of(address).get_topic_partitions(topic)))


@contextmanager
def reader_at(address: Address, topic: str, start: Any, *, queue: int, is_compacted: bool = False) -> Iterator[Any]:
    """A context manager that opens and closes a reader of a topic. The reader begins at the message id ``start``, and
    fetches up to ``queue`` messages ahead. If ``is_compacted`` is true, it omits messages that newer messages with the
    same key supersede. Raises PulsarError."""
    reader = open_reader(address, topic, start, queue=queue, is_compacted=is_compacted)
    try:
        yield reader
    finally:
        close(reader)


def open_reader(address: Address, topic: str, start: Any, *, queue: int, is_compacted: bool = False) -> Any:
    """Opens a reader with the parameters of :func:`reader_at`. The caller must close the reader with :func:`close`."""
    with told(address):
        return CLIENTS.of(address).create_reader(
            topic,
            start,
            receiver_queue_size=queue,
            reader_name="rw_sql",
            is_read_compacted=is_compacted,
            start_message_id_inclusive=True,
        )


def close(opened: Any) -> None:
    """Closes a reader or a consumer. Raises no error."""
    with suppress(Exception):
        opened.close()


def fetched_message(address: Address, reader: Any) -> Any:
    """Returns the next message of a reader; None if the client does not have this message within a millisecond. Raises
    PulsarError."""
    import pulsar

    # Uses no context manager, because this function is called for each message, so the cost of a context manager would
    # matter.
    try:
        return reader._reader.read_next(1)
    except pulsar.Timeout:
        return None
    except pulsar.PulsarException as error:
        raise _error(address, error) from error


def next_message(address: Address, reader: Any, seconds: float) -> Any:
    """The next message of a reader; None if the broker reports that the topic has no further message. This function is
    slower than :func:`fetched_message`.

    Raises NothingError if the broker reports a further message but does not send it in time. In that case, the last
    entries are parts of an incomplete message, or were removed. The time limit is ``seconds``. If the broker took long
    to report, the time limit is MESSAGE_FACTOR times the duration of the report, but at most MESSAGE_SECONDS. Raises
    PulsarError for other errors.
    """
    import pulsar

    with told(address):
        asked_at = time.monotonic()
        if not reader.has_message_available():
            return None
        seconds = max(seconds, min(MESSAGE_FACTOR * (time.monotonic() - asked_at), MESSAGE_SECONDS))
        try:
            return reader._reader.read_next(max(1, int(seconds * 1000)))
        except pulsar.Timeout as error:
            raise NothingError("no message arrived in time") from error
