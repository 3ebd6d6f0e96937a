"""Lowers SKIP RECORD, which skips one record that a source cannot read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.registry import captures_changes, connector, has_wide_offsets
from rw_sql.errors import NOT_SUPPORTED, OFFSET_OUT_OF_RANGE, SPLITS_UNKNOWN, SqlError
from rw_sql.model.job_specs import cdc_tables, named_splits
from rw_sql.model.object_lookup import find_source
from rw_sql.model.options import source_options
from rw_sql.model.split_status import at_offset
from rw_sql.plan.checks.upstreams import require_upstream_of
from rw_sql.plan.effects.capture_moves import require_slot
from rw_sql.plan.effects.dependents import effects_on_dependents
from rw_sql.plan.effects.per_reader import for_each_reader
from rw_sql.plan.effects.verdicts import preview_splits, shown_offset, with_cuts
from rw_sql.plan.ports.upstreams import look_closely
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.statements.common import dependents_of, require_movable, resolve_splits, states_change, unsafe_plan
from rw_sql.plan.statements.move.inject import require_stopped
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore import Snapshot
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import SkipRecord


def lower_skip_record(statement: SkipRecord, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SKIP RECORD. The source must be paused, and the record must be the next unread record of its split.

    A record that was already read is in the log and cannot be removed. Skipping a later record would also skip all
    unread records before it.
    """
    source = find_source(snapshot, statement.name)
    require_movable(snapshot, source, statement.name.span)
    if has_wide_offsets(source.connector):
        # The offsets do not count records, so the position after the skipped record is not known.
        raise SqlError(
            NOT_SUPPORTED,
            f"the offsets of a {source.connector} source do not count records: the record after a position is unknown",
            span=statement.name.span,
            hint="to skip the record, set the offset of the record after it: INJECT SOURCE OFFSETS "
            f"{sql_name(source.name)} VALUES ({literal(statement.split.id)} = …) ALLOW GAPS",
        )
    require_stopped(statement.name.span, snapshot, inspector, source)
    return for_each_reader(snapshot, source, lambda reader: _skip(statement, snapshot, inspector, reader))


def _skip(statement: SkipRecord, snapshot: Snapshot, inspector: Inspector, reader: Reader) -> Plan:
    source = reader.source
    kind = connector(source.connector)
    assigned = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    (split,) = resolve_splits(kind, snapshot, source, (statement.split,), assigned)
    options = source_options(snapshot, source)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    require_upstream_of(source, upstream, statement.name.span)
    positions = inspector.positions.of(source.id, reader.fragment)
    require_slot(inspector, source, upstream, positions, statement.name.span, at=snapshot)
    positions = with_cuts(inspector, source.connector, options, upstream, positions)
    old, seen = positions.states.get(split), upstream.splits.get(split)
    if old is None or seen is None:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'the position of split "{split}" is unknown',
            span=statement.split.span,
            hint=f"RESET SOURCE SPLITS {sql_name(source.name)} discovers the position",
        )
    notices: list[str] = []
    if isinstance(kind, ChangeConnector):
        offset = _behind_transaction(statement, snapshot, inspector, reader, kind, old, seen.end)
        what = "the transaction after"
    else:
        sparse = upstream.sparse.get(kind.split_topic(split), "")
        _require_next(statement, split, old, seen.end, is_sparse=bool(sparse))
        offset, what = statement.offset + 1, "record"
        if sparse:
            what = "the record at"
            notices.append(_may_be_no_record(source.name, split, statement.offset, sparse))
    # The new position gets the split's current term (leader epoch), not the term of the old position, because the
    # skipped record may belong to a later term.
    new = replace(old, offset=offset, term=at_offset(seen, offset).term)
    after: dict[str, SplitState | None] = {name: positions.states.get(name) for name in assigned}
    rows = preview_splits(kind, upstream, positions, {**after, split: new})
    preview = Preview(
        title=f"SKIP RECORD {statement.offset} of split {split} on source {source.name}",
        dependents=dependents_of(snapshot, reader),
        splits=rows,
        notices=(
            *notices,
            *(effects_on_dependents(snapshot, inspector, reader, rows) if captures_changes(source.connector) else ()),
        ),
    )
    shown, following = (shown_offset(kind, at) for at in (statement.offset, new.offset))
    detail = f"{split}: {what} {shown} will not be read; {following} is next"
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="SKIP RECORD",
        changes=(states_change(reader.fragment, source.connector, {split: new}, positions.log_version),),
        preview=preview,
        answers=(
            ResultRow(object=source.name, change="SKIPPED", detail=detail),
            *(ResultRow(object=source.name, change="NOTICE", detail=notice) for notice in notices),
        ),
        reason=statement.reason,
        positions=positions,
    )


def _behind_transaction(
    statement: SkipRecord,
    snapshot: Snapshot,
    inspector: Inspector,
    reader: Reader,
    kind: ChangeConnector,
    old: SplitState,
    end: int,
) -> int:
    """The position after the transaction that a change data capture source would read next. For such a source, SKIP
    RECORD skips an entire transaction. The user specifies the position before the transaction, because positions count
    bytes and not records."""
    source = reader.source
    name, split = sql_name(source.name), literal(old.split)
    if statement.offset != old.offset:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'position {kind.show_position(statement.offset)} of split "{old.split}" is not the position of the '
            "source, which is "
            f"at {kind.show_position(old.offset)}",
            span=statement.split.span,
            hint=f"SKIP RECORD AT {split} {old.offset} ON SOURCE {name} skips the next transaction",
        )
    options = source_options(snapshot, source)
    tables = tuple(table.upstream for table in cdc_tables(snapshot, source))
    found = inspector.upstreams.count_changes(source.connector, options, old.offset, end, tables, only_first=True)
    if found is None or found.first_end is None:
        unknown = found is None
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'the transaction after {kind.show_position(old.offset)} of split "{old.split}" cannot be found: '
            + (
                "the server did not report its end, or has removed a part of the log that contains its changes"
                if unknown
                else "the rest of the log changes no row of the source's tables"
            ),
            span=statement.split.span,
            hint=f"INJECT SOURCE OFFSETS {name} VALUES ({split} = '…') sets the position after the transaction"
            if unknown
            else f"RESUME SOURCE {name}",
        )
    return found.first_end


def _may_be_no_record(source: str, split: str, offset: int, why: str) -> str:
    """The notice for a topic in which some offsets have no record: SKIP RECORD skips nothing if the skipped offset has
    no record."""
    return (
        f"some offsets of {split} may have no record ({why}): if {offset} has none, nothing is skipped, and the record "
        f"that follows is read; to skip that record, inject its offset + 1: INJECT SOURCE OFFSETS {sql_name(source)} "
        f"VALUES ({literal(split)} = …)"
    )


def _require_next(statement: SkipRecord, split: str, old: SplitState, end: int, *, is_sparse: bool) -> None:
    at = statement.offset
    if at < old.offset:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'record {at} of split "{split}" was already read; the next record is {old.offset}',
            span=statement.split.span,
            hint="a record that cannot be decoded is in no view, so it needs no SKIP; SHOW SOURCE SPLITS shows the "
            "position of each split",
        )
    if at >= end:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'split "{split}" has no record {at}: it ends at {end}',
            span=statement.split.span,
            hint=f"the next record to read is {old.offset}"
            if old.offset < end
            else "the reader has read every record of the split, so none is left to skip",
        )
    if at > old.offset:
        name = sql_name(statement.name.key)
        most = "at most " if is_sparse else ""
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'record {at} of split "{split}" is not the next one: {most}{at - old.offset} unread records come before '
            f"it, from {old.offset} on",
            span=statement.split.span,
            hint=f"with ALTER SOURCE {name} SET source_rate_limit = 1, the reader approaches the record slowly; INJECT "
            f"SOURCE OFFSETS {name} VALUES ({literal(split)} = {at + 1}) skips all of these records",
        )
