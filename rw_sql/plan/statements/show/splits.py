"""Lowers SHOW SOURCE SPLITS, which shows the position of every split and its lag behind the upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, change_connector, connector, has_wide_offsets
from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.errors import PACKAGE_MISSING
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.model.job_specs import named_splits
from rw_sql.model.object_lookup import find_source
from rw_sql.model.options import source_options
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import (
    AHEAD,
    EXPIRED,
    OK,
    ORPHAN,
    UNKNOWN,
    UNREADABLE,
    identity_status,
    split_order,
    split_status,
)
from rw_sql.plan.effects.capture_moves import find_obstacle, remedy
from rw_sql.plan.result.plan import Plan, Table

if TYPE_CHECKING:
    from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import ShowSourceSplits

COLUMNS = (
    ("split", "STRING"),
    ("start", "BIGINT"),
    ("next", "BIGINT"),
    ("log_start", "BIGINT"),
    ("log_end", "BIGINT"),
    ("lag", "BIGINT"),
    ("lag_ms", "BIGINT"),
    ("status", "STRING"),
    ("fragment", "STRING"),
)
"""The columns of SHOW SOURCE SPLITS, one row per split and reader."""

_LAG, _STATUS, _FRAGMENT = ([name for name, _ in COLUMNS].index(name) for name in ("lag", "status", "fragment"))
_OFFSETS = ("start", "next", "log_start", "log_end")

SLOT_COLUMNS = (
    ("position", "STRING"),
    ("slot", "STRING"),
    ("wal_status", "STRING"),
    ("retained_bytes", "BIGINT"),
    ("bytes_behind", "BIGINT"),
    ("reason", "STRING"),
)
"""Additional columns for a change data capture source. ``reason`` contains the reason why the source cannot continue at
its position, and the statement that solves the problem."""


def lower_show_source_splits(statement: ShowSourceSplits, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW SOURCE SPLITS. For each reader and split, the result has the start, the position and the upstream's
    bounds.

    ``start`` is the position that was last set by a statement or by discovery. ``lag_ms`` is the age of the oldest
    unread record; NULL if this age is unknown.
    """
    source = find_source(snapshot, statement.name)
    options = source_options(snapshot, source)
    columns: tuple[tuple[str, str], ...] = COLUMNS
    slot = None
    is_wide = has_wide_offsets(source.connector)
    if is_wide:
        columns = tuple((name, "STRING" if name in _OFFSETS else kind) for name, kind in COLUMNS)
    if captures_changes(source.connector):
        columns, slot = (*COLUMNS, *SLOT_COLUMNS), inspector.upstreams.slot_details(source.connector, options)
    upstream = inspector.upstreams.look(source.connector, options)
    now = inspector.clock() if upstream.splits else 0
    rows: list[tuple[object, ...]] = []
    for reader in readers_of(snapshot, source):
        rows += _rows_of(snapshot, inspector, reader, upstream, now)
    if is_wide:
        rows = [tuple(_shown(name, value) for (name, _), value in zip(columns, row, strict=True)) for row in rows]
    elif columns is not COLUMNS:
        rows = [_with_slot(source.connector, row, slot) for row in rows]
        rows = [_with_reason(snapshot, inspector, source, upstream, slot, row) for row in rows]
    return Plan(statement=statement, table=Table(columns=columns, rows=tuple(rows)))


def _shown(column: str, value: object) -> object:
    """Converts a value for a source whose offsets do not fit into 64 bits: an offset becomes a string, and a difference
    of offsets becomes NULL."""
    if column in _OFFSETS:
        return None if value is None else str(value)
    return None if column == "lag" and isinstance(value, int) and value >= MOST_COUNTED else value


def _with_slot(connector_name: str, row: tuple[object, ...], slot: SlotDetails | None) -> tuple[object, ...]:
    """Returns a row with the additional columns for a change data capture source: the position in the server's
    notation, and the slot."""
    position = row[2]
    if not isinstance(position, int):
        return (*row, None, *((None,) * 4 if slot is None else (slot.name, slot.status, slot.retained_bytes, None)))
    shown = change_connector(connector_name).show_position(position)
    if slot is None:
        return (*row, shown, None, None, None, None)
    behind = slot.bytes_behind(position)
    # If the server's log consists of files (MySQL), the difference of two positions is not a number of bytes.
    if slot.files and row[_LAG] is not None:
        row = (*row[:_LAG], behind, *row[_LAG + 1 :])
    return (*row, shown, slot.name, slot.status, slot.retained_bytes, behind)


def _with_reason(
    snapshot: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    upstream: Upstream,
    slot: SlotDetails | None,
    row: tuple[object, ...],
) -> tuple[object, ...]:
    """Returns a row with the column ``reason``.

    The status in the given row results from the bounds of the server's log. The status becomes UNREADABLE if only the
    slot shows that the source cannot continue. The status becomes OK if a bound is after the position, but the source
    has read nothing yet and can continue because its slot will be created.
    """
    status, fragment = row[_STATUS], str(row[_FRAGMENT])
    found = find_obstacle(inspector, snapshot, source, fragment, str(row[0]), slot)
    if found is None:
        status = OK if status in (EXPIRED, AHEAD) else status
    elif not found.is_temporary and found.kind is not PACKAGE_MISSING:
        # If this process lacks the connector's package, the process of the owner may have it.
        status = UNREADABLE if status in (OK, UNKNOWN) else status
    reason = upstream.error if found is None else remedy(found, source)
    return (*row[:_STATUS], status, *row[_STATUS + 1 :], reason)


def _rows_of(
    snapshot: Snapshot, inspector: Inspector, reader: Reader, upstream: Upstream, now: int
) -> list[tuple[object, ...]]:
    source, fragment = reader.source, reader.fragment
    kind = connector(source.connector)
    positions = inspector.positions.of(source.id, fragment)
    assigned, stored = snapshot.splits(fragment), snapshot.states(fragment)
    named = frozenset(named_splits(snapshot, source, assigned))
    # If a topic is missing upstream, the state of its splits is unknown. Such splits do not count as orphans, which are
    # splits of topics that the source no longer names.
    tells = upstream.is_reachable and not upstream.missing
    lags = {split: _records_waiting(positions.states.get(split), seen) for split, seen in upstream.splits.items()}
    waiting = {split: positions.states[split].offset for split, lag in lags.items() if lag}
    options = source_options(snapshot, source)
    times = inspector.upstreams.record_times(source.connector, options, waiting) if waiting else {}
    rows: list[tuple[object, ...]] = []
    for split in sorted({*assigned, *upstream.splits}, key=split_order):
        state, seen, row = positions.states.get(split), upstream.splits.get(split), stored.get(split)
        if not tells and seen is None:
            status = UNKNOWN if split in named else ORPHAN
        else:
            status = split_status(state if split in assigned else None, seen)
        lag = lags.get(split)
        rows.append(
            (
                split,
                kind.decode_state(split, row.state).offset if row is not None and row.state != FORGOTTEN else None,
                state.offset if state else None,
                seen.start if seen else None,
                seen.end if seen else None,
                lag,
                0 if lag == 0 else max(0, now - times[split]) if split in times else None,
                status,
                fragment,
            )
        )
    return rows


def _records_waiting(state: SplitState | None, seen: UpstreamSplit) -> int | None:
    """The number of unread offsets; None if the split is not read, has no end upstream, or has another identity
    upstream."""
    if state is None or seen.is_endless or identity_status(state, seen) != OK:
        return None
    return seen.behind(state.offset)
