"""Connections to the server that a source's options name.

Every session returns values in the same form: in UTC, in utf8mb4, and without an SQL mode that changes the values that
a SELECT returns.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.spec import load_spec
from rw_sql.connectors.support.messages import without_password
from rw_sql.connectors.support.table_names import two_parts
from rw_sql.errors import PACKAGE_MISSING, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pymysql
    from pymysql.connections import Connection
else:
    pymysql = deferred("pymysql")

SETTINGS = "SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 600, wait_timeout = 31536000"

_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""Socket options of a connection. Each of these options is set if the operating system supports the option. Keepalives
prevent a firewall from dropping a rarely used connection. A connection whose packets are not confirmed ends after a
minute, which is shorter than the longest wait for rows."""

_SYNTAX = 1064
_REFUSED = frozenset({1044, 1045, 1049, 1054, 1142, 1143, 1146, 1227, 1251, 1370, 1698, 3118, 3159, 1064})
"""Errors that persist until someone acts: login, database, privileges, tables, a removed log."""


def databases_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The databases that ``database.name`` lists, separated by commas."""
    return tuple(name.strip() for name in options["database.name"].split(",") if name.strip())


def _context(options: Mapping[str, str], mode: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl.root.cert"))
    context.check_hostname = mode == "verify-full"
    if not mode.startswith("verify-"):
        context.verify_mode = ssl.CERT_NONE
    return context


def connect(
    options: Mapping[str, str], timeout: float, *, read_timeout: float | None = None, settings: str = SETTINGS
) -> Connection[Any]:
    """Opens a connection on which each statement is a separate transaction. Raises CaptureError.

    ``timeout`` is the time limit in seconds for connecting. ``read_timeout`` is the time limit in seconds for each
    later response; by default, it is equal to ``timeout``. Without a limit, a server that accepts connections but does
    not respond would block the caller for ever.
    """
    least = max(2.0, timeout)
    try:
        connect_to = pymysql.connect
    except ImportError as error:
        raise CaptureError(
            PACKAGE_MISSING,
            "a mysql-cdc source needs the package PyMySQL, which this installation lacks",
            hint="pip install 'rw-sql[mysql-cdc]'",
        ) from error
    mode = load_spec("mysql-cdc").options["ssl.mode"].canonical(options.get("ssl.mode", "preferred"))
    made: dict[str, Any] = {
        "host": options["hostname"],
        "port": int(options.get("port", "3306")),
        "user": options["username"],
        # PyMySQL would encode a str as Latin-1, but the server uses UTF-8.
        "password": options.get("password", "").encode(),
        "charset": "utf8mb4",
        "use_unicode": False,
        "autocommit": True,
        "connect_timeout": int(least),
        "read_timeout": least,
        "write_timeout": least,
        "init_command": settings,
        "program_name": "rw_sql",
    }
    try:
        if mode == "disabled":
            connection = connect_to(**made, ssl_disabled=True)
        else:
            try:
                connection = connect_to(**made, ssl=_context(options, mode))
            except pymysql.OperationalError as error:
                # A server that supports only old versions of TLS, which this machine refuses, still accepts connections
                # without TLS.
                if mode != "preferred" or "SSL" not in str(error):
                    raise
                connection = connect_to(**made, ssl_disabled=True)
    except (pymysql.Error, OSError) as error:
        raise unreachable(error, options) from error
    if mode not in ("disabled", "preferred") and not getattr(connection, "_secure", False):
        connection.close()
        raise CaptureError(
            UPSTREAM_MISSING,
            f"ssl.mode is '{mode}', but the server encrypts no connection",
            hint="set ssl.mode = 'preferred', or use a server with TLS",
        )
    _keep_alive(connection)
    # PyMySQL reads this number before each wait.
    connection._read_timeout = least if read_timeout is None else read_timeout
    return connection


def _keep_alive(connection: Connection[Any]) -> None:
    sock: socket.socket | None = getattr(connection, "_sock", None)
    for name, value in _ALIVE.items():
        option = getattr(socket, name, None)
        if sock is not None and option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def rows_of(connection: Connection[Any], query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement. Text values are of the type str. Raises pymysql.Error."""
    with connection.cursor() as cursor:
        cursor.execute(query, tuple(values) or None)
        return [tuple(map(_decoded, row)) for row in cursor.fetchall()]


def named_rows(connection: Connection[Any], query: str) -> list[dict[str, Any]]:
    """The rows of a SHOW statement, as dicts whose keys are the columns' names in lower case. (The order of the columns
    depends on the server's version.)"""
    with connection.cursor() as cursor:
        cursor.execute(query)
        names = [column[0].lower() for column in cursor.description or ()]
        return [dict(zip(names, map(_decoded, row), strict=True)) for row in cursor.fetchall()]


def first_of(connection: Connection[Any], queries: Sequence[str]) -> list[dict[str, Any]]:
    """The result of :func:`named_rows` for the first statement whose syntax the server accepts."""
    for query in queries[:-1]:
        try:
            return named_rows(connection, query)
        except pymysql.Error as error:
            if code_of(error) != _SYNTAX:
                raise
    return named_rows(connection, queries[-1])


def _decoded(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def code_of(error: Exception) -> int:
    """The number that the server or the client gave to an error; 0 if the error has no number."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def unreachable(error: Exception, options: Mapping[str, str]) -> CaptureError:
    """Converts an error of the server or of the client to a CaptureError. The result does not contain the password."""
    code = code_of(error)
    text = without_password(str(error.args[1]) if len(error.args) > 1 else str(error), options)
    if "cryptography" in text and "package" in text:
        return CaptureError(PACKAGE_MISSING, text, hint="pip install 'rw-sql[mysql-cdc]'")
    refused = code in _REFUSED
    is_login = code in (1044, 1045, 1698, 1251)
    return CaptureError(
        UPSTREAM_MISSING if refused else UPSTREAM_UNREACHABLE,
        text,
        hint="ALTER SOURCE … CONNECTOR WITH (username = '…', password = SECRET …) if the login is wrong"
        if is_login
        else None,
        is_temporary=not refused,
    )


def quoted(name: str) -> str:
    """A name as it is written in SQL, always in backticks."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string as a SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def parts_of(table: str) -> tuple[str, str] | None:
    """Returns the database and the name of a table ``db.table``. The two parts may be in backticks or double quotes.
    Returns None if the string is not such a name."""
    return two_parts(table, '`"')
