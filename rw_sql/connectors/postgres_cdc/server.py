"""Reads the state of the server and of the slot, and checks whether reading can continue at a position.

If a reader requests a position before the slot's ``confirmed_flush_lsn``, PostgreSQL silently starts at
``confirmed_flush_lsn``. At its start, each reader therefore compares its position with ``confirmed_flush_lsn``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc.connection import (
    connect_for_replication,
    literal,
    lsn_number,
    lsn_text,
    unreachable,
)
from rw_sql.connectors.slot_details import SlotDetails
from rw_sql.connectors.support.messages import without_password
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg
    from psycopg import Connection

    from rw_sql.connectors.base import SplitState
else:
    psycopg = deferred("psycopg")

AGAIN = "RESET SOURCE SPLITS SOURCE_NAME ALLOW GAPS WITH (FORGET_OFFSETS = true) reads every table again"
"""The hint for missing changes. Code that knows the source replaces SOURCE_NAME with the source's name."""

_FACTS = """
SELECT json_build_object(
    'version', current_setting('server_version_num')::int,
    'standby', pg_catalog.pg_is_in_recovery(),
    'end', CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END,
    'now', (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    'database', current_database(),
    'datoid', (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()),
    'slot', (SELECT to_json(s) FROM pg_catalog.pg_replication_slots s WHERE slot_name = {slot})
)
"""
# Uses pg_current_wal_insert_lsn, because with synchronous_commit = off, pg_current_wal_lsn lags behind commits that are
# already visible.


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The state of the server at one moment.

    ``slot`` is None if the slot does not exist. ``plugin`` and ``slot_database`` are the slot's plugin and database.
    ``has_two_phase`` is true if the slot was created with ``two_phase``: the server then sends a transaction as soon as
    the transaction is prepared.
    """

    version: int
    is_standby: bool
    cluster: str
    end: int
    now_ms: int
    database: str
    incarnation: str
    slot: SlotDetails | None
    plugin: str | None = None
    slot_database: str | None = None
    reason: str | None = None
    has_two_phase: bool = False


def replication_query(connection: Connection[Any], query: str, options: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement that is run over a replication connection. Such a connection supports only the
    simple query protocol.

    All values in the rows are text or None. Raises CaptureError.
    """
    result = connection.pgconn.exec_(query.encode())
    if result.status not in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK):
        state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b""
        text = without_password(result.get_error_message(), options)
        is_temporary = state[:2] in (b"08", b"53", b"57", b"40")
        raise CaptureError(UPSTREAM_UNREACHABLE if is_temporary else UPSTREAM_MISSING, text, is_temporary=is_temporary)
    return [
        tuple(_decoded(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def read_facts(options: Mapping[str, str], timeout: float) -> Facts:
    """Reads the state of the server and of the slot ``slot.name``.

    Raises CaptureError if the server does not respond, or if the user lacks the permission to replicate.
    """
    try:
        with connect_for_replication(options, timeout) as connection:
            return facts_over(connection, options)
    except psycopg.Error as error:
        raise unreachable(error, options) from error


def facts_over(connection: Connection[Any], options: Mapping[str, str]) -> Facts:
    """Does the same as :func:`read_facts`, over an open replication connection."""
    ((system, timeline, *_),) = replication_query(connection, "IDENTIFY_SYSTEM", options)
    query = _FACTS.format(slot=literal(options.get("slot.name", "")))
    ((text,),) = replication_query(connection, query, options)
    told_facts: dict[str, Any] = json.loads(text)
    cluster, end = f"{system}/{timeline}", _record_end(lsn_number(told_facts["end"]))
    incarnation = str(told_facts["datoid"])
    slot = told_facts["slot"]
    return Facts(
        version=told_facts["version"],
        is_standby=told_facts["standby"],
        cluster=cluster,
        end=end,
        now_ms=told_facts["now"],
        database=told_facts["database"],
        incarnation=incarnation,
        slot=None if slot is None else _details(slot, end, cluster, incarnation),
        plugin=None if slot is None else slot.get("plugin"),
        slot_database=None if slot is None else slot.get("database"),
        reason=None if slot is None else slot.get("invalidation_reason"),
        has_two_phase=slot is not None and bool(slot.get("two_phase")),
    )


_PAGE_BYTES = 8192
_PAGE_HEADERS = (24, 40)


def _record_end(insert: int) -> int:
    """The end of the last log record, computed from the insert position.

    If the last record ends at a page boundary, the insert position is after the next page's header, but a reader stays
    at the boundary until the next record.
    """
    return insert - insert % _PAGE_BYTES if insert % _PAGE_BYTES in _PAGE_HEADERS else insert


def _details(slot: Mapping[str, Any], end: int, cluster: str, incarnation: str) -> SlotDetails:
    acknowledged = _lsn(slot.get("confirmed_flush_lsn"))
    restart = _lsn(slot.get("restart_lsn"))
    status = slot.get("wal_status") or ("reserved" if restart is not None else "lost")
    return SlotDetails(
        name=slot["slot_name"],
        acknowledged=acknowledged,
        restart=restart,
        end=end,
        status=status,
        retained_bytes=None if restart is None else max(0, end - restart),
        lag_bytes=None if acknowledged is None else max(0, end - acknowledged),
        safe_bytes=slot.get("safe_wal_size"),
        active_pid=slot.get("active_pid"),
        cluster=cluster,
        incarnation=incarnation,
    )


def _lsn(text: str | None) -> int | None:
    return None if text is None else lsn_number(text)


def is_lost(facts: Facts) -> bool:
    """True if the slot has a form that rw_sql can read, but the server has removed a part of the log that the slot
    needs. No change can then be read from the slot.

    The result is False for a slot of another program, such as a physical slot, a slot of another plugin or database, or
    a slot with ``two_phase``.
    """
    slot = facts.slot
    is_own_kind = facts.plugin == "pgoutput" and facts.slot_database == facts.database and not facts.has_two_phase
    return slot is not None and is_own_kind and (slot.status == "lost" or slot.restart is None)


def check_slot(facts: Facts, options: Mapping[str, str]) -> SlotDetails:
    """Returns the slot if changes can be read from the slot; otherwise raises CaptureError."""
    name = options.get("slot.name", "")
    slot = facts.slot
    if slot is None:
        raise CaptureError(UPSTREAM_MISSING, f'replication slot "{name}" does not exist', hint=AGAIN)
    if facts.plugin != "pgoutput":
        kind = "a physical slot" if facts.plugin is None else f"a slot of {facts.plugin}"
        raise CaptureError(
            UPSTREAM_MISSING,
            f'replication slot "{name}" is {kind}, not of pgoutput',
            hint="give another slot.name: the slot of another program must not be read",
        )
    if facts.slot_database != facts.database:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'replication slot "{name}" belongs to database "{facts.slot_database}", not to "{facts.database}"',
            hint="give another slot.name",
        )
    if facts.has_two_phase:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'replication slot "{name}" was created with two_phase = true: the server sends transactions when they are '
            "prepared, not when they are committed",
            hint="give another slot.name: rw_sql creates a slot of that name",
        )
    if is_lost(facts):
        reason = f" ({facts.reason})" if facts.reason else ""
        raise CaptureError(
            UPSTREAM_MISSING,
            f'replication slot "{name}" is lost{reason}: the server removed log that had not been read',
            hint=f"raise max_slot_wal_keep_size; {AGAIN}, with a new slot of that name",
        )
    return slot


def check_position(facts: Facts, options: Mapping[str, str], position: SplitState) -> SlotDetails:
    """Returns the slot if the slot contains all changes after the position; otherwise raises CaptureError."""
    if other := other_server(position.cluster, facts.cluster):
        raise CaptureError(UPSTREAM_MISSING, other, hint=AGAIN)
    slot = check_slot(facts, options)
    if position.incarnation is not None and position.incarnation != facts.incarnation:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'database "{facts.database}" is not the one that was read: it was dropped and created again',
            hint=AGAIN,
        )
    if slot.acknowledged is None or slot.acknowledged > position.offset:
        reached = "nowhere" if slot.acknowledged is None else lsn_text(slot.acknowledged)
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f'replication slot "{slot.name}" begins at {reached}, after the position {lsn_text(position.offset)}: '
            "another program moved the slot, or it was dropped and created again; the changes between the two are "
            "missing",
            hint=AGAIN,
        )
    if facts.end < position.offset:
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f"the server's log ends at {lsn_text(facts.end)}, before the position {lsn_text(position.offset)}: "
            "the server was restored from a backup",
            hint=AGAIN,
        )
    return slot


def other_server(before: str | None, now: str | None) -> str | None:
    """Returns the message for a server that is not the server from which the source has read before. ``before`` is the
    identity (system identifier and timeline) of the earlier server, and ``now`` the identity of the present server.
    Returns None if the two identities are equal, or if one of them is unknown."""
    if before is None or now is None or before == now:
        return None
    system, _, timeline = before.partition("/")
    new_system, _, new_timeline = now.partition("/")
    if system == new_system:
        return (
            f"the server is on timeline {new_timeline}, but the position belongs to timeline {timeline}: "
            "a standby was promoted, or a backup was restored"
        )
    return (
        f"the position belongs to another server, with the system identifier {system}; this server has the system "
        f"identifier {new_system}"
    )


def may_create_publication(options: Mapping[str, str]) -> bool:
    """True if the option ``publication.create.enable`` allows rw_sql to create and change the publication."""
    return options.get("publication.create.enable", "true").strip().lower() != "false"
