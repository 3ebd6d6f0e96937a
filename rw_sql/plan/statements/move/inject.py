"""Lowers INJECT SOURCE OFFSETS, which sets positions of a paused source.

The statement sets either all requested positions or none. Splits for which no position is requested keep their
positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState, UpstreamSplit
from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.registry import connector
from rw_sql.errors import (
    INVALID_SPLIT_STATE,
    OFFSET_OUT_OF_RANGE,
    SOURCE_IS_RUNNING,
    SPLITS_UNKNOWN,
    SqlError,
)
from rw_sql.model.job_specs import named_splits
from rw_sql.model.object_lookup import find_source
from rw_sql.model.options import source_options
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import OK, OTHER_CLUSTER, at_offset, identity_status
from rw_sql.plan.checks.upstreams import require_upstream_of
from rw_sql.plan.effects.capture_moves import require_slot
from rw_sql.plan.effects.dependents import effects_on_dependents
from rw_sql.plan.effects.discovery import startup_states
from rw_sql.plan.effects.left_splits import finished_and_unlisted, stall_notice, unlisted
from rw_sql.plan.effects.per_reader import for_each_reader
from rw_sql.plan.effects.verdicts import preview_splits, shown_offset, with_cuts
from rw_sql.plan.ports.upstreams import look_closely
from rw_sql.plan.result.allow import unallowed_words
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.statements.common import dependents_of, require_movable, resolve_splits, states_change, unsafe_plan
from rw_sql.plan.statements.move.inject_targets import InjectContext, discard_unlisted, read_target, shorten
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import InjectValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.connectors.base import Connector, Upstream
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.plan.statements.move.inject_targets import RequestedOffset
    from rw_sql.syntax.statements import InjectSourceOffsets


def lower_inject_source_offsets(statement: InjectSourceOffsets, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers INJECT SOURCE OFFSETS. The source must be paused, and the splits of the source must be known.

    All requested offsets are checked before the first of them is set.
    """
    source = find_source(snapshot, statement.name)
    require_movable(snapshot, source, statement.name.span)
    require_stopped(statement.name.span, snapshot, inspector, source)
    return for_each_reader(snapshot, source, lambda reader: _inject(statement, snapshot, inspector, reader))


def _inject(statement: InjectSourceOffsets, snapshot: Snapshot, inspector: Inspector, reader: Reader) -> Plan:
    source = reader.source
    kind = connector(source.connector)
    splits = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    if not splits:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'the splits of source "{source.name}" are not known',
            span=statement.name.span,
            hint=f"RESET SOURCE SPLITS {sql_name(source.name)} discovers the splits when the upstream answers",
        )
    options = source_options(snapshot, source)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    if statement.is_validated:
        require_upstream_of(source, upstream, statement.name.span)
    positions = inspector.positions.of(source.id, reader.fragment)
    if statement.is_validated:
        require_slot(inspector, source, upstream, positions, statement.name.span, at=snapshot)
    positions = with_cuts(inspector, source.connector, options, upstream, positions)
    finished = frozenset(finished_and_unlisted(kind, splits, positions.states, upstream))
    named = resolve_splits(kind, snapshot, source, statement.splits, splits)
    spans = {split: written.span for split, written in zip(named, statement.splits, strict=True)}
    _refuse_finished(source, finished, spans)
    chosen = named or tuple(split for split in splits if split not in finished)
    is_by_values = isinstance(statement.target, InjectValues)
    if not (chosen or is_by_values):
        raise _finished_error(source, splits, statement.target.span)
    chosen_set = frozenset(splits if is_by_values else chosen)
    context = InjectContext(
        snapshot=snapshot,
        source=source,
        kind=kind,
        options=options,
        chosen=chosen,
        upstream=upstream,
        positions=positions,
    )
    wish = read_target(statement, inspector, context)
    ids = resolve_splits(kind, snapshot, source, tuple(entry.split for entry in wish.entries), splits)
    entries = dict(zip(ids, wish.entries, strict=True))
    if is_by_values:
        moved = {
            id_: entry.span
            for id_, entry in entries.items()
            if id_ in finished
            and (
                entry.state is None
                or _checked(statement, kind, id_, entry, upstream, positions).offset != positions.states[id_].offset
            )
        }
        _refuse_finished(source, finished, moved)
    picked = [(id_, entry) for id_, entry in entries.items() if id_ in chosen_set]
    resets = [upstream.splits[id_] for id_, entry in picked if entry.state is None and id_ in upstream.splits]
    restarted = startup_states(inspector, kind, source.connector, options, resets)
    states: dict[str, SplitState] = {}
    clamped: list[str] = []
    for id_, entry in picked:
        if entry.state is None:
            if id_ not in restarted and upstream.is_reachable:
                raise SqlError(
                    SPLITS_UNKNOWN,
                    f'split "{id_}" cannot be reset, because the upstream does not list it',
                    span=entry.span,
                    hint=discard_unlisted(source.name),
                )
            if id_ not in restarted:
                raise SqlError(
                    SPLITS_UNKNOWN,
                    f'split "{id_}" cannot be reset while its upstream does not answer',
                    span=entry.span,
                    hint="give an offset instead of NULL, or run the statement again when the upstream answers",
                )
            states[id_] = restarted[id_]
        else:
            wanted = _checked(statement, kind, id_, entry, upstream, positions)
            states[id_] = _in_range(statement, kind, wanted, upstream.splits.get(id_), entry.span)
            if states[id_].offset != wanted.offset:
                given, used = (shown_offset(kind, offset) for offset in (wanted.offset, states[id_].offset))
                clamped.append(f"{id_} from {given} to {used}")
    if wish.entries and not picked:
        if finished.issuperset(ids):
            raise _finished_error(source, ids, statement.target.span)
        raise _names_none(statement, ids)
    said = [f"clamped to the offsets that the upstream has: {shorten(clamped)}"] if clamped else []
    if lost := unlisted(kind, states, states, upstream):
        said.append(stall_notice(source.name, lost))
    left_out = () if named or is_by_values else tuple(split for split in splits if split in finished)
    return _plan(statement, inspector, context, reader, states, (*wish.notices, *said), left_out)


def _refuse_finished(source: SourceRecord, finished: frozenset[str], spans: Mapping[str, Span]) -> None:
    """Raises SqlError if the statement names a finished split, that is, a split that the source has read to its end and
    that the upstream no longer lists. ``spans`` maps the named splits to their locations in the statement."""
    if again := [split for split in spans if split in finished]:
        raise _finished_error(source, again, spans[again[0]], f"leave out {shorten(again)}; ")


def _finished_error(source: SourceRecord, splits: Iterable[str], span: Span, hint: str = "") -> SqlError:
    return SqlError(
        SPLITS_UNKNOWN,
        f"the upstream no longer lists {shorten(splits)}, which the source has read to the end: nothing there can be "
        "read again",
        span=span,
        hint=f"{hint}{discard_unlisted(source.name)}",
    )


class ReaderStillRunsError(SqlError):
    """Raised if the source is paused but one of its readers has not stopped yet. The caller may wait and try again."""


def require_stopped(span: Span, snapshot: Snapshot, inspector: Inspector, source: SourceRecord) -> None:
    """Raises SqlError unless three conditions are met: the source is paused, the readers of the source have stopped,
    and the source has a reader that can receive offsets. If a reader still runs but the other conditions are met, the
    error is a :class:`ReaderStillRunsError`."""
    hint = f"PAUSE SOURCE {sql_name(source.name)} first, RESUME SOURCE {sql_name(source.name)} afterwards"
    if not pauses_of(snapshot, source.id):
        raise SqlError(
            SOURCE_IS_RUNNING,
            f'source "{source.name}" must be paused before its offsets can be set',
            span=span,
            hint=hint,
        )
    readers = readers_of(snapshot, source)
    if not readers:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'source "{source.name}" is not shared, and no view reads it yet, so it has no positions to set',
            span=span,
            hint="first create a view that reads the source, with CREATE MATERIALIZED VIEW; the new view does not read "
            "while the source is paused",
        )
    statuses = inspector.jobs.statuses()
    for reader in readers:
        status = statuses.get(reader.job)
        if status is not None and status.state in ("RUNNING", "STARTING", "STOPPING"):
            raise ReaderStillRunsError(
                SOURCE_IS_RUNNING,
                f'source "{source.name}" is paused in the catalog, but its job {reader.job} still runs',
                span=span,
                hint="run the statement again when SHOW JOBS shows that the job has stopped",
            )


def _checked(
    statement: InjectSourceOffsets,
    kind: Connector,
    split: str,
    entry: RequestedOffset,
    upstream: Upstream,
    positions: Positions,
) -> SplitState:
    """Returns the requested state. Raises SqlError if the state is not valid for this split. :func:`_in_range` later
    checks whether the upstream has the offset."""
    if isinstance(entry.state, int):
        state = SplitState(split=split, offset=entry.state)
    else:
        state = _decoded(statement, kind, split, entry)
    seen, old = upstream.splits.get(split), positions.states.get(split)
    # If the upstream does not respond, the split is assumed to have the incarnation that was read last.
    is_of = seen or (
        None
        if old is None
        else UpstreamSplit(split=split, start=0, end=0, cluster=old.cluster, incarnation=old.incarnation)
    )
    if is_of is not None and (identity := identity_status(state, is_of)) != OK:
        what = "another cluster" if identity == OTHER_CLUSTER else "a topic that was deleted and created again"
        raise SqlError(
            INVALID_SPLIT_STATE,
            f'the state of split "{split}" comes from {what}, so its offset is not valid here',
            span=entry.span,
            hint="if the offset belongs to this upstream, write only the offset",
        )
    if seen is None:
        if state.offset < 0:
            raise SqlError(
                INVALID_SPLIT_STATE,
                f'offset {state.offset} of split "{split}" is negative',
                span=entry.span,
                hint="give an offset of 0 or more",
            )
        known = (old.cluster, old.incarnation) if old else (state.cluster, state.incarnation)
        return replace(state, cluster=known[0], incarnation=known[1], term=None)
    found = at_offset(seen, state.offset)
    # If the upstream no longer reports the split's incarnation, the incarnation that was read last is kept, because
    # unknown values count as equal.
    return found if found.incarnation or old is None else replace(found, incarnation=old.incarnation)


def _in_range(
    statement: InjectSourceOffsets, kind: Connector, state: SplitState, seen: UpstreamSplit | None, span: Span
) -> SplitState:
    """Returns the state to store. An offset outside the upstream's bounds is clamped to the bounds if the statement
    allows clamping; otherwise, SqlError is raised."""
    if seen is None or (seen.start <= state.offset and (seen.is_empty or state.offset <= seen.end)):
        return state
    if "CLAMP" in statement.allow:
        clamped = at_offset(seen, min(max(state.offset, seen.start), seen.end))
        return replace(clamped, incarnation=state.incarnation)
    side = "beyond the end" if state.offset > seen.end else "before the start"
    at, start, end = (shown_offset(kind, offset) for offset in (state.offset, seen.start, seen.end))
    again = ""
    if isinstance(kind, ChangeConnector) and state.offset < seen.start:
        # A database discards the changes that the source has acknowledged.
        again = (
            f"; RESET SOURCE SPLITS {sql_name(statement.name.key)} ALLOW GAPS WITH (FORGET_OFFSETS = true) reads its "
            "tables again"
        )
    raise SqlError(
        OFFSET_OUT_OF_RANGE,
        f'offset {at} of split "{state.split}" is {side}: the upstream has [{start}, {end})',
        span=span,
        hint=f"give an offset from {start} to {end}{again}",
    )


def _names_none(statement: InjectSourceOffsets, ids: tuple[str, ...]) -> SqlError:
    """The error for a FOR SPLITS that selects none of the target's splits."""
    return SqlError(
        INVALID_SPLIT_STATE,
        "no offsets are given for the splits in FOR SPLITS",
        span=statement.target.span,
        hint=f"offsets are given for {shorten(ids)}",
    )


def _decoded(statement: InjectSourceOffsets, kind: Connector, split: str, entry: RequestedOffset) -> SplitState:
    try:
        state = kind.decode_state(split, str(entry.state or ""))
    except SqlError as error:
        if error.span is None:
            error.span = entry.span
        raise
    return replace(state, offset=state.offset + 1) if statement.convention == "last_seen" else state


def _plan(
    statement: InjectSourceOffsets,
    inspector: Inspector,
    context: InjectContext,
    reader: Reader,
    states: Mapping[str, SplitState],
    notices: tuple[str, ...],
    left_out: tuple[str, ...],
) -> Plan:
    """Returns the plan of the statement. ``left_out`` are splits that the target contains but that keep their
    positions, because the source has read them to their ends and the upstream no longer lists them."""
    snapshot, source, upstream, positions = context.snapshot, context.source, context.upstream, context.positions
    if not states:
        raise SqlError(
            INVALID_SPLIT_STATE,
            "no offsets are given",
            span=statement.target.span,
            hint=f"INJECT SOURCE OFFSETS {sql_name(source.name)} VALUES ('split' = offset)",
        )
    assigned = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    unkept = {*states, *left_out}
    kept = [split for split in assigned if split not in unkept]
    after = {split: states.get(split, positions.states.get(split)) for split in assigned}
    answers = []
    for split, state in states.items():
        old = positions.states.get(split)
        was = f" (was {shown_offset(context.kind, old.offset)})" if old else ""
        change = "INJECTED" if old is None or old.offset != state.offset else "UNCHANGED"
        answers.append(
            ResultRow(
                object=source.name, change=change, detail=f"{split} at {shown_offset(context.kind, state.offset)}{was}"
            )
        )
    if kept:
        answers.append(
            ResultRow(object=source.name, change="KEPT", detail=f"not named, position kept: {shorten(kept)}")
        )
    answers += [ResultRow(object=source.name, change="NOTICE", detail=notice) for notice in notices]
    if left_out:
        said = (
            f"the upstream no longer lists {shorten(left_out)}, which the source has read to the end and where it "
            "keeps its position"
        )
        answers.append(ResultRow(object=source.name, change="KEPT", detail=said))
        notices = (*notices, said)
    if not upstream.is_reachable:
        notices = (*notices, f"the upstream does not answer: {upstream.error}")
    rows = preview_splits(context.kind, upstream, positions, after)
    moved = [row for row in rows if row.split in states]
    preview = Preview(
        title=f"INJECT SOURCE OFFSETS into source {source.name}",
        dependents=dependents_of(snapshot, reader),
        splits=rows,
        notices=(*notices, *effects_on_dependents(snapshot, inspector, reader, moved)),
    )
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="INJECT SOURCE OFFSETS",
        changes=(states_change(reader.fragment, source.connector, dict(states), positions.log_version),),
        preview=preview,
        answers=tuple(answers),
        reason=statement.reason,
        positions=positions,
        unallowed=unallowed_words(moved, statement.allow),
        fingerprint=",".join(f"{row.split}={row.old}>{row.new}" for row in moved),
    )
