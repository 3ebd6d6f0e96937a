"""Finds the unmet requirements of a source and its tables on the server, each with the statement that solves the
problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, Lack, unread_column
from rw_sql.connectors.mysql_cdc.connection import (
    code_of,
    connect,
    databases_of,
    named_rows,
    quoted,
    rows_of,
    unreachable,
)
from rw_sql.connectors.mysql_cdc.server import facts_over, user_of
from rw_sql.connectors.mysql_cdc.tables import (
    cascade_error,
    cascades_of,
    find_table,
    missing_table,
    other_database,
    shared_lock,
    versioning_error,
)
from rw_sql.errors import near_names
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pymysql
    from pymysql.connections import Connection

    from rw_sql.connectors.mysql_cdc.server import Facts
    from rw_sql.connectors.mysql_cdc.tables import CatalogTable
else:
    pymysql = deferred("pymysql")

_WANTED = {
    "log_bin": ("ON", "MySQL doesn't enable binlog", "set log_bin = ON in the server's configuration, then restart it"),
    "binlog_format": (
        "ROW",
        "MySQL binlog_format should be 'ROW', not '{}'",
        "SET GLOBAL binlog_format = 'ROW', and end the sessions that began before",
    ),
    "binlog_row_image": (
        "FULL",
        "MySQL binlog_row_image should be 'FULL', not '{}'",
        "SET GLOBAL binlog_row_image = 'FULL', and end the sessions that began before",
    ),
    "binlog_row_metadata": (
        "FULL",
        "MySQL binlog_row_metadata should be 'FULL', not '{}': the log does not name the columns",
        "SET GLOBAL binlog_row_metadata = 'FULL'",
    ),
    "binlog_row_value_options": (
        "",
        "MySQL binlog_row_value_options should be empty, not '{}': the log has only parts of JSON values",
        "SET GLOBAL binlog_row_value_options = ''",
    ),
    "binlog_transaction_compression": (
        "OFF",
        "MySQL binlog_transaction_compression should be 'OFF'",
        "SET GLOBAL binlog_transaction_compression = OFF",
    ),
}
_DENIED = (1142, 1143, 1044)
_ENGINES = ("INNODB", "ROCKSDB")


def find_lacks(
    options: Mapping[str, str], tables: Mapping[str, Mapping[str, str] | None], timeout: float
) -> tuple[Lack, ...]:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.find_lacks`."""
    try:
        with connect(options, timeout) as connection:
            try:
                facts = facts_over(connection)
            except CaptureError as error:
                return (Lack(check="role", message=error.message, hint=error.hint or ""),)
            lacks = [*_server(connection, facts), *_databases(connection, facts, options)]
            for table, columns in tables.items():
                lacks += _table(connection, options, table, columns)
    except pymysql.Error as error:
        raise unreachable(error, options) from error
    return tuple(lacks)


def _server(connection: Connection[Any], facts: Facts) -> Iterator[Lack]:
    for name, (wanted, message, hint) in _WANTED.items():
        value = facts.settings.get(name)
        if value is not None and value.upper() != wanted:
            yield Lack(check="server", message=message.format(value), hint=hint)
            if name == "log_bin":
                return
    has_copies = facts.settings.get("log_replica_updates", facts.settings.get("log_slave_updates", "ON"))
    if has_copies.upper() == "OFF" and _is_replica(connection):
        yield Lack(
            check="server",
            message="the server is a replica and does not log the changes that it copies (log_slave_updates)",
            hint="set log_slave_updates = ON in its configuration and restart it, or set hostname to the primary's",
        )
    grants = " ".join(str(value) for row in named_rows(connection, "SHOW GRANTS") for value in row.values()).upper()
    may_replicate = any(
        word in grants for word in ("REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES ON *.*")
    )
    # SHOW GRANTS does not list the privileges of the user's roles.
    has_roles = any(" ON " not in str(value) for row in named_rows(connection, "SHOW GRANTS") for value in row.values())
    if not may_replicate and not has_roles:
        yield Lack(
            check="role",
            message="MySQL user doesn't have enough privileges: [REPLICATION SLAVE]",
            hint=f"GRANT REPLICATION SLAVE ON *.* TO {user_of(connection)}",
        )


def _is_replica(connection: Connection[Any]) -> bool:
    for query in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
        try:
            return bool(named_rows(connection, query))
        except pymysql.Error:  # The server does not know the statement, or the user may not run it.
            continue
    return False


def _databases(connection: Connection[Any], facts: Facts, options: Mapping[str, str]) -> Iterator[Lack]:
    known = {str(row[0]) for row in rows_of(connection, "SHOW DATABASES")}
    for name in databases_of(options):
        if name not in known:
            near = near_names(name, known)
            yield Lack(
                check="server",
                message=f"MySQL database '{name}' doesn't exist",
                hint=f"did you mean '{near[0]}'?"
                if near
                else "if the database exists, the user lacks the privilege to see it: "
                f"GRANT SELECT ON {quoted(name)}.* TO {user_of(connection)}",
            )
        elif (facts.do_databases and name not in facts.do_databases) or name in facts.ignored_databases:
            yield Lack(
                check="server",
                message=f"the server does not log database '{name}' (binlog_do_db, binlog_ignore_db)",
                hint="change the setting in its configuration, then restart it",
            )


def _table(
    connection: Connection[Any], options: Mapping[str, str], table: str, columns: Mapping[str, str] | None
) -> Iterator[Lack]:
    try:
        other = other_database(options, table)
        if other is not None:
            raise other
        found = find_table(connection, table)
        if found is None:
            raise missing_table(connection, options, table)
    except CaptureError as error:
        yield Lack(check="table", message=error.message, hint=error.hint or "")
        return
    if found.is_view:
        yield Lack(
            check="table",
            message=f"{table} is a view: its changes are not in the server's log",
            hint="name the tables that the view reads",
        )
        return
    if (found.engine or "").upper() not in _ENGINES:
        yield Lack(
            check="table",
            message=f"table {table} has the engine {found.engine}, which has no transactions",
            hint=f"ALTER TABLE {found.quoted} ENGINE = InnoDB",
        )
    if not found.key:
        yield Lack(
            check="table",
            message=f"MySQL table doesn't define the primary key: the rows of {table} cannot be identified",
            hint=f"ALTER TABLE {found.quoted} ADD PRIMARY KEY (…)",
        )
    if found.is_versioned:
        message, hint = versioning_error(found)
        yield Lack(check="table", message=message, hint=hint)
    try:
        rows_of(connection, f"SELECT * FROM {found.quoted} LIMIT 0")
    except pymysql.Error as error:
        if code_of(error) not in _DENIED:
            raise
        yield Lack(
            check="role",
            message=f"MySQL user doesn't have enough privileges: [SELECT] on table '{table}'",
            hint=f"GRANT SELECT ON {found.quoted} TO {user_of(connection)}",
        )
    else:
        cascades = cascades_of(connection, found)
        if cascades:
            message, hint = cascade_error(found, cascades)
            yield Lack(check="table", message=message, hint=hint)
        yield from _lock(connection, table, found)
    yield from _columns(table, found, columns)


def _lock(connection: Connection[Any], table: str, found: CatalogTable) -> Iterator[Lack]:
    """Yields a Lack if a snapshot needs the privilege to lock rows against writers and the user does not have this
    privilege."""
    clause = shared_lock(str(rows_of(connection, "SELECT VERSION()")[0][0]))
    if not clause:
        return
    try:
        rows_of(connection, f"SELECT * FROM {found.quoted} LIMIT 0 {clause}")
    except pymysql.Error as error:
        if code_of(error) not in _DENIED:
            raise
        yield Lack(
            check="role",
            message=f"MySQL user doesn't have enough privileges: [LOCK TABLES] on the database of table '{table}', "
            "which a server before 8.0.22 needs for reading rows with shared locks",
            hint=f"GRANT LOCK TABLES ON {quoted(found.database)}.* TO {user_of(connection)}",
        )


def _columns(table: str, found: CatalogTable, columns: Mapping[str, str] | None) -> Iterator[Lack]:
    there = {column.name: column for column in found.columns}
    for name, declared in (columns or {}).items():
        column = there.get(name)
        if column is None or column.is_generated:
            yield unread_column(table, name, declared, there)
        elif not column.type.fits_into(declared):
            canonical = column.type.canonical
            yield Lack(
                check="column",
                message=f"Incompatible data type of column {name}. MySQL type: {column.type_name}, RisingWave type: "
                f"{declared}",
                hint=f"{name} {canonical} or CHARACTER VARYING" if canonical else "omit the column",
            )
