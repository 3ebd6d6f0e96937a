"""Reads the state of the server and its binary log, and checks whether a position in the log is still valid."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc.connection import code_of, connect, first_of, named_rows, rows_of, unreachable
from rw_sql.connectors.mysql_cdc.positions import FIRST, STEPS, number_of, parts_of, sequence_of, shown
from rw_sql.connectors.slot_details import SlotDetails
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pymysql
    from pymysql.connections import Connection

    from rw_sql.connectors.base import SplitState
else:
    pymysql = deferred("pymysql")

AGAIN = "RESET SOURCE SPLITS SOURCE_NAME ALLOW GAPS WITH (FORGET_OFFSETS = true) reads every table again"


def gone(message: str) -> CaptureError:
    """Returns the error for a table that was replaced by another table of the same name, or for a table whose changes
    are not in the log."""
    return CaptureError(UPSTREAM_MISSING, message, hint=AGAIN)


STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
"""The statements that show the log's end. MySQL supports the first statement from 8.2 on, and does not support the
second statement from 8.4 on."""

_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_uuid', 'server_id', 'log_bin', 'binlog_format', "
    "'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', 'binlog_transaction_compression', "
    "'gtid_domain_id', 'gtid_mode', 'lower_case_table_names', 'expire_logs_days', 'binlog_expire_logs_seconds', "
    "'log_slave_updates', 'log_replica_updates', 'binlog_checksum')"
)
_NO_LOG, _DENIED = (1381, 1766), (1227, 1045)
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file of the binary log that the server still has."""

    name: str
    sequence: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The state of the server at one moment. ``settings`` are the server's global variables; ``logs`` are the files of
    the binary log, empty if the server has no binary log."""

    settings: Mapping[str, str]
    logs: tuple[LogFile, ...]
    end: int
    do_databases: tuple[str, ...] = ()
    ignored_databases: tuple[str, ...] = ()

    @property
    def is_mariadb(self) -> bool:
        """True for MariaDB."""
        return "mariadb" in self.settings.get("version", "").lower()

    @property
    def cluster(self) -> str:
        """The identity of the server's log: MySQL's ``server_uuid``, MariaDB's ``server_id``."""
        uuid = self.settings.get("server_uuid")
        if uuid and not self.is_mariadb:
            return uuid
        return f"server_id {self.settings.get('server_id', '0')}"

    @property
    def has_names(self) -> bool:
        """True if ``binlog_row_metadata`` is FULL, so that the log contains the names of the columns."""
        return self.settings.get("binlog_row_metadata", "").upper() == "FULL"

    @property
    def folds_names(self) -> bool:
        """True if the server ignores the case of the names of databases and tables."""
        return self.settings.get("lower_case_table_names", "0") != "0"

    @property
    def start(self) -> int:
        """The first position of the log that the server still has."""
        return number_of(self.logs[0].sequence, FIRST) if self.logs else self.end

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """The first position and the size in bytes of each file of the log."""
        return tuple((number_of(log.sequence, 0), log.size) for log in self.logs)

    def file_of(self, position: int) -> LogFile | None:
        """The file that contains ``position``; None if the server does not have this file any more."""
        sequence, _, _ = parts_of(position)
        return next((log for log in self.logs if log.sequence == sequence), None)

    @property
    def expiry(self) -> str:
        """The time for which the server keeps its log, in the form that SHOW SOURCE SPLITS shows."""
        seconds = float(self.settings.get("binlog_expire_logs_seconds") or 0)
        seconds = seconds or float(self.settings.get("expire_logs_days") or 0) * _SECONDS_PER_DAY
        return f"expires after {int(seconds)} s" if seconds else "does not expire"


def read_facts(options: Mapping[str, str], timeout: float) -> Facts:
    """Reads the state of the server. Raises CaptureError if the server does not respond, or if the user lacks the
    privilege to read its log."""
    try:
        with connect(options, timeout) as connection:
            return facts_over(connection)
    except pymysql.Error as error:
        raise unreachable(error, options) from error


def facts_over(connection: Connection[Any]) -> Facts:
    """Does the same as :func:`read_facts`, over an open connection. Raises pymysql.Error or CaptureError."""
    settings = settings_of(connection)
    try:
        (status, *_) = first_of(connection, STATUS) or [{}]
        files = named_rows(connection, "SHOW BINARY LOGS") if status else []
    except pymysql.Error as error:
        if code_of(error) in _NO_LOG:
            status, files = {}, []
        elif code_of(error) in _DENIED:
            raise CaptureError(
                UPSTREAM_MISSING,
                "MySQL user doesn't have enough privileges: [REPLICATION CLIENT]",
                hint=f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user_of(connection)}",
            ) from error
        else:
            raise
    logs = tuple(
        LogFile(name=row["log_name"], sequence=sequence_of(row["log_name"]), size=int(row["file_size"]))
        for row in files
    )
    end = number_of(sequence_of(status["file"]), int(status["position"])) if status else 0
    return Facts(
        settings=settings,
        logs=logs,
        end=end,
        do_databases=_listed(status.get("binlog_do_db")),
        ignored_databases=_listed(status.get("binlog_ignore_db")),
    )


def settings_of(connection: Connection[Any]) -> dict[str, str]:
    """The global variables that this connector reads. Raises pymysql.Error."""
    return {row["variable_name"].lower(): row["value"] for row in named_rows(connection, _VARIABLES)}


def user_of(connection: Connection[Any]) -> str:
    """Returns the user's name in the form that GRANT accepts. Raises pymysql.Error."""
    ((user, *_),) = (tuple(row.values()) for row in named_rows(connection, "SELECT CURRENT_USER() AS u"))
    name, _, host = str(user).rpartition("@")
    return f"'{name}'@'{host}'"


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def details(facts: Facts) -> SlotDetails | None:
    """The facts about the log that SHOW SOURCE SPLITS shows; None if the server has no binary log."""
    if not facts.logs:
        return None
    return SlotDetails(
        name=facts.logs[0].name,
        acknowledged=None,
        restart=facts.start,
        end=facts.end,
        status=facts.expiry,
        retained_bytes=sum(log.size for log in facts.logs),
        lag_bytes=None,
        safe_bytes=None,
        active_pid=None,
        cluster=facts.cluster,
        incarnation=None,
        files=facts.files,
        per_byte=STEPS,
    )


def await_prepared(connection: Connection[Any], table: str, timeout: float) -> None:
    """Waits until the XA transactions that are prepared now have ended. Without this wait, the changes of these
    transactions could be lost: a snapshot does not contain the changes, and the reader ignores them in the log, because
    they precede the position from which the reader reads the table's changes. Only MariaDB needs this wait, because
    MySQL's snapshots wait for the locks of such transactions.

    Raises CaptureError if one of these transactions is still prepared after ``timeout`` seconds; also raises
    pymysql.Error.
    """
    deadline = time.monotonic() + timeout
    waiting = prepared = frozenset(map(str, rows_of(connection, "XA RECOVER")))
    while waiting:
        if time.monotonic() > deadline:
            raise CaptureError(
                UPSTREAM_UNREACHABLE,
                f"the snapshot of table {table} waits for {len(waiting)} prepared XA transactions, because their "
                "changes would be missing",
                hint="XA RECOVER on the server lists them; XA COMMIT or XA ROLLBACK ends one",
                is_temporary=True,
            )
        time.sleep(0.05)
        waiting = prepared & frozenset(map(str, rows_of(connection, "XA RECOVER")))


def check_position(facts: Facts, position: SplitState) -> LogFile:
    """The log file that contains ``position``. Raises CaptureError if the server does not have all changes after this
    position."""
    if position.cluster is not None and position.cluster != facts.cluster:
        raise CaptureError(
            UPSTREAM_MISSING,
            other_server(position.cluster, facts.cluster),
            hint=AGAIN,
        )
    if not facts.logs:
        raise CaptureError(
            UPSTREAM_MISSING,
            "MySQL doesn't enable binlog",
            hint="set log_bin = ON in the server's configuration, then restart it",
        )
    if facts.end < position.offset and parts_of(facts.end)[:2] != parts_of(position.offset)[:2]:
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f"the server's log ends at {shown(facts.end)}, before the position {shown(position.offset)}: it was reset, "
            "or the server was restored from a backup",
            hint=AGAIN,
        )
    found = facts.file_of(position.offset)
    if found is None:
        oldest = facts.logs[0].name
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f"the server has purged its log up to {oldest}, and the position is {shown(position.offset)}: the changes "
            f"between the two are missing. The server's log {facts.expiry}",
            hint=f"{AGAIN}; to keep the log for longer: SET GLOBAL {_expiry_setting(facts)}",
        )
    return found


def other_server(before: str, now: str) -> str:
    """The message for a position of another server."""
    return (
        f"the server has {_identity(now)}, but the position belongs to a server with {_identity(before)}, whose log "
        "has other positions"
    )


def _identity(cluster: str) -> str:
    return cluster if cluster.startswith("server_id") else f"server_uuid {cluster}"


def _expiry_setting(facts: Facts) -> str:
    if "binlog_expire_logs_seconds" in facts.settings:
        return "binlog_expire_logs_seconds = 604800"
    return "expire_logs_days = 7"
