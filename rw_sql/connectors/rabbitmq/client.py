"""A client for RabbitMQ's stream protocol that uses blocking sockets, and the pool of the client's connections.

A stream is always read from its leader, because only the leader knows the last confirmed offset. All requests about a
stream therefore use a connection to this leader.
"""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from rw_sql.connectors.rabbitmq import frames
from rw_sql.connectors.rabbitmq.frames import RESPONSE, Code, Command, Fields, Reply, Request
from rw_sql.connectors.support.connections.connection_pool import ConnectionPool
from rw_sql.connectors.support.connections.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

PORTS = {"rabbitmq-stream": 5552, "rabbitmq-stream+tls": 5551}
"""The schemes that ``url`` may have, each with its default port."""

TLS = "rabbitmq-stream+tls"
CONNECTION_KEYS = ("url", "vhost", "username", "password", "tls.ca", "tls.client_cert", "tls.client_key")

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 10.0
_MOST_FRAME = 1 << 30
_SEED_TRIES = 4
_MOST_MOVES = 3
_PAUSE_SECONDS = 0.2
_UNAVAILABLE_SECONDS = 5.0
"""How long :func:`at_leader` retries a request while the stream is unavailable, in seconds."""

_OTHER_PROTOCOLS = (b"AMQP", b"HTTP")

Node = tuple[str, int]
"""The host and port of a server, as the servers advertise it."""

Address = tuple[tuple[str, str], ...]
"""The options that determine a connection, as pairs of key and value in the order of ``CONNECTION_KEYS``."""


class RabbitError(Exception):
    """Raised if the servers do not respond, or if they refuse a request. The error's message contains no secret."""


class StreamMissingError(RabbitError):
    """Raised if the virtual host has no such stream."""


class RefusedError(RabbitError):
    """Raised if the user lacks the permission to read a stream."""


class UnavailableError(RabbitError):
    """Raised if the stream is temporarily unavailable, for example because the servers have just started and have
    not elected its leader yet."""


class _ElsewhereError(Exception):
    """Raised if the connected server is not the stream's leader. ``node`` is the leader."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def address_of(options: Mapping[str, str]) -> Address:
    """The subset of a source's options that determines the connection."""
    return tuple((key, options[key]) for key in CONNECTION_KEYS if key in options)


def servers_of(url: str) -> tuple[tuple[str, str, int], ...]:
    """Returns the scheme, host and port of each server in ``url``. Raises ValueError if ``url`` is invalid."""
    found = []
    for part in url.split(","):
        scheme, mark, rest = part.strip().rpartition("://")
        scheme = scheme.lower() if mark else "rabbitmq-stream"
        rest = rest.removesuffix("/")
        host, _, port = rest.rpartition(":") if not rest.endswith("]") and ":" in rest else (rest, "", "")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
        if (
            scheme not in PORTS
            or not host
            or any(char in host for char in "/@[] \t")
            or (":" in host and "[" not in rest)
        ):
            raise ValueError("it is not scheme://host:port")
        number = int(port) if re.fullmatch("[0-9]{1,5}", port) else 0 if port else PORTS[scheme]
        if not 0 < number < 65536:
            raise ValueError("the port is not a number from 1 to 65535")
        found.append((scheme, host, number))
    return tuple(found)


@dataclass(slots=True)
class Delivery:
    """A chunk that the server delivered to a subscription. ``chunk`` contains the bytes of the chunk's header and
    content."""

    subscription: int
    chunk: memoryview


@dataclass(slots=True)
class RabbitClient:
    """One connection. If ``node`` is None, the client connects to the first server of the address that responds.
    Otherwise, the client connects to the server ``node``."""

    address: Address = field(repr=False)  # The address may contain a password.
    node: Node | None = None
    advertised: Node | None = None
    _socket: socket.socket | None = None
    _input: BinaryIO | None = None
    _correlation: int = 0
    _delivered: list[Delivery] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """True if the connection can be used."""
        return self._socket is not None

    def close(self) -> None:
        """Closes the connection. Raises nothing."""
        opened, self._socket = self._socket, None
        if opened is not None:
            # Without this request to close, the server logs a warning. The server's response is not read.
            with suppress(OSError):
                body = b"\x00\x01" + frames.text("OK")
                opened.sendall(frames.frame(Command.CLOSE, body, self._correlation + 1))
        taken, self._input = self._input, None
        for each in (taken, opened):
            if each is not None:
                with suppress(OSError):
                    each.close()

    def connect(self, timeout: float) -> None:
        """Opens the connection if it is closed. ``timeout`` is the maximum time, in seconds, that each later wait for a
        response may take.

        Raises RabbitError.
        """
        if self._socket is None:
            self._open()
        assert self._socket is not None
        self._socket.settimeout(timeout)

    def ask(self, *requests: Request) -> list[Reply]:
        """Sends all requests at once, waits for all responses, and returns the responses in the order of the requests.
        :meth:`deliveries` returns the chunks that arrive during this wait.

        Raises RabbitError.
        """
        first = self._correlation + 1
        self._correlation += len(requests)
        self.send(
            b"".join(
                frames.frame(request.command, request.body, first + number) for number, request in enumerate(requests)
            )
        )
        replies: dict[int, Reply] = {}
        while len(replies) < len(requests):
            command, found = self._receive()
            # Servers of version 3.10 and older do not mark the response to PARTITIONS as a response.
            if command & RESPONSE or command == Command.PARTITIONS:
                number = found.number(4)
                replies[number] = _reply(command, found)
        return [replies[first + number] for number in range(len(requests))]

    def send(self, data: bytes) -> None:
        """Sends frames. Raises RabbitError."""
        try:
            assert self._socket is not None
            self._socket.sendall(data)
        except OSError as error:
            raise RabbitError(f"the connection has ended ({_why(error)})") from error

    def credit(self, subscription: int, chunks: int) -> None:
        """Allows the server to deliver ``chunks`` more chunks. Raises RabbitError."""
        self.send(frames.frame(Command.CREDIT, bytes([subscription]) + chunks.to_bytes(2, "big")))

    def deliveries(self) -> list[Delivery]:
        """Returns the chunks that have arrived and that no earlier call has returned."""
        found, self._delivered = self._delivered, []
        return found

    def next_delivery(self) -> Delivery:
        """Returns the next chunk, and waits for it if necessary. Raises RabbitError if no chunk arrives within the
        timeout."""
        while not self._delivered:
            self._receive()
        return self._delivered.pop(0)

    # The protocol.

    def _receive(self) -> tuple[int, Fields]:
        """Receives frames until a chunk or a response arrives. Stores a chunk for :meth:`deliveries`, and returns
        its command without fields. Returns the command and the fields of a response."""
        while True:
            data = self._take(int.from_bytes(self._head(), "big"))
            command = int.from_bytes(data[:2], "big")
            match command:
                case Command.DELIVER:
                    # In version 2 of the frame, the last offset that the servers have confirmed precedes the chunk.
                    begin = 5 if data[2:4] == b"\x00\x01" else 13
                    self._delivered.append(Delivery(data[4], memoryview(data)[begin:]))
                    return command, Fields(b"")
                case Command.CLOSE:
                    found = Fields(data, 10)
                    raise RabbitError(f"the server closes the connection: {found.text()}")
                case Command.HEARTBEAT | Command.METADATA_UPDATE:
                    # A caller that waits for this stream fails, and looks up the stream's leader again when it retries.
                    if command == Command.METADATA_UPDATE:
                        raise RabbitError(
                            f"stream {Fields(data, 6).text()} has been deleted, or moves to other servers"
                        )
                case _ if command == RESPONSE | Command.CREDIT:
                    raise RabbitError("the server has ended a subscription")
                case _:
                    return command, Fields(data, 4)

    def _head(self) -> bytes:
        head = self._take(4)
        if head in _OTHER_PROTOCOLS:
            raise RabbitError(
                f"this port has the protocol {head.decode()}, not the stream protocol: use the port of the plugin "
                f"rabbitmq_stream, {PORTS['rabbitmq-stream']} by default"
            )
        if int.from_bytes(head, "big") > _MOST_FRAME:
            raise RabbitError("this port does not have RabbitMQ's stream protocol")
        return head

    def _take(self, size: int) -> bytes:
        assert self._input is not None
        try:
            found = self._input.read(size)
        except TimeoutError:
            raise RabbitError("the server does not answer in time") from None
        except OSError as error:
            raise RabbitError(f"the connection has ended ({_why(error)})") from error
        if len(found) < size:
            raise RabbitError("the server has closed the connection")
        return found

    # The connection.

    def _open(self) -> None:
        options = dict(self.address)
        servers = servers_of(options["url"])
        if self.node is None:
            self._open_any(servers)
            return
        scheme = servers[0][0]
        try:
            self._open_one(scheme, *self.node)
        except RabbitError as error:
            # Behind a proxy, the advertised name may be unreachable. But a proxy connects each attempt to another
            # server, and one of these servers is the leader.
            for _ in range(_SEED_TRIES * len(servers)):
                self._open_any(servers)
                if self.advertised == self.node:
                    return
                self.close()
                time.sleep(_PAUSE_SECONDS / 10)
            host, port = self.node
            raise RabbitError(f"{error}; the stream's leader is advertised as {host}:{port}") from error

    def _open_any(self, servers: tuple[tuple[str, str, int], ...]) -> None:
        last: RabbitError | None = None
        for scheme, host, port in servers:
            try:
                self._open_one(scheme, host, port)
            except RabbitError as error:
                last = error
            else:
                return
        raise last or RabbitError("no server is named")

    def _open_one(self, scheme: str, host: str, port: int) -> None:
        options = dict(self.address)
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            context = tls_context(options) if scheme == TLS else None
        except OSError as error:
            raise RabbitError(str(error)) from error
        try:
            raw = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
            self._socket = raw
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if context is not None:
                self._socket = context.wrap_socket(raw, server_hostname=host)
            self._socket.settimeout(_ANSWER_SECONDS)
            self._input = cast("BinaryIO", self._socket.makefile("rb", buffering=1 << 18))
        except (OSError, ValueError) as error:
            self.close()
            raise RabbitError(f"cannot connect to {place} ({_why(error)})") from error
        try:
            self._log_in(options)
        except RabbitError as error:
            self.close()
            raise RabbitError(f"{place}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _log_in(self, options: Mapping[str, str]) -> None:
        from rw_sql.version import __version__

        about = {"connection_name": "rw_sql", "product": "rw_sql", "version": __version__}
        # While a connection is opened, the server expects one request at a time.
        self.ask(Request(Command.PEER_PROPERTIES, frames.mapping(about)))
        self.ask(Request(Command.SASL_HANDSHAKE))
        user, password = options.get("username", "guest"), options.get("password", "guest")
        login = b"\0" + user.encode() + b"\0" + password.encode()
        asked = frames.text("PLAIN") + len(login).to_bytes(4, "big") + login
        (reply,) = self.ask(Request(Command.SASL_AUTHENTICATE, asked))
        match reply.code:
            case Code.OK:
                pass
            case Code.AUTHENTICATION_FAILED:
                raise RabbitError(f'authentication failed for user "{user}"')
            case Code.LOOPBACK_ONLY:
                raise RabbitError(f'user "{user}" may only connect from the server\'s own machine')
            case Code.MECHANISM_UNKNOWN:
                raise RabbitError("the server does not accept logins by name and password (SASL PLAIN)")
            case code:
                raise RabbitError(f"the server refuses the login (code {code})")
        command, tune = self._receive()
        while command & ~RESPONSE != Command.TUNE:
            command, tune = self._receive()
        largest = tune.number(4)
        # Disables heartbeats, so that a connection may be idle in the pool.
        self.send(frames.frame(Command.TUNE, largest.to_bytes(4, "big") + bytes(4)))
        vhost = options.get("vhost", "/")
        (reply,) = self.ask(Request(Command.OPEN, frames.text(vhost)))
        if reply.code == Code.VHOST_REFUSED:
            raise RabbitError(f'virtual host "{vhost}" does not exist, or user "{user}" may not use it')
        if reply.code != Code.OK:
            raise RabbitError(f"the server refuses the connection (code {reply.code})")
        found = reply.fields.mapping()
        port = found.get("advertised_port", "")
        self.advertised = (found.get("advertised_host", ""), int(port) if port.isdecimal() else 0)


def _reply(command: int, found: Fields) -> Reply:
    """Reads the part of a response that follows the correlation id. The response to METADATA has no code."""
    code = 0 if command == RESPONSE | Command.METADATA else found.number(2)
    return Reply(code, found)


def _why(error: Exception) -> str:
    """The reason why a connection failed, in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (str(error) or type(error).__name__).splitlines()[0]


POOL: ConnectionPool[tuple[Address, Node | None], RabbitClient] = ConnectionPool(
    lambda target: RabbitClient(*target),
    failed=RabbitError,
    answered=(StreamMissingError, RefusedError, UnavailableError, _ElsewhereError),
)


def anywhere(address: Address, timeout: float, ask: Callable[[RabbitClient], T]) -> T:
    """Calls ``ask`` with a connection to an arbitrary server of the address. Raises RabbitError."""

    def connected(client: RabbitClient) -> T:
        client.connect(timeout)
        return ask(client)

    return POOL.use((address, None), connected)


def at_leader(address: Address, stream: str, timeout: float, ask: Callable[[RabbitClient], T]) -> T:
    """Calls ``ask`` with a connection to a stream's leader. If the stream is unavailable, retries for at most five
    seconds.

    ``ask`` may therefore be called several times. Raises StreamMissingError or RabbitError.
    """
    node: Node | None = None
    deadline = time.monotonic() + min(timeout, _UNAVAILABLE_SECONDS)

    def connected(client: RabbitClient) -> T:
        client.connect(timeout)
        (reply,) = client.ask(Request(Command.METADATA, frames.texts((stream,))))
        leader = leader_of(stream, reply)
        if leader != client.advertised:
            raise _ElsewhereError(leader)
        return ask(client)

    moves = 0
    while moves < _MOST_MOVES:
        try:
            return POOL.use((address, node), connected)
        except UnavailableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        except _ElsewhereError as error:
            node = error.node
            moves += 1
            if moves > 1:
                time.sleep(_PAUSE_SECONDS)
    raise RabbitError(f"the leader of stream {stream} keeps changing")


def leader_of(stream: str, metadata: Reply) -> Node:
    """The leader that a response to METADATA names for a stream. Raises StreamMissingError or UnavailableError."""
    found = frames.stream_nodes(metadata.fields).get(stream)
    if found is None or found.code == Code.STREAM_MISSING:
        raise StreamMissingError(stream)
    if found.code != Code.OK or found.leader is None:
        raise UnavailableError(f"stream {stream} has no leader now")
    return found.leader


def require_ok(reply: Reply, stream: str) -> None:
    """Checks that a request about a stream has succeeded.

    Raises StreamMissingError, RefusedError, UnavailableError or RabbitError.
    """
    match reply.code:
        case Code.OK:
            return
        case Code.STREAM_MISSING:
            raise StreamMissingError(stream)
        case Code.ACCESS_REFUSED:
            raise RefusedError(f"the user may not read stream {stream}")
        case Code.STREAM_UNAVAILABLE:
            raise UnavailableError(f"stream {stream} is not available now")
        case code:
            raise RabbitError(f"the server refuses a request about stream {stream} (code {code})")
