"""A synchronous client of NATS servers, and the pool of its connections.

The library nats-py is asynchronous. One thread of this process therefore runs the event loop of all clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from rw_sql.connectors.support.connections.connection_pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from nats.aio.client import Client

T = TypeVar("T")

LIMITS = "limits"
"""The name of the retention policy that keeps messages after consumers have acknowledged them."""

_CONNECT_SECONDS = 3

Address = tuple[tuple[str, str], ...]
"""The options that determine a connection, sorted."""

_CONNECTION_KEYS = ("server_url", "connect_mode", "username", "password", "jwt", "nkey")


class NatsError(Exception):
    """Raised if the servers do not respond or refuse a request. The error's message contains no secret."""


class StreamMissingError(NatsError):
    """Raised if the requested stream, consumer or message does not exist."""


class SeedRefusedError(NatsError):
    """Raised if the value of the option ``nkey`` is not the seed of a key."""


class FilterRefusedError(NatsError):
    """Raised if the server refuses to create a consumer for a subject, because the stream does not list the subject."""


class _Loop:
    """The event loop of this process, in a separate thread. A forked process starts another loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, act: Coroutine[Any, Any, T], timeout: float) -> T:
        """Runs a coroutine in the loop. Raises NatsError after the timeout."""
        future = asyncio.run_coroutine_threadsafe(act, self._running())
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise NatsError(f"no answer within {timeout:g} seconds") from None
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="rw_sql-nats", daemon=True).start()
                self._loop, self._pid = loop, os.getpid()
            return self._loop


_LOOP = _Loop()


def address_of(options: Mapping[str, str]) -> Address:
    """The options of a source that determine its connection."""
    return tuple((key, options[key]) for key in _CONNECTION_KEYS if key in options)


def servers_of(address: Address) -> tuple[str, ...]:
    """The URLs in ``server_url``, each with a scheme."""
    listed = (part.strip() for part in dict(address).get("server_url", "").split(","))
    return tuple(part if "://" in part else f"nats://{part}" for part in listed if part)


@dataclass(slots=True)
class NatsClient:
    """One connection. One thread at a time uses a connection."""

    address: Address = field(repr=False)  # The address may contain a password.
    _connection: Client | None = None

    def run(self, ask: Callable[[Client], Awaitable[T]], timeout: float) -> T:
        """Calls ``ask`` with the connection in the event loop, and returns the result. Connects first if the connection
        is not open. Raises NatsError."""
        return _LOOP.run(self._ask(ask), timeout)

    def close(self) -> None:
        """Closes the connection. Raises no error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                _LOOP.run(connection.close(), 1.0)

    @property
    def is_open(self) -> bool:
        """True while the connection is neither closed nor broken."""
        return self._connection is not None and self._connection.is_connected

    async def _ask(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        import nats.errors

        if not self.is_open:
            self._connection = await _connected(self.address)
        assert self._connection is not None
        try:
            return await ask(self._connection)
        except nats.errors.NoRespondersError as error:
            raise NatsError("JetStream is not enabled for this account, or its servers have no leader") from error
        except (nats.errors.TimeoutError, TimeoutError) as error:
            raise NatsError("the server does not answer in time") from error
        except nats.errors.Error as error:
            raise NatsError(str(error)) from error


async def _connected(address: Address) -> Client:
    """Connects to the first server that accepts the connection."""
    import nats.errors

    login = _login(dict(address))
    reason = "no server is named"
    for server in servers_of(address):
        refused: list[Exception] = []

        async def note(error: Exception, refused: list[Exception] = refused) -> None:
            refused.append(error)

        host = server.rpartition("@")[2].partition("://")[2] or server.partition("://")[2]
        try:
            made = _client_class()()
            await made.connect(
                servers=[server],
                # nats-py need not reconnect: the pool replaces a client that fails, and the read of a range starts
                # again.
                allow_reconnect=False,
                # By default, nats-py would retry a single server forever. With the value 1, nats-py tries twice.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=_CONNECT_SECONDS,
                error_cb=note,
                name="rw_sql",
                **login,
            )
            return made
        except (OSError, nats.errors.Error, ValueError) as error:
            told = [str(each) for each in (*refused, error)]
            if denied := next((text for text in told if "uthorization" in text or "uthentication" in text), None):
                reason = f"{host}: authentication failed ({_plain(denied)})"
            else:
                reason = f"cannot connect to {host} ({_why((*refused, error)[0])})"
    raise NatsError(reason)


_MESSAGE = rb"\A%sMSG[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]+(([^ \t\r\n]+)[ \t]+)?%s(\d+)[ \t]*\r\n"
"""The regular expression of the protocol line before a message: subject, subscription, reply subject, size of the
headers, total size. Each of its two variants, without and with headers, has the same groups as the expression of
nats-py that it replaces."""


@cache
def _client_class() -> type[Client]:
    """A subclass of nats-py's client that accepts subjects and headers of any bytes.

    Servers forward subjects and headers without checking them. If nats-py's own client cannot decode a subject or a
    header, it stops reading, and all later requests over the connection remain without a response. The subclass also
    accepts whitespace in subjects, except for spaces, tabs and ends of lines, which separate words in the protocol.
    """
    from nats.aio.client import Client
    from nats.protocol import parser

    # nats-py's expressions are global names of its module. Other clients in this process use these expressions too. The
    # expressions are therefore replaced only in a copy of the parser's function.
    words = {
        "MSG_RE": re.compile(_MESSAGE % (b"", b"")),
        "HMSG_RE": re.compile(_MESSAGE % (b"H", rb"(\d+)[ \t]+")),
    }

    class AnyBytesParser(parser.Parser):
        parse: Any = FunctionType(
            parser.Parser.parse.__code__, {**vars(parser), **words}, "parse", parser.Parser.parse.__defaults__
        )

    class AnyBytesClient(Client):
        def __init__(self) -> None:
            super().__init__()
            self._ps = AnyBytesParser(self)

        def _build_message(
            self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
        ) -> Any:
            return super()._build_message(sid, bytes(subject).decode(errors="replace").encode(), reply, data, headers)

        async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
            try:
                return await super()._process_headers(headers)
            except UnicodeDecodeError:
                return None

    return AnyBytesClient


def _why(error: Exception) -> str:
    """The reason why a connection failed, without the name of the client library."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return _plain(str(error) or type(error).__name__)


def _plain(text: str) -> str:
    """The first line of an error's text, without the client's name and quotes."""
    return text.splitlines()[0].removeprefix("nats: ").strip("'")


def _login(options: Mapping[str, str]) -> dict[str, Any]:
    """The arguments for nats-py that follow from ``connect_mode``. Raises SeedRefusedError."""
    match (options.get("connect_mode") or "plain").strip().lower():
        case "user_and_password":
            return {"user": options["username"], "password": options["password"]}
        case "credential":
            jwt, seed = options["jwt"].strip(), options["nkey"].strip()

            _key_pair(seed)

            def sign(nonce: str) -> bytes:
                import base64

                return base64.b64encode(_key_pair(seed).sign(nonce.encode()))

            return {"user_jwt_cb": lambda: bytearray(jwt.encode()), "signature_cb": sign}
        case _:
            return {}


def _key_pair(seed: str) -> Any:
    """The key pair of a seed. Raises SeedRefusedError."""
    import nkeys

    try:
        return nkeys.from_seed(bytearray(seed.encode()))
    except (nkeys.NkeysError, ValueError, TypeError, IndexError) as error:
        # The text of the error could contain a part of the seed.
        raise SeedRefusedError('property "nkey" is not the seed of a key') from error


POOL: ConnectionPool[Address, NatsClient] = ConnectionPool(
    lambda address: NatsClient(address), failed=NatsError, answered=(StreamMissingError,)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """The state of a stream at the time of the request.

    The stream's messages have sequence numbers in ``[first, end)``. ``deleted`` is the number of sequence numbers in
    this range whose messages no longer exist.

    ``created`` is the time of the stream's creation, in the server's notation. ``most_per_subject`` is the maximum
    number of messages kept per subject; 0 means no limit. ``is_copy`` is True if the stream copies messages from other
    streams. Such a stream may contain messages with subjects that the stream does not list. ``retention`` is ``limits``
    unless the stream removes messages after consumers have acknowledged them.
    """

    name: str
    created: str
    first: int
    end: int
    messages: int
    bytes: int
    subjects: tuple[str, ...]
    most_per_subject: int
    is_copy: bool
    retention: str

    @property
    def deleted(self) -> int:
        """The number of sequence numbers in ``[first, end)`` without a message."""
        return max(0, self.end - self.first - self.messages)


async def api(nc: Client, subject: str, request: Mapping[str, Any] | None, timeout: float) -> dict[str, Any]:
    """Sends a request to JetStream and returns the response.

    Raises StreamMissingError, FilterRefusedError, NatsError, and the errors of nats-py.
    """
    data = b"" if request is None else json.dumps(request).encode()
    found: dict[str, Any] = json.loads((await nc.request(f"$JS.API.{subject}", data, timeout=timeout)).data)
    if (error := found.get("error")) is not None:
        told = str(error.get("description") or error.get("code"))
        if error.get("code") == _NOT_FOUND:
            raise StreamMissingError(told)
        if error.get("err_code") in _FILTER_REFUSED:
            raise FilterRefusedError(told)
        raise NatsError(f"the server refuses the request: {told}")
    return found


async def info_of(nc: Client, stream: str, timeout: float) -> StreamInfo:
    """The configuration and state of a stream. Raises the errors of :func:`api`."""
    found = await api(nc, f"STREAM.INFO.{stream}", None, timeout)
    config, state = found["config"], found["state"]
    end = int(state["last_seq"]) + 1
    return StreamInfo(
        name=str(config["name"]),
        created=str(found["created"]),
        # The server reports 0 as the first sequence number of an empty new stream; the first message gets number 1.
        first=min(max(1, int(state["first_seq"])), end),
        end=end,
        messages=int(state["messages"]),
        bytes=int(state["bytes"]),
        subjects=tuple(config.get("subjects") or ()),
        most_per_subject=max(0, int(config.get("max_msgs_per_subject") or 0)),
        retention=str(config.get("retention") or LIMITS),
        is_copy=bool(config.get("mirror") or config.get("sources")),
    )


async def stream_names(nc: Client, timeout: float) -> tuple[str, ...]:
    """The names of the account's streams, sorted. Raises the errors of :func:`api`."""
    found: list[str] = []
    while True:
        page = await api(nc, "STREAM.NAMES", {"offset": len(found)}, timeout)
        names = page.get("streams") or []
        found += names
        if not names or len(found) >= int(page.get("total", 0)):
            return tuple(sorted(found))


_NOT_FOUND = 404
_FILTER_REFUSED = (10093,)
"""JetStream's error codes for a subject filter that the subjects of the stream do not cover."""
