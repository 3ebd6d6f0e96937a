"""Converts a JDBC URL of PostgreSQL to libpq's connection parameters, connects, and can end another thread's wait for
the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from rw_sql.connectors.spec import OptionError
from rw_sql.connectors.support.cut_off import cut_off
from rw_sql.errors import INVALID_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import Connection

QUERY_TIMEOUT = "jdbc.query.timeout"
_PREFIX = "jdbc:"
_PORT = 5432
_PARAMETERS = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "user": "user",
    "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name",
}
"""The parameters that are accepted after ``?`` in the URL. The names that the JDBC driver uses are mapped to the names
that libpq uses."""

_ALIVE = {"keepalives": "1", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
"""With these settings, the client detects the failure of the server's machine after a minute. By default, it detects
the failure after two hours."""

_UNANSWERED_SECONDS, _MOST_UNANSWERED_SECONDS = 60, 900
"""The lowest and the highest limit, in seconds, of the time for which sent packets may stay unconfirmed. Keepalives do
not replace this limit, because the operating system sends no keepalives while packets are unconfirmed. Without the
limit, the operating system would send the packets again for about a quarter of an hour."""

_WITH_USER_TIMEOUT = 120_000
"""The first version of libpq with ``tcp_user_timeout``."""

_CANCEL_SECONDS, _MOST_CANCELS = 2.0, 10
"""The time limit in seconds for the server to accept a cancellation, and the maximum number of cancellations without
effect before the connection is cut."""


def conninfo(options: Mapping[str, str]) -> dict[str, str]:
    """The URL, the user and the password as libpq parameters. Raises INVALID_PROPERTY."""
    url = options["jdbc.url"]
    parts = urlsplit(url.removeprefix(_PREFIX))
    if not url.startswith(_PREFIX) or parts.scheme != "postgresql" or not parts.hostname or len(parts.path) < 2:
        raise OptionError(
            INVALID_PROPERTY,
            'property "jdbc.url" must be like jdbc:postgresql://host:5432/database',
            key="jdbc.url",
            hint="jdbc.url = 'jdbc:postgresql://host:5432/database': JDBC reads and writes PostgreSQL only",
        )
    try:
        port = parts.port
    except ValueError as error:
        raise OptionError(
            INVALID_PROPERTY,
            'property "jdbc.url" has no valid port',
            key="jdbc.url",
            hint="write a port from 1 to 65535 after the host: jdbc:postgresql://host:5432/database",
        ) from error
    # Without a port, libpq would use the variable PGPORT of this process.
    made = {"host": parts.hostname, "port": str(port or _PORT), "dbname": unquote(parts.path[1:])}
    if parts.password is not None or "password" in dict(parse_qsl(parts.query)):
        held = OptionError(
            INVALID_PROPERTY,
            'property "jdbc.url" must not contain a password',
            key="jdbc.url",
            hint="CREATE SECRET s WITH (backend = 'meta') AS '…'; then password = SECRET s",
        )
        held.hides_literals = True
        raise held
    for key, value in parse_qsl(parts.query):
        if key not in _PARAMETERS:
            raise OptionError(
                INVALID_PROPERTY,
                f'property "jdbc.url" has the unknown parameter "{key}"',
                key="jdbc.url",
                hint=f"omit {key}; the parameters are " + ", ".join(_PARAMETERS),
            )
        made[_PARAMETERS[key]] = value
    for key in ("user", "password"):
        if key in options:
            made[key] = options[key]
    return made


def query_seconds(options: Mapping[str, str]) -> int:
    """The timeout of one statement on the target, in seconds."""
    return int(options.get(QUERY_TIMEOUT, "60"))


def limits(options: Mapping[str, str]) -> dict[str, str]:
    """The libpq parameters that end a connection whose server no longer responds.

    While a server waits for a lock, it does not read the data that the client sends. The limit for unconfirmed packets
    is therefore at least ``jdbc.query.timeout``, up to a maximum of 15 minutes.
    """
    import psycopg

    if psycopg.pq.version() < _WITH_USER_TIMEOUT:
        return _ALIVE
    seconds = min(max(_UNANSWERED_SECONDS, query_seconds(options)), _MOST_UNANSWERED_SECONDS)
    return {**_ALIVE, "tcp_user_timeout": str(1000 * seconds)}


def connect(options: Mapping[str, str], timeout: float) -> Connection[Any]:
    """Connects to the server that the options name. On this connection, text is encoded in UTF-8. Raises
    psycopg.Error."""
    import psycopg

    made: dict[str, Any] = {
        "connect_timeout": str(max(2, int(timeout))),
        "application_name": "rw_sql",
        # Otherwise, text from a database without an encoding (SQL_ASCII) would be bytes.
        "client_encoding": "UTF8",
        **limits(options),
    }
    return psycopg.connect(**(made | conninfo(options)))


class WaitEnd:
    """Ends the wait of another thread for a response on a connection. Each call cancels the thread's statement. If the
    server does not respond, or if _MOST_CANCELS calls had no effect, the call closes the connection. Raises no
    error."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._calls = 0

    def __call__(self) -> None:
        import psycopg

        self._calls += 1
        try:
            self._connection.cancel_safe(timeout=_CANCEL_SECONDS)
        except psycopg.Error:
            cut_off(self._connection, psycopg.Error)
        else:
            if self._calls > _MOST_CANCELS:
                cut_off(self._connection, psycopg.Error)
