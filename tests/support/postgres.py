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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "correct horse battery staple"
_LEFT_OUT: pytest.StashKey[list[str]] = pytest.StashKey()


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
        """One statement and its rows, if it has any."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user=self.user, password=PASSWORD
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; None where they are not installed."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of PostgreSQL if it is not installed, and only those."""
    if programs() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("postgres")]
    if left_out:
        config.stash[_LEFT_OUT] = [item.nodeid for item in left_out]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker passes its list to the process that writes the summary."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["postgres_left_out"] = session.config.stash.get(_LEFT_OUT, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The tests that a worker left out; all workers leave out the same."""
    left_out = getattr(node, "workeroutput", {}).get("postgres_left_out", [])
    if left_out:
        node.config.stash[_LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the names of the tests that were left out."""
    left_out = config.stash.get(_LEFT_OUT, [])
    if left_out:
        terminalreporter.section("left out: PostgreSQL is not installed (apt-get install postgresql)")
        for name in left_out:
            terminalreporter.write_line(name)


def _as_user() -> tuple[list[str], int | None]:
    """The arguments that start a program as a user that PostgreSQL accepts, because it refuses root; and that user's
    id."""
    if os.getuid() != 0:
        return [], None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"], user.pw_uid


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresInfo]:
    """A server on a free port with its data in a temporary folder."""
    folder = programs()
    assert folder is not None, "tests that use it are marked postgres"
    before, user = _as_user()
    home = Path(tempfile.mkdtemp(prefix="rw_sql-postgres-"))
    try:
        secret = home / "password"
        secret.write_text(PASSWORD)
        if user is not None:
            for path in (home, secret):
                os.chown(path, user, -1)
        data = home / "data"
        made = [*before, str(folder / "initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256"]
        subprocess.run(
            [*made, f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            cwd=home,
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = (home / "log").open("wb")
        server = subprocess.Popen(
            [*before, str(folder / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-F", "-k", ""],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
        )
        try:
            info = PostgresInfo(port=port)
            _wait_until_it_answers(info, server, home / "log")
            yield info
        finally:
            _end(server)
            log.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server regardless of its connections. SIGTERM would wait for each client to leave, and a JVM may keep a
    connection open for longer. Its data is thrown away, so a server that ends slowly is killed."""
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
