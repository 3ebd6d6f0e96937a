"""Lowers SKIP RECORD, which skips one record that its source cannot read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.errors import OFFSET_OUT_OF_RANGE, SPLITS_UNKNOWN, SqlError
from rw_sql.model.job_specs import named_splits
from rw_sql.model.names import find_source
from rw_sql.model.options import source_options
from rw_sql.plan.checks.upstreams import require_upstream
from rw_sql.plan.effects.per_reader import for_each_reader
from rw_sql.plan.effects.verdicts import preview_splits
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
    """SKIP RECORD: the record must be the next one of its split, and the source paused. It is never read afterwards.

    A record that was already read is in the log and cannot be removed. Skipping a later record would skip all records
    before it.
    """
    source = find_source(snapshot, statement.name)
    require_movable(source, statement.name.span)
    require_stopped(statement.name.span, snapshot, inspector, source)
    return for_each_reader(snapshot, source, lambda reader: _skip(statement, snapshot, inspector, reader))


def _skip(statement: SkipRecord, snapshot: Snapshot, inspector: Inspector, reader: Reader) -> Plan:
    source = reader.source
    kind = connector(source.connector)
    assigned = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    (split,) = resolve_splits(kind, snapshot, source, (statement.split,), assigned)
    upstream = look_closely(inspector.upstreams, source.connector, source_options(snapshot, source))
    require_upstream(upstream, source.name, statement.name.span)
    stands = inspector.positions.of(source.id, reader.fragment)
    old, seen = stands.states.get(split), upstream.splits.get(split)
    if old is None or seen is None:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'the position of split "{split}" is unknown',
            span=statement.split.span,
            hint=f"RESET SOURCE SPLITS {sql_name(source.name)} discovers the position",
        )
    _require_next(statement, split, old, seen.end)
    new = replace(old, offset=statement.offset + 1)
    after: dict[str, SplitState | None] = {name: stands.states.get(name) for name in assigned}
    preview = Preview(
        title=f"SKIP RECORD {statement.offset} of split {split} on source {source.name}",
        dependents=dependents_of(snapshot, reader),
        splits=preview_splits(kind, upstream, stands, {**after, split: new}),
    )
    detail = f"{split}: record {statement.offset} is never read, {new.offset} is next"
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="SKIP RECORD",
        changes=(states_change(reader.fragment, source.connector, {split: new}, stands.log_version),),
        preview=preview,
        answers=(ResultRow(object=source.name, change="SKIPPED", detail=detail),),
        reason=statement.reason,
        stands=stands,
    )


def _require_next(statement: SkipRecord, split: str, old: SplitState, end: int) -> None:
    at = statement.offset
    if at < old.offset:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'record {at} of split "{split}" was read already: {old.offset} is the next one',
            span=statement.split.span,
            hint="a record that does not decode is in no view; SHOW SOURCE SPLITS shows the position of each split",
        )
    if at >= end:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'split "{split}" has no record {at}: it ends at {end}',
            span=statement.split.span,
            hint=f"{old.offset} is the next one to read",
        )
    if at > old.offset:
        name = sql_name(statement.name.key)
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'record {at} of split "{split}" is not next: {at - old.offset} come before it, from {old.offset} on',
            span=statement.split.span,
            hint=f"ALTER SOURCE {name} SET source_rate_limit = 1 lets the reader come up to it record by "
            f"record; INJECT SOURCE OFFSETS {name} VALUES ({literal(split)} = {at + 1}) leaves them all out",
        )
