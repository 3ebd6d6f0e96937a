"""NATS servers with JetStream for tests marked ``nats``. Import it by ``pytest_plugins``.

If nats-server is not installed, those tests are left out, and the summary names them.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsServer:
    """A running server, and the login of its first user if it has one."""

    port: int
    login: tuple[tuple[str, Any], ...] = ()

    @property
    def url(self) -> str:
        """The server's address as a value of ``server_url``."""
        return f"nats://127.0.0.1:{self.port}"

    def do(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """Calls ``act`` with the JetStream context of a new connection."""

        async def run() -> T:
            import nats

            connection = await nats.connect(self.url, **dict(self.login))
            try:
                return await act(connection.jetstream(timeout=60))
            finally:
                await connection.close()

        return asyncio.run(run())

    def create(self, stream: str, *subjects: str, **config: Any) -> None:
        """Creates a stream."""
        self.do(lambda js: js.add_stream(name=stream, subjects=list(subjects) or [stream], **config))

    def delete(self, stream: str) -> None:
        """Deletes a stream."""
        self.do(lambda js: js.delete_stream(stream))

    def publish(self, subject: str, messages: Sequence[bytes], headers: dict[str, str] | None = None) -> list[int]:
        """Publishes messages in order; returns their sequence numbers."""

        async def act(js: Any) -> list[int]:
            answers = [await js.publish_async(subject, message, headers=headers) for message in messages]
            return [int((await answer).seq) for answer in answers]

        return self.do(act)

    def delete_messages(self, stream: str, *sequences: int) -> None:
        """Deletes single messages."""

        async def act(js: Any) -> None:
            for sequence in sequences:
                await js.delete_msg(stream, sequence)

        self.do(act)

    def purge(self, stream: str, **what: Any) -> None:
        """Removes messages: the messages before ``seq``, the messages of a ``subject``, or all messages."""
        self.do(lambda js: js.purge_stream(stream, **what))


def program() -> str | None:
    """The server's program; None if the program is not installed."""
    return shutil.which("nats-server") or next(
        (path for path in ("/usr/sbin/nats-server",) if Path(path).exists()), None
    )


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(
        config,
        "nats",
        "nats-server is not installed (apt-get install nats-server)",
        lambda item: item.get_closest_marker("nats") is not None and program() is None,
    )


@contextmanager
def nats_running(*, config: str = "", login: tuple[tuple[str, Any], ...] = (), port: int = 0) -> Iterator[NatsServer]:
    """A server on a free port, with its streams in a temporary folder. ``config`` is text that is added to its
    configuration."""
    found = program()
    assert found is not None, "tests that use it are marked nats"
    home = Path(tempfile.mkdtemp(prefix="rw_sql-nats-"))
    try:
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        file = home / "server.conf"
        file.write_text(f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{home}" }}\n{config}\n')
        with (home / "log").open("wb") as log:
            server = subprocess.Popen([found, "-c", str(file)], stdout=log, stderr=subprocess.STDOUT, cwd=home)
            try:
                _wait_until_it_answers(port, server, home / "log")
                yield NatsServer(port=port, login=login)
            finally:
                # The server's streams are deleted afterwards, so no orderly shutdown is needed.
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@dataclass(slots=True)
class NatsCluster:
    """Three servers that replicate their streams, by their names."""

    home: Path
    servers: dict[str, NatsServer]
    routes: dict[str, int]
    running: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str) -> None:
        """Starts a server, which reads the existing data in its folder."""
        home = self.home / name
        home.mkdir(exist_ok=True)
        others = ", ".join(f"nats://127.0.0.1:{port}" for other, port in self.routes.items() if other != name)
        (home / "server.conf").write_text(
            f"server_name: {name}\nhost: 127.0.0.1\nport: {self.servers[name].port}\n"
            f'jetstream {{ store_dir: "{home}" }}\n'
            f"cluster {{ name: c, host: 127.0.0.1, port: {self.routes[name]}, routes: [{others}] }}\n"
        )
        found = program()
        assert found is not None, "tests that use it are marked nats"
        with (home / "log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [found, "-c", str(home / "server.conf")], stdout=log, stderr=subprocess.STDOUT, cwd=home
            )

    def kill(self, name: str) -> None:
        """Kills a server. Its folder remains."""
        server = self.running.pop(name)
        server.kill()
        server.wait()

    def create(self, stream: str) -> tuple[str, tuple[str, ...]]:
        """Creates a stream on all servers, once the servers have found each other. Returns the stream's leader and the
        other servers."""
        some = next(iter(self.servers.values()))
        never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
        while True:
            try:
                some.create(stream, num_replicas=len(self.servers))
                leader = some.do(lambda js: js.stream_info(stream)).cluster.leader
                return leader, tuple(name for name in self.servers if name != leader)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                never.wait(0.2)


@contextmanager
def nats_cluster_running() -> Iterator[NatsCluster]:
    """A cluster of three servers on free ports."""
    home = Path(tempfile.mkdtemp(prefix="rw_sql-nats-"))
    with ExitStack() as held:
        free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]
        ports = [each.getsockname()[1] for each in free]
    names = ("a", "b", "c")
    made = NatsCluster(
        home=home,
        servers={name: NatsServer(port=port) for name, port in zip(names, ports[:3], strict=True)},
        routes=dict(zip(names, ports[3:], strict=True)),
        running={},
    )
    try:
        for name in names:
            made.start(name)
        yield made
    finally:
        for name in tuple(made.running):
            made.kill(name)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A running server without authentication."""
    with nats_running() as running:
        yield running


def _wait_until_it_answers(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
    while b"Server is ready" not in log.read_bytes():
        assert server.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        never.wait(0.02)
