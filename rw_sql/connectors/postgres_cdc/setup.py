"""Creates the slot and the publication if they do not exist. If this module has created a slot or publication, drops it
as soon as the source no longer needs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import CaptureError, Prepared
from rw_sql.connectors.postgres_cdc.connection import connect, literal, lsn_number, quoted, unreachable
from rw_sql.connectors.postgres_cdc.server import check_slot, may_create_publication, read_facts
from rw_sql.connectors.postgres_cdc.tables import (
    adding_hint,
    adding_lock,
    adding_statement,
    find_table,
    missing_table,
)
from rw_sql.errors import UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg
    from psycopg import Connection
else:
    psycopg = deferred("psycopg")

_WITH_ROOT = 130_000
"""The first version with ``publish_via_partition_root``."""

_LOCK_SECONDS = 5
"""The longest wait, in seconds, for the transactions that write to a table that is to be published. During this wait,
new writers of the table wait too."""

_UNUSED_SECONDS = 5.0
"""The longest wait, in seconds, until the reader of a slot that is to be dropped has ended."""


def owns_publication(options: Mapping[str, str], timeout: float) -> bool | None:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.owns_publication`."""
    try:
        with connect(options, timeout) as connection:
            row = connection.execute(
                "SELECT pg_catalog.obj_description(oid, 'pg_publication') FROM pg_catalog.pg_publication "
                "WHERE pubname = %s",
                [options["publication.name"]],
            ).fetchone()
    except psycopg.Error as error:
        raise unreachable(error, options) from error
    if row is None:
        return None if may_create_publication(options) else False
    return bool(row[0] == _mark(options))


def _mark(options: Mapping[str, str]) -> str:
    """The comment that marks a publication as created by the source of this slot. No other source can have the same
    slot."""
    return f"created by rw_sql for the replication slot {options['slot.name']}"


def prepare(
    options: Mapping[str, str], tables: Sequence[str], timeout: float, *, awaits_publication: bool = False
) -> Prepared:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.prepare`."""
    try:
        with connect(options, timeout) as connection:
            made_publication = _make_publication(connection, options)
            added = tuple(table for table in tables if _publish(connection, options, table))
            facts = read_facts(options, timeout)
            made_slot = facts.slot is None
            if made_slot:
                start = _make_slot(connection, options["slot.name"])
            else:
                start = check_slot(facts, options).acknowledged or 0
                if made_publication or awaits_publication:
                    _wait_for_others(connection, options["publication.name"], timeout, is_new=made_publication)
            end = read_facts(options, timeout).end
    except psycopg.Error as error:
        raise unreachable(error, options) from error
    return Prepared(
        state=SplitState(
            split=options["database.name"], offset=start, cluster=facts.cluster, incarnation=facts.incarnation
        ),
        made_slot=made_slot,
        made_publication=made_publication,
        end=end,
        added_tables=added,
    )


def _make_publication(connection: Connection[Any], options: Mapping[str, str]) -> bool:
    name = options["publication.name"]
    if _creator(connection, name) is not None:
        return False
    if not may_create_publication(options):
        raise CaptureError(
            UPSTREAM_MISSING,
            f'publication "{name}" does not exist and auto create is disabled',
            hint=f"CREATE PUBLICATION {quoted(name)} FOR TABLE …, or publication.create.enable = 'true'",
        )
    root = " WITH (publish_via_partition_root = true)" if connection.info.server_version >= _WITH_ROOT else ""
    with connection.transaction():
        connection.execute(f"CREATE PUBLICATION {quoted(name)}{root}".encode())
        connection.execute(f"COMMENT ON PUBLICATION {quoted(name)} IS {literal(_mark(options))}".encode())
    return True


def _creator(connection: Connection[Any], publication: str) -> int | None:
    """The id of the transaction that created the publication or last altered its options; None if the publication does
    not exist."""
    query = "SELECT xmin::text::bigint FROM pg_catalog.pg_publication WHERE pubname = %s"
    row = connection.execute(query, [publication]).fetchone()
    return None if row is None else int(row[0])


def _wait_for_others(connection: Connection[Any], publication: str, timeout: float, *, is_new: bool) -> None:
    """Waits for the end of all transactions that began before the publication was created. ``is_new`` is true if this
    call has created the publication.

    The server decodes a change with the publication as it was when the change was made. If a change is older than the
    publication, the server would find no publication for the change and would end the stream. (The creation of a slot
    waits for these transactions too. The wait of this function therefore matters only if the slot already exists.)
    """
    deadline = time.monotonic() + timeout
    (last,) = connection.execute(b"SELECT txid_snapshot_xmax(txid_current_snapshot())").fetchone() or (0,)
    creator = _creator(connection, publication)
    if not is_new and creator is not None:
        last -= (last - creator) % (1 << 32) - 1  # the catalog has only the lower half of the id
    while True:
        row = connection.execute(b"SELECT txid_snapshot_xmin(txid_current_snapshot())").fetchone()
        if row is not None and row[0] >= last:
            return
        if time.monotonic() > deadline:
            raise CaptureError(
                UPSTREAM_UNREACHABLE,
                "transactions that began before the publication was created are still running",
                hint="end them; to find them: SELECT pid, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL",
                is_temporary=True,
            )
        time.sleep(0.05)


def _publish(connection: Connection[Any], options: Mapping[str, str], table: str) -> bool:
    """Adds a table to the publication. Returns False if the publication already contains the table."""
    name = options["publication.name"]
    found = find_table(connection, table, name)
    if found is None:
        raise missing_table(connection, table)
    if found.is_published:
        return False
    hint = adding_hint(connection, found, name)
    if not may_create_publication(options):
        raise CaptureError(UPSTREAM_MISSING, f'publication "{name}" does not cover table {table}', hint=hint)
    lock = adding_lock(found, connection.info.server_version)
    try:
        with connection.transaction():
            if lock is not None:
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
                connection.execute(lock.encode())
            connection.execute(adding_statement(found, name).encode())
    except psycopg.errors.LockNotAvailable as error:
        raise CaptureError(
            UPSTREAM_UNREACHABLE,
            f"table {table} cannot be added to publication {name} yet: transactions that write to the table have not "
            f"ended within {_LOCK_SECONDS} s, and this version of the server would leave out their changes",
            hint="try again after they have ended; to find them: SELECT a.pid, a.xact_start, a.query FROM pg_locks l "
            f"JOIN pg_stat_activity a USING (pid) WHERE l.relation = {literal(found.statement_name)}::regclass",
            is_temporary=True,
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the user must own table {table} and publication {name} to add the table to the publication",
            hint=f"as a user who owns both, run: {hint}",
        ) from error
    except psycopg.errors.DuplicateObject:
        return False
    return True


def _make_slot(connection: Connection[Any], name: str) -> int:
    """Creates the slot and returns the slot's first position. During the creation, the server waits until running
    transactions have ended."""
    try:
        row = connection.execute(
            "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')", [name]
        ).fetchone()
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise CaptureError(
            UPSTREAM_MISSING,
            "all replication slots are in use",
            hint="free one with SELECT pg_drop_replication_slot('…'), or ALTER SYSTEM SET max_replication_slots = …, "
            "and restart the server",
        ) from error
    return lsn_number(str(row[0])) if row else 0


def slot_removal(slot: str) -> str:
    """The statement that drops a slot and that a user must run on the server."""
    return f"SELECT pg_drop_replication_slot('{slot}')"


def release(options: Mapping[str, str], *, slot: bool, publication: bool, timeout: float) -> tuple[str, ...]:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.release`."""
    name, published = options["slot.name"], options["publication.name"]
    statements = []
    if slot:
        statements.append(
            (
                slot_removal(name),
                f"SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots "
                f"WHERE slot_name = '{name}'",
            )
        )
    if publication:
        statements.append((f"DROP PUBLICATION {quoted(published)}", f"DROP PUBLICATION IF EXISTS {quoted(published)}"))
    notices: list[str] = []
    try:
        with connect(options, timeout) as connection:
            if slot:
                _wait_until_unused(connection, name, min(timeout, _UNUSED_SECONDS))
            for shown, statement in statements:
                try:
                    connection.execute(statement.encode())
                except psycopg.Error as error:
                    if unreachable(error, options).is_temporary:
                        raise
                    notices.append(f"{' '.join(str(error).split())}; on the server: {shown}")
    except psycopg.Error as error:
        raise unreachable(error, options) from error
    except CaptureError as error:
        if error.is_temporary:
            raise
        return tuple(f"{error.message}; on the server: {shown}" for shown, _ in statements)
    return tuple(notices)


def _wait_until_unused(connection: Connection[Any], slot: str, seconds: float) -> None:
    """Waits until no reader uses the slot. The wait is necessary because the server notices the end of a client with a
    delay."""
    deadline = time.monotonic() + seconds
    query = "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND active"
    while (row := connection.execute(query, [slot]).fetchone()) is not None:
        if time.monotonic() > deadline:
            raise CaptureError(
                UPSTREAM_UNREACHABLE,
                f'replication slot "{slot}" is in use by the server process {row[0]}',
                is_temporary=True,
            )
        time.sleep(0.05)
