"""Finds the unmet requirements of a source and its tables on the server, each with the statement that solves the
problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, Lack, unread_column
from rw_sql.connectors.postgres_cdc.connection import connect, literal, quoted, unreachable
from rw_sql.connectors.postgres_cdc.server import check_slot, is_lost, may_create_publication, read_facts
from rw_sql.connectors.postgres_cdc.tables import (
    PARTITIONED,
    PLAIN,
    adding_hint,
    columns_of,
    find_table,
    missing_table,
)
from rw_sql.connectors.postgres_cdc.types import resolve_types
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg
    from psycopg import Connection

    from rw_sql.connectors.postgres_cdc.tables import CatalogTable
else:
    psycopg = deferred("psycopg")

_LEAST_VERSION, _WITH_ROOT, _WITH_FILTERS, _WITH_TRUNCATE = 100_000, 130_000, 150_000, 110_000

_SERVER = """
SELECT current_setting('wal_level'), pg_catalog.pg_is_in_recovery(), current_setting('max_replication_slots')::int,
    (SELECT count(*) FROM pg_catalog.pg_replication_slots),
    r.rolsuper OR r.rolreplication, r.rolname::text,
    EXISTS (SELECT 1 FROM pg_catalog.pg_roles g WHERE g.rolname IN ('rds_superuser', 'rds_replication')
        AND pg_catalog.pg_has_role(current_user, g.oid, 'MEMBER')),
    pg_catalog.has_database_privilege(current_database(), 'CREATE'), current_database()::text,
    EXISTS (SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = %s)
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""
_PUBLICATION = """
SELECT to_json(p) FROM pg_catalog.pg_publication p WHERE p.pubname = %s
"""
_PUBLISHED = """
SELECT to_json(t) FROM pg_catalog.pg_publication_tables t
WHERE t.pubname = %s AND t.schemaname = %s AND t.tablename = %s
"""
_RELATIVES = """
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = %(publication)s AND c.oid <> %(table)s::oid AND c.oid IN (
    SELECT relid FROM pg_catalog.pg_partition_tree(%(table)s::oid)
    UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(%(table)s::oid))
ORDER BY 1, 2
"""
"""The partitions and the ancestors of a table that a publication contains. The functions need PostgreSQL 12; a
publication can have ``publish_via_partition_root`` from version 13 on."""

_ODD_PARTITIONS = """
WITH RECURSIVE part (id) AS (SELECT %s::oid
    UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id)
SELECT c.oid::regclass::text FROM part JOIN pg_catalog.pg_class c ON c.oid = part.id
WHERE c.relkind = 'r' AND c.relreplident = ANY (%s::"char"[]) ORDER BY 1
"""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def find_lacks(
    options: Mapping[str, str], tables: Mapping[str, Mapping[str, str] | None], timeout: float
) -> tuple[Lack, ...]:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.find_lacks`."""
    try:
        with connect(options, timeout) as connection:
            lacks = list(_server(connection, options))
            if not lacks:
                lacks += _slot(options, timeout, is_new=not tables)
            publication = _publication_of(connection, options)
            lacks += _publication(connection, options, publication)
            for table, columns in tables.items():
                lacks += _table(connection, options, publication, table, columns)
    except psycopg.Error as error:
        raise unreachable(error, options) from error
    return tuple(lacks)


def _server(connection: Connection[Any], options: Mapping[str, str]) -> Iterator[Lack]:
    version = connection.info.server_version
    if version < _LEAST_VERSION:
        yield Lack(
            check="server",
            message=f"Postgres {version // 10_000}.{version // 100 % 100} has no logical replication",
            hint="use a server of version 10 or later",
        )
        return
    row = connection.execute(_SERVER.encode(), [options.get("slot.name", "")]).fetchone()
    assert row is not None
    level, is_standby, most, used, may_replicate, user, is_rds, may_create, database, has_slot = row
    if is_standby:
        yield Lack(
            check="server",
            message="the server is a standby, which cannot make a slot or a publication",
            hint="set hostname to the primary's",
        )
    if level != "logical":
        yield Lack(
            check="server",
            message=f"Postgres wal_level should be 'logical', not '{level}'",
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server",
        )
    if not may_replicate and not is_rds:
        yield Lack(
            check="role",
            message="Postgres user must be superuser or replication role to start walsender",
            hint=f"ALTER ROLE {quoted(user)} REPLICATION",
        )
    if not has_slot and used >= most and not is_standby:
        yield Lack(
            check="slot",
            message=f"all {most} replication slots are in use",
            hint="free one with SELECT pg_drop_replication_slot('…'), or ALTER SYSTEM SET max_replication_slots = "
            f"{most + 5}, then restart the server",
            is_for_slot=True,
        )
    if not may_create and may_create_publication(options) and _publication_of(connection, options) is None:
        yield Lack(
            check="publication",
            message=f"Postgres user must have create privilege on database '{database}'",
            hint=f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(user)}",
        )


def _slot(options: Mapping[str, str], timeout: float, *, is_new: bool) -> Iterator[Lack]:
    """The unmet requirements on the slot. ``is_new`` is true if the source does not exist yet. A hint for a new source
    must not advise reading the source's tables again."""
    try:
        facts = read_facts(options, timeout)
    except CaptureError as error:
        if error.is_temporary:
            raise
        yield Lack(
            check="role",
            message=f"no connection for replication: {error.message}",
            hint="add a line to pg_hba.conf that lets the user connect to the database, then SELECT pg_reload_conf()",
        )
        return
    if facts.slot is None:
        return
    try:
        check_slot(facts, options)
    except CaptureError as error:
        drop = f"SELECT pg_drop_replication_slot({literal(facts.slot.name)})"
        is_to_be_made = is_new and is_lost(facts)
        hint = f"give another slot.name, or drop the slot: {drop}" if is_to_be_made else error.hint or ""
        yield Lack(check="slot", message=error.message, hint=hint)


def _publication_of(connection: Connection[Any], options: Mapping[str, str]) -> Mapping[str, Any] | None:
    row = connection.execute(_PUBLICATION.encode(), [options.get("publication.name", "")]).fetchone()
    return None if row is None else row[0]


def _publication(
    connection: Connection[Any], options: Mapping[str, str], found: Mapping[str, Any] | None
) -> Iterator[Lack]:
    name = options.get("publication.name", "")
    if found is None:
        if not may_create_publication(options):
            yield Lack(
                check="publication",
                message=f"Publication '{name}' doesn't exist and auto create is disabled",
                hint=f"CREATE PUBLICATION {quoted(name)} FOR TABLE …",
            )
        return
    wanted = ["insert", "update", "delete"]
    wanted += ["truncate"] if connection.info.server_version >= _WITH_TRUNCATE else []
    left_out = [word for word in wanted if not found.get(f"pub{word}", True)]
    if left_out:
        yield Lack(
            check="publication",
            message=f"publication '{name}' does not publish {', '.join(left_out)}",
            hint=f"ALTER PUBLICATION {quoted(name)} SET (publish = '{', '.join(wanted)}')",
        )


def _table(
    connection: Connection[Any],
    options: Mapping[str, str],
    publication: Mapping[str, Any] | None,
    table: str,
    columns: Mapping[str, str] | None,
) -> Iterator[Lack]:
    name = options.get("publication.name", "")
    try:
        found = find_table(connection, table, name)
        if found is None:
            raise missing_table(connection, table)
    except CaptureError as error:
        yield Lack(check="table", message=error.message, hint=error.hint or "")
        return
    if found.kind not in (PLAIN, PARTITIONED):
        yield Lack(
            check="table",
            message=f"{table} is {_KINDS.get(found.kind, 'no table')}: its changes are not in the server's log",
            hint="name the tables that the view reads",
        )
        return
    yield from _kind_and_rights(connection, table, found)
    yield from _identity(connection, table, found)
    yield from _membership(connection, options, publication, table, found)
    yield from _columns(connection, table, found, columns)


def _kind_and_rights(connection: Connection[Any], table: str, found: CatalogTable) -> Iterator[Lack]:
    if found.persistence != "p":
        word = "UNLOGGED" if found.persistence == "u" else "TEMPORARY"
        yield Lack(
            check="table",
            message=f"table {table} is {word}: its changes are not in the server's log",
            hint=f"ALTER TABLE {found.statement_name} SET LOGGED",
        )
    if not found.is_readable:
        user = connection.info.user
        yield Lack(
            check="role",
            message=f"Postgres user must have select privilege on table '{table}'",
            hint=f"GRANT USAGE ON SCHEMA {quoted(found.schema)} TO {quoted(user)}; "
            f"GRANT SELECT ON TABLE {found.statement_name} TO {quoted(user)}",
        )


def _identity(connection: Connection[Any], table: str, found: CatalogTable) -> Iterator[Lack]:
    if not found.key:
        yield Lack(
            check="table",
            message=f"table {table} has no primary key, so its rows cannot be identified",
            hint=f"ALTER TABLE {found.statement_name} ADD PRIMARY KEY (…)",
        )
        return
    if found.identity == "d" and found.is_key_deferrable:
        yield Lack(
            check="table",
            message=f"the primary key of table {table} is DEFERRABLE, so it is not the table's replica identity, and "
            "PostgreSQL refuses to update and to delete rows of the table while a publication contains it",
            hint=f"ALTER TABLE {found.statement_name} REPLICA IDENTITY FULL",
        )
    identity = "FULL" if found.is_key_deferrable else "DEFAULT"
    if found.identity == "n" or (found.identity == "i" and not set(found.key) <= set(found.identity_columns)):
        yield Lack(
            check="table",
            message=f"the replica identity of table {table} lacks its primary key ({', '.join(found.key)})",
            hint=f"ALTER TABLE {found.statement_name} REPLICA IDENTITY {identity}",
        )
    if found.kind == PARTITIONED:
        odd = ["n", "i", "d"] if found.is_key_deferrable else ["n", "i"]
        for (partition,) in connection.execute(_ODD_PARTITIONS.encode(), [found.oid, odd]).fetchall():
            yield Lack(
                check="table",
                message=f"the replica identity of partition {partition} of table {table} may lack the primary key",
                hint=f"ALTER TABLE {partition} REPLICA IDENTITY {identity}",
            )


def _membership(
    connection: Connection[Any],
    options: Mapping[str, str],
    publication: Mapping[str, Any] | None,
    table: str,
    found: CatalogTable,
) -> Iterator[Lack]:
    name = options.get("publication.name", "")
    has_root = bool(publication and publication.get("pubviaroot"))
    if found.kind == PARTITIONED and publication is not None and not has_root:
        yield Lack(
            check="publication",
            message=f"Table '{table}' has partitions, which requires publication '{name}' to be created with "
            "`publish_via_partition_root = true`.",
            hint=f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"
            if connection.info.server_version >= _WITH_ROOT
            else "name its partitions instead",
        )
        return
    if not found.is_published:
        relative = _published_relative(connection, name, found) if has_root else None
        if relative is not None:
            yield _covered(name, table, found, relative)
        else:
            yield from _addition(connection, options, publication, table, found)
        return
    if connection.info.server_version < _WITH_FILTERS:
        return
    row = connection.execute(_PUBLISHED.encode(), [name, found.schema, found.name]).fetchone()
    entry: Mapping[str, Any] = row[0] if row else {}
    if entry.get("rowfilter"):
        yield Lack(
            check="publication",
            message=f"publication '{name}' omits rows of table {table}: WHERE {entry['rowfilter']}",
            hint=f"ALTER PUBLICATION {quoted(name)} SET TABLE {found.statement_name}, …",
        )
    covered = entry.get("attnames")
    needed = [column.name for column in columns_of(connection, found.oid) if not column.is_generated]
    if covered is not None and set(needed) - set(covered):
        yield Lack(
            check="publication",
            message=f"The publication '{name}' does not cover all columns of the table '{table}'",
            hint=f"ALTER PUBLICATION {quoted(name)} SET TABLE {found.statement_name}, …",
        )


def _published_relative(connection: Connection[Any], publication: str, found: CatalogTable) -> tuple[str, str] | None:
    """Returns the schema and the name of a partition or ancestor of the table, if the publication contains one;
    otherwise None. The publication publishes via the partition root. Therefore, it publishes each change to a partition
    as a change to only one table: the topmost ancestor that the publication contains."""
    given = {"publication": publication, "table": found.oid}
    row = connection.execute(_RELATIVES.encode(), given).fetchone()
    return None if row is None else (row[0], row[1])


def _covered(name: str, table: str, found: CatalogTable, relative: tuple[str, str]) -> Lack:
    other = ".".join(relative)
    quoted_other = ".".join(map(quoted, relative))
    return Lack(
        check="publication",
        message=f"The ancestor or descendant partition '{other}' of the table partition '{table}' is already covered "
        f"in the publication '{name}'. Please use a new publication for '{table}'",
        hint=f"name {other} in the TABLE clause, or create another source with its own publication"
        if found.is_partition
        else f"drop the tables of rw_sql that read {other}, then ALTER PUBLICATION {quoted(name)} DROP TABLE "
        f"{quoted_other}; or create another source with its own publication",
    )


def _addition(
    connection: Connection[Any],
    options: Mapping[str, str],
    publication: Mapping[str, Any] | None,
    table: str,
    found: CatalogTable,
) -> Iterator[Lack]:
    """The unmet requirements for adding the table to the publication."""
    name = options.get("publication.name", "")
    hint = adding_hint(connection, found, name)
    if not may_create_publication(options):
        if publication is not None:
            yield Lack(check="publication", message=f"publication '{name}' does not cover table {table}", hint=hint)
        return
    if not found.is_owned:
        yield Lack(
            check="publication",
            message=f"Postgres user must be the owner of table '{table}' to create/alter publication",
            hint=f"run as its owner: {hint}",
        )
    if publication is not None and not _is_owned(connection, name):
        yield Lack(
            check="publication",
            message=f"Postgres user must be the owner of publication '{name}' to add table '{table}'",
            hint=f"run as a user who owns both: {hint}",
        )


def _is_owned(connection: Connection[Any], publication: str) -> bool:
    """True if the user owns the publication, or is a member of the role that owns it."""
    query = "SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = %s"
    row = connection.execute(query, [publication]).fetchone()
    return row is None or bool(row[0])


def _columns(
    connection: Connection[Any], table: str, found: CatalogTable, columns: Mapping[str, str] | None
) -> Iterator[Lack]:
    if columns is None:
        return
    there = {column.name: column for column in columns_of(connection, found.oid)}
    kinds = resolve_types(connection, (column.type for column in there.values()))
    for name, declared in columns.items():
        column = there.get(name)
        if column is None or column.is_generated:
            yield unread_column(table, name, declared, there)
        elif not kinds[column.type].fits_into(declared):
            canonical = kinds[column.type].canonical(column.modifier)
            yield Lack(
                check="column",
                message=f"Incompatible data type of column {name}: table {table} has {column.type_name}, which cannot "
                f"be read as {declared}",
                hint=f"{name} {canonical}" + ("" if canonical == "CHARACTER VARYING" else " or CHARACTER VARYING"),
            )
