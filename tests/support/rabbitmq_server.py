"""RabbitMQ servers with streams for tests marked ``rabbitmq``. Import it by ``pytest_plugins``.

If rabbitmq-server is not installed, those tests are left out, and the summary names them.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.rabbitmq import frames
from rw_sql.connectors.rabbitmq.client import RabbitClient, UnavailableError, require_ok
from rw_sql.connectors.rabbitmq.frames import Command, Request
from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_STOP_SECONDS = 60.0
_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_MOST_IN_FRAME = 500_000


def amqp(content: bytes, *, message_id: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """A message with the sections of AMQP 1.0 that clients write: properties, application properties, content."""
    found = b""
    if message_id is not None:
        fields = _text(message_id)
        found += b"\x00\x53\x73\xd0" + struct.pack(">II", len(fields) + 4, 1) + fields
    if headers:
        items = b"".join(_text(key) + _text(value) for key, value in headers.items())
        found += b"\x00\x53\x74\xd1" + struct.pack(">II", len(items) + 4, 2 * len(headers)) + items
    small = bytes([0xA0, len(content)]) if len(content) < 256 else b"\xb0" + struct.pack(">I", len(content))
    return found + b"\x00\x53\x75" + small + content


def _text(value: str) -> bytes:
    data = value.encode()
    return b"\xb1" + struct.pack(">I", len(data)) + data


@dataclass(slots=True)
class RabbitServer:
    """A running server. ``do``, and each method that calls ``do``, opens its own connection."""

    port: int
    home: Path
    username: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The server's address as a value of ``url``."""
        return f"rabbitmq-stream://127.0.0.1:{self.port}"

    def client(self) -> RabbitClient:
        """Opens a connection, which the caller must close."""
        address = {"url": self.url, "username": self.username, "password": self.password, "vhost": self.vhost}
        made = RabbitClient(tuple(address.items()))
        made.connect(60)
        return made

    def do(self, stream: str, *requests: Request) -> None:
        """Sends requests about a stream, each of which must succeed."""
        client = self.client()
        try:
            for request in requests:
                _ask(client, stream, request)
        finally:
            client.close()

    def create(self, stream: str, **arguments: Any) -> None:
        """Creates a stream. In the names of arguments, ``_`` stands for ``-``, as in ``max_length_bytes``."""
        given = {key.replace("_", "-"): str(value) for key, value in arguments.items()}
        self.do(stream, Request(Command.CREATE, frames.text(stream) + frames.mapping(given)))

    def delete(self, stream: str) -> None:
        """Deletes a stream."""
        self.do(stream, Request(Command.DELETE, frames.text(stream)))

    def publish(self, stream: str, contents: Sequence[bytes], **properties: Any) -> None:
        """Publishes messages in order, and waits until the server has confirmed them."""
        self.publish_raw(stream, [amqp(content, **properties) for content in contents])

    def publish_raw(self, stream: str, messages: Sequence[bytes], *, batch: str | None = None) -> None:
        """Publishes messages that are given as bytes. If ``batch`` is given, the messages are one batch, with the
        compression ``none`` or ``gzip``."""
        entries = [struct.pack(">I", len(message)) + message for message in messages]
        if batch is not None:
            plain = b"".join(entries)
            packed, codec = (gzip.compress(plain), 1) if batch == "gzip" else (plain, 0)
            entries = [struct.pack(">BHII", 0x80 | codec << 4, len(messages), len(plain), len(packed)) + packed]
        self.publish_entries(stream, entries)

    def publish_entries(self, stream: str, entries: Sequence[bytes]) -> None:
        """Publishes entries of chunks: messages or batches, each with its size."""
        client = self.client()
        try:
            declared = Request(Command.DECLARE_PUBLISHER, b"\x01" + frames.text("") + frames.text(stream))
            _ask(client, stream, declared)
            at = 0
            while at < len(entries):
                upto, size = at, 0
                while upto < len(entries) and (upto == at or size + len(entries[upto]) < _MOST_IN_FRAME):
                    size += len(entries[upto]) + 8
                    upto += 1
                body = b"\x01" + struct.pack(">I", upto - at)
                body += b"".join(struct.pack(">Q", number) + entries[number] for number in range(at, upto))
                client.send(frames.frame(Command.PUBLISH, body))
                left = upto - at
                while left:
                    command, found = client._receive()
                    assert command == Command.PUBLISH_CONFIRM, command
                    found.number(1)
                    left -= found.number(4)
                at = upto
        finally:
            client.close()

    def store_offset(self, stream: str, name: str, offset: int) -> None:
        """Stores a consumer's offset, and waits until the server has it."""
        client = self.client()
        try:
            named = frames.text(name) + frames.text(stream)
            client.send(frames.frame(Command.STORE_OFFSET, named + struct.pack(">Q", offset)))
            deadline = time.monotonic() + LAST_RESORT_SECONDS
            while True:
                (reply,) = client.ask(Request(Command.QUERY_OFFSET, named))
                if reply.code == frames.Code.OK and reply.fields.number(8) == offset:
                    return
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            client.close()

    def stop(self) -> None:
        """Stops the server as an operator does, or kills it if that takes too long. Its folder remains.

        A server that is killed just after a stream was created may elect no leader when it is started again.
        """
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the server at once. Its folder remains."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def start(self) -> None:
        """Starts the server, which reads the existing data in its folder."""
        log = self.home / "out"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(_SCRIPT)],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env=self.environment,
                start_new_session=True,
            )
        server_log = self.home / "log" / "server.log"
        before = server_log.stat().st_size if server_log.exists() else 0
        never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
        while not server_log.exists() or b"Server startup complete" not in server_log.read_bytes()[before:]:
            assert self.process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            never.wait(0.05)


def _ask(client: RabbitClient, stream: str, request: Request) -> None:
    """Sends a request about a stream until it succeeds: a server that has just started may not serve it yet."""
    never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
    while True:
        try:
            require_ok(client.ask(request)[0], stream)
        except UnavailableError:
            assert time.monotonic() < deadline, stream
            never.wait(0.05)
        else:
            return


def program() -> str | None:
    """The server's program; None if the program is not installed."""
    return str(_SCRIPT) if _SCRIPT.exists() and shutil.which("epmd") is not None else None


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(
        config,
        "rabbitmq",
        "rabbitmq-server is not installed (apt-get install rabbitmq-server)",
        lambda item: item.get_closest_marker("rabbitmq") is not None and program() is None,
    )


@contextmanager
def rabbit_running(*, config: str = "", definitions: Mapping[str, Any] | None = None) -> Iterator[RabbitServer]:
    """A server on free ports, with its streams in a temporary folder.

    ``config`` is text that is added to the server's configuration; in this text, ``{tls_port}`` stands for another free
    port. ``definitions`` are the objects that the server has when it starts, in the form of RabbitMQ's definitions.
    """
    assert program() is not None, "tests that use it are marked rabbitmq"
    home = Path(tempfile.mkdtemp(prefix="rw_sql-rabbitmq-"))
    with ExitStack() as held:
        free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        port, tls_port, dist, epmd_port = (each.getsockname()[1] for each in free)
    lines = [
        "listeners.tcp = none",
        f"stream.listeners.tcp.1 = 127.0.0.1:{port}",
        "stream.advertised_host = 127.0.0.1",
        f"stream.advertised_port = {port}",
        "default_user = guest",
        "default_pass = guest",
        "disk_free_limit.absolute = 50MB",
        "log.console = false",
        config.replace("{tls_port}", str(tls_port)),
    ]
    if definitions is not None:
        (home / "definitions.json").write_text(json.dumps(definitions), encoding="utf-8")
        lines.append(f"load_definitions = {home}/definitions.json")
    (home / "rabbit.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (home / "plugins").write_text("[rabbitmq_stream].\n", encoding="utf-8")
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"rw_sql_{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(home / "rabbit"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_LOGS": str(home / "log" / "server.log"),
        "RABBITMQ_DIST_PORT": str(dist),
        # One scheduler that does not spin, because other tests run beside it.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
    }
    # Erlang's name server. Without it, the RabbitMQ server would start a name server that continues to run after the
    # RabbitMQ server has ended.
    names = subprocess.Popen(
        ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    made = RabbitServer(port=port, tls_port=tls_port, home=home, environment=environment)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        names.kill()
        names.wait()
        shutil.rmtree(home, ignore_errors=True)


def super_stream(name: str, partitions: Sequence[str]) -> dict[str, Any]:
    """The definitions of a super stream: an exchange, and a binding for each partition in order."""
    return {
        "queues": [
            {
                "name": partition,
                "vhost": "/",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "stream"},
            }
            for partition in partitions
        ],
        "exchanges": [
            {
                "name": name,
                "vhost": "/",
                "type": "direct",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {"x-super-stream": True},
            }
        ],
        "bindings": [
            {
                "source": name,
                "vhost": "/",
                "destination": partition,
                "destination_type": "queue",
                "routing_key": str(number),
                "arguments": {"x-stream-partition-order": number},
            }
            for number, partition in enumerate(partitions)
        ],
    }


SUPER, PARTITIONS = "invoices", ("invoices-0", "invoices-1")
"""The super stream of :func:`rabbit_server`, and its partitions."""


GUEST: dict[str, Any] = {
    "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
}
"""The definitions of the user guest, which a server with other definitions lacks."""


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[RabbitServer]:
    """A server whose user is guest."""
    with rabbit_running(definitions={**GUEST, **super_stream(SUPER, PARTITIONS)}) as running:
        yield running
