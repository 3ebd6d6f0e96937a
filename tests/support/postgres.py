"""A PostgreSQL server for tests marked ``postgres``. Import it by ``pytest_plugins``.

If PostgreSQL's programs are not installed, those tests are left out, and the summary names them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresInfo:
    """A running server: its address, and the user who may log in with PASSWORD."""

    port: int
    user: str = "postgres"

    @property
    def url(self) -> str:
        """The server's URL as a value of ``jdbc.url``."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs one statement, and returns its rows; empty if it has no rows."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user=self.user, password=PASSWORD
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; None if they are not installed."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def client_program(folder: Path, name: str) -> Path:
    """The path of a program in the folder of ``initdb``, even if only some of PostgreSQL's programs are linked into the
    search path."""
    found = folder / name
    if found.exists():
        return found
    return next(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(
        config,
        "postgres",
        "PostgreSQL is not installed (apt-get install postgresql)",
        lambda item: item.get_closest_marker("postgres") is not None and programs() is None,
    )


def _as_user() -> tuple[list[str], int | None]:
    """The arguments that start a program as another user than root, because PostgreSQL refuses root; and the id of this
    user."""
    if os.getuid() != 0:
        return [], None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"], user.pw_uid


class PostgresServer:
    """A server of a test: it can be killed and started again, and copied.

    Servers may be started with a single slot, or at another ``wal_level``: ``settings`` are parameters of
    postgresql.conf.
    """

    def __init__(self, home: Path, **settings: str) -> None:
        folder = programs()
        assert folder is not None, "tests that use it are marked postgres"
        self.folder = folder
        self.home = home
        self.data = home / "data"
        self.settings = settings
        self.before, self.user = _as_user()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.info = PostgresInfo(port=free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def create(self) -> None:
        """Makes an empty data folder."""
        secret = self.home / "password"
        secret.write_text(PASSWORD)
        if self.user is not None:
            for path in (self.home, secret):
                os.chown(path, self.user, -1)
        made = [*self.before, str(self.folder / "initdb"), "-D", str(self.data), "-U", "postgres"]
        subprocess.run(
            [*made, "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            cwd=self.home,
        )

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        log = self.home / "log"
        self._log = log.open("ab")
        given = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        program = [*self.before, str(self.folder / "postgres"), "-D", str(self.data), "-p", str(self.info.port)]
        self._process = subprocess.Popen(
            [*program, "-h", "127.0.0.1", "-F", "-k", "", *given],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=self.home,
        )
        _wait_until_it_answers(self.info, self._process, log)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See :meth:`PostgresInfo.run`."""
        return self.info.run(statement)

    def take_copy(self, of: PostgresServer, *, is_standby: bool) -> None:
        """Fills the data folder with a base backup of a running server. This server then is a standby of that server,
        or a server that was restored from the backup."""
        if self.user is not None:
            os.chown(self.home, self.user, -1)
        command = [
            *self.before,
            str(client_program(self.folder, "pg_basebackup")),
            "-D",
            str(self.data),
            "-h",
            "127.0.0.1",
        ]
        command += ["-p", str(of.info.port), "-U", "postgres", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(
            [*command, *(["-R"] if is_standby else [])],
            check=True,
            capture_output=True,
            cwd=self.home,
            env={**os.environ, "PGPASSWORD": PASSWORD},
        )

    def kill(self) -> None:
        """Kills the server's main process, as a crash does. The other processes of the server end when they notice
        this."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        wait_until(lambda: not self._is_in_use(), "the server's processes end")
        self._close()

    def stop(self) -> None:
        """Ends the server, if it runs."""
        if self._process is not None:
            _end(self._process)
            self._close()

    def _close(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """A context manager that suspends all processes of the server: connections stay open, and no request is
        answered."""
        pids = list(self._pids())
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _is_in_use(self) -> bool:
        """True while a process of the server uses the server's shared memory. The server cannot be started again before
        this memory is free."""
        return any(True for _ in self._pids())

    def _pids(self) -> Iterator[int]:
        for entry in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if entry.resolve() == self.data.resolve():
                    yield int(entry.parent.name)
            except OSError:
                continue


@contextmanager
def running_server(**settings: str) -> Iterator[PostgresServer]:
    """A new server on a free port with its data in a temporary folder."""
    with _server(settings) as server:
        server.create()
        server.start()
        yield server


@contextmanager
def running_copy(of: PostgresServer, *, is_standby: bool) -> Iterator[PostgresServer]:
    """A server with the data and settings of another server: a standby of that server, or a restored backup of it."""
    with _server(of.settings) as server:
        server.take_copy(of, is_standby=is_standby)
        server.start()
        yield server


@contextmanager
def _server(settings: Mapping[str, str]) -> Iterator[PostgresServer]:
    home = Path(tempfile.mkdtemp(prefix="rw_sql-postgres-"))
    server = PostgresServer(home, **settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresInfo]:
    """A running server that supports logical replication."""
    with running_server(wal_level="logical", max_wal_senders="40", max_replication_slots="40") as server:
        yield server.info


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server regardless of its connections. SIGTERM would wait for each client to leave, and a JVM may keep a
    connection open for longer. A server that ends slowly is killed, because its data is deleted anyway."""
    server.send_signal(signal.SIGINT)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _wait_until_it_answers(info: PostgresInfo, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
    while True:
        try:
            info.run("SELECT 1")
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            never.wait(0.05)
        else:
            return
