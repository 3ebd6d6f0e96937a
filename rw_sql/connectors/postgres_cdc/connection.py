"""Connections to the server that a source's options name, for SQL and for replication.

All sessions use the same settings for the text form of values, because a value must have the same text in a snapshot
and in the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.spec import load_spec
from rw_sql.connectors.support.messages import without_password
from rw_sql.connectors.support.table_names import two_parts
from rw_sql.errors import PACKAGE_MISSING, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg
    from psycopg import Connection
else:
    psycopg = deferred("psycopg")

FORMAT = {
    "client_encoding": "UTF8",
    "datestyle": "ISO,\\ YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}
"""The settings that determine the text form of values, in the form of libpq's ``options``."""

SQL_SETTINGS = {"row_security": "off", "statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""The settings of SQL sessions.

With ``row_security = off``, a policy that would hide rows from the snapshot causes an error.
"""

_WITH_IDLE_TIMEOUT, _WITH_TRANSACTION_TIMEOUT = 140_000, 170_000
"""The first versions of PostgreSQL with ``idle_session_timeout`` and ``transaction_timeout``."""

_WITH_USER_TIMEOUT = 120_000
"""The first version of libpq with ``tcp_user_timeout``."""

_SSL_MODES = {"disabled": "disable", "preferred": "prefer", "required": "require"}
_ALIVE = {"keepalives": "1", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
_UNANSWERED = {"tcp_user_timeout": "60000"}
"""A libpq parameter, in milliseconds: the connection ends if sent packets are not confirmed for a minute. Without this
parameter, the operating system would send these packets again for a quarter of an hour. Keepalives do not help, because
none are sent while the confirmation of packets is outstanding."""


def conninfo(options: Mapping[str, str]) -> dict[str, str]:
    """Converts the options to libpq's parameters."""
    mode = load_spec("postgres-cdc").options["ssl.mode"].canonical(options.get("ssl.mode", "preferred"))
    made = {
        "host": options["hostname"],
        "port": options.get("port", "5432").strip(),
        "user": options["username"],
        "password": options.get("password", ""),
        "dbname": options["database.name"],
        "sslmode": _SSL_MODES.get(mode, mode),
        "application_name": "rw_sql",
        **_ALIVE,
    }
    if "ssl.root.cert" in options:
        made["sslrootcert"] = options["ssl.root.cert"]
    if not made["password"]:
        del made["password"]
    return made


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items() if name != "client_encoding")


def connect(options: Mapping[str, str], timeout: float) -> Connection[Any]:
    """Opens a connection for SQL in autocommit mode. Raises CaptureError."""
    made: dict[str, Any] = conninfo(options) | {
        "connect_timeout": str(max(2, int(timeout))),
        "client_encoding": "UTF8",
        "options": _settings(FORMAT | SQL_SETTINGS),
    }
    connection = _connected(made | {"prepare_threshold": None}, options)
    if connection.info.server_version >= _WITH_IDLE_TIMEOUT:
        connection.execute(b"SET idle_session_timeout = 0")
    if connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT:
        connection.execute(b"SET transaction_timeout = 0")
    return connection


def connect_for_replication(options: Mapping[str, str], timeout: float) -> Connection[Any]:
    """Opens a connection for replication commands. Raises CaptureError."""
    made = conninfo(options) | {
        "connect_timeout": str(max(2, int(timeout))),
        "client_encoding": "UTF8",
        "replication": "database",
        "options": _settings(FORMAT),
    }
    connection = _connected(made, options)
    if has_no_encoding(connection):
        connection.pgconn.exec_(NO_ENCODING)
    return connection


def _connected(made: Mapping[str, Any], options: Mapping[str, str]) -> Connection[Any]:
    try:
        connect_to = psycopg.connect
        limits: Mapping[str, Any] = _UNANSWERED if psycopg.pq.version() >= _WITH_USER_TIMEOUT else {}
    except ImportError as error:  # If libpq is missing, psycopg raises an ImportError that names no module.
        raise CaptureError(
            PACKAGE_MISSING,
            "a postgres-cdc source needs the package psycopg, which this installation lacks",
            hint="pip install 'rw-sql[postgres-cdc]'",
        ) from error
    try:
        return connect_to(**limits, **made, autocommit=True)
    except psycopg.Error as error:
        raise unreachable(error, options) from error


NO_ENCODING = b"SET client_encoding = 'SQL_ASCII'"
"""The command that disables the conversion of text, for databases with the encoding SQL_ASCII.

If text were converted, the server would refuse a value that is not UTF-8, and its error would not name the value.
"""


def has_no_encoding(connection: Connection[Any]) -> bool:
    """True if text in the database may be arbitrary bytes."""
    return connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"


_REFUSED = ("28", "3D", "42", "0A", "22", "55")
"""SQLSTATE classes of errors that persist until a user removes their cause: login, database, privileges, unsupported
features, state of the slot."""

_BUSY = ("55006", "55P03")


def is_refusal(state: str) -> bool:
    """True for the SQLSTATE of an error that persists until a user removes its cause."""
    return state.startswith(_REFUSED) and state not in _BUSY


def unreachable(error: Exception, options: Mapping[str, str]) -> CaptureError:
    """Converts an error of the server or the client to a CaptureError. The result does not contain the password."""
    state = getattr(error, "sqlstate", None) or ""
    text = without_password(str(error), options)
    refused = is_refusal(state)
    # libpq reports login errors without a SQLSTATE.
    refused |= not state and any(word in text for word in ("authentication failed", "does not exist", "pg_hba.conf"))
    return CaptureError(
        UPSTREAM_MISSING if refused else UPSTREAM_UNREACHABLE,
        text,
        hint="ALTER SOURCE … CONNECTOR WITH (username = '…', password = SECRET …) if the login is wrong"
        if refused and (state.startswith("28") or "authentication" in text)
        else None,
        is_temporary=not refused,
    )


def quoted(name: str) -> str:
    """A name as a SQL identifier, always quoted."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string as a SQL literal that is valid for any setting of ``standard_conforming_strings``."""
    escaped = text.replace("'", "''")
    return " E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in text else f"'{escaped}'"


def parts_of(table: str) -> tuple[str, str] | None:
    """Splits ``schema.table``, whose parts may be quoted, into schema and name; None if the string does not have this
    form."""
    return two_parts(table, '"')


def lsn_text(position: int) -> str:
    """``position`` in PostgreSQL's notation: ``0/16B3748``."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Parses a position in PostgreSQL's notation."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)
