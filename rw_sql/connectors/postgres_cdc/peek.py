"""Reads the changes in a slot without consuming them, to find the position of a point in time and the number of
transactions between two positions.

The server's function ``pg_logical_slot_peek_binary_changes`` needs a slot without a reader, so the functions of this
module are for a paused source.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, ChangeCount
from rw_sql.connectors.postgres_cdc.connection import connect, lsn_text, quoted, unreachable
from rw_sql.connectors.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROSECONDS
from rw_sql.errors import OFFSET_OUT_OF_RANGE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg
else:
    psycopg = deferred("psycopg")

_PEEK = """
SELECT at, xid, kind, body FROM (
    SELECT row_number() OVER () AS at, xid::text AS xid, get_byte(data, 0) AS kind,
        CASE WHEN get_byte(data, 0) = 67 THEN encode(substring(data FROM 11 FOR 16), 'hex') END AS body
    FROM pg_catalog.pg_logical_slot_peek_binary_changes(%(slot)s, {upto}, {most},
        'proto_version', '1', 'publication_names', %(publication)s)) m
"""
_ENDS = f"""
WITH message AS ({_PEEK}),
ended AS (SELECT xid, min(at) FILTER (WHERE kind = 67) AS at,
    count(*) FILTER (WHERE kind IN (68, 73, 84, 85)) AS changes, max(body) AS body FROM message GROUP BY xid)
SELECT ('x' || substring(body FROM 1 FOR 16))::bit(64)::bigint AS position,
    ('x' || substring(body FROM 17 FOR 16))::bit(64)::bigint AS micros, changes
FROM ended WHERE body IS NOT NULL ORDER BY at
"""
# 67 is the type of a Commit message, whose body has flags, the commit's position, the transaction's end, and the time.
# 68, 73, 84 and 85 are the types of messages with changes.

_MILLI = 1000
_FREE_SECONDS, _LOOK_SECONDS = 1.0, 0.02


def first_at(options: Mapping[str, str], milliseconds: int, position: int, timeout: float) -> int:
    """The position before the first transaction that was committed at or after ``milliseconds``.

    ``position`` is the slot's acknowledged position. Raises CaptureError if the slot may no longer contain this
    transaction.
    """
    wanted = milliseconds * _MILLI - POSTGRES_EPOCH_MICROSECONDS
    query = (
        f"SELECT position, micros >= {wanted} FROM ({_ENDS.format(upto='NULL', most='NULL')}) found WHERE changes > 0"
    )
    reached, has_earlier = position, False
    for end, is_late in _rows(options, query, timeout):
        if is_late:
            break
        reached, has_earlier = int(end), True
    if not has_earlier:
        at = datetime.fromtimestamp(milliseconds / _MILLI, UTC).isoformat(sep=" ", timespec="seconds")
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f'replication slot "{options["slot.name"]}" no longer has the changes since {at}: the slot begins at '
            f"{lsn_text(position)}, and earlier changes were read and acknowledged",
            hint="TO EARLIEST reads the changes that the slot has; RESET SOURCE SPLITS SOURCE_NAME ALLOW GAPS WITH "
            "(FORGET_OFFSETS = true) reads the tables again",
        )
    return reached


def count_changes(
    options: Mapping[str, str], start: int, end: int, timeout: float, *, only_first: bool = False
) -> ChangeCount | None:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.count_changes`."""
    ends = _ENDS.format(upto=f"'{lsn_text(end)}'::pg_lsn", most="NULL")
    query = (
        "SELECT count(*), coalesce(sum(changes), 0)::bigint, min(position), (SELECT confirmed_flush_lsn <= "
        f"'{lsn_text(start)}'::pg_lsn FROM pg_catalog.pg_replication_slots WHERE slot_name = %(slot)s) FROM (SELECT * "
        f"FROM ({ends}) found WHERE changes > 0 AND position > {start} AND position <= {end} "
        f"ORDER BY position {'LIMIT 1' if only_first else ''}) counted"
    )
    try:
        ((transactions, changes, first, has_all),) = _rows(options, query, timeout)
    except CaptureError:
        return None
    if not has_all:
        return None  # The slot no longer has the changes between the position and its own beginning.
    return ChangeCount(transactions=transactions, changes=changes, first_end=first)


_FEW = 500
"""The maximum number of messages of the slot in which :func:`next_commit` searches for a transaction."""


def next_commit(options: Mapping[str, str], position: int, timeout: float) -> int | None:
    """The time in milliseconds since 1970 of the first transaction after ``position``; None if the server does not
    report this time quickly enough.

    While a reader uses the slot, PostgreSQL itself reports how long ago the last acknowledged change was written.
    """
    lag = (
        "SELECT (extract(epoch FROM clock_timestamp() - r.flush_lag) * 1000)::bigint "
        "FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid "
        "WHERE s.slot_name = %(slot)s AND s.active_pid IS NOT NULL"
    )
    ends = _ENDS.format(upto="NULL", most=str(_FEW))
    query = f"SELECT micros FROM ({ends}) found WHERE changes > 0 AND position > {position} LIMIT 1"
    try:
        for (at,) in _rows(options, lag, timeout):
            return None if at is None else int(at)
        for (micros,) in _rows(options, query, timeout):
            return (int(micros) + POSTGRES_EPOCH_MICROSECONDS) // _MILLI
    except CaptureError:
        return None
    return None


def _rows(options: Mapping[str, str], query: str, timeout: float) -> list[tuple[Any, ...]]:
    """Returns the rows of a query about the slot. Raises CaptureError. This error is also raised if the response takes
    longer than ``timeout``.

    The server notices the end of a reader with a delay. The query therefore waits for at most _FREE_SECONDS while the
    slot is in use.
    """
    given = {"slot": options["slot.name"], "publication": quoted(options["publication.name"])}
    deadline = time.monotonic() + _FREE_SECONDS
    try:
        with connect(options, timeout) as connection:
            connection.execute(f"SET statement_timeout = {max(1, int(timeout * _MILLI))}".encode())
            while True:
                try:
                    return connection.execute(query.encode(), given).fetchall()
                except psycopg.errors.ObjectInUse:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_LOOK_SECONDS)
    except psycopg.Error as error:
        raise unreachable(error, options) from error
