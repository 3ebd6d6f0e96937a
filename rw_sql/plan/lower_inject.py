"""Lowers INJECT SOURCE OFFSETS: forces where a paused source continues. All or nothing; unnamed splits stay."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_OFFSETS_FILE,
    INVALID_SPLIT_STATE,
    NOT_SUPPORTED,
    OFFSET_OUT_OF_RANGE,
    SOURCE_IS_RUNNING,
    SPLITS_UNKNOWN,
    SqlError,
)
from rw_sql.plan.desired import holds_of, ingest_fragment, named_splits
from rw_sql.plan.lower_source import require_upstream, states_change
from rw_sql.plan.lower_unsafe import dependents_of, resolve_splits, unsafe_plan
from rw_sql.plan.names import find_source
from rw_sql.plan.options import source_options
from rw_sql.plan.plan import ObjectChange, Plan, Preview
from rw_sql.plan.requests import Asking, Positions, file_text, job_statuses, look, positions
from rw_sql.plan.splits import OK, OTHER_CLUSTER, identified, identity_status, preview_splits, startup_states
from rw_sql.syntax.statements import InjectFromFile, InjectTo, InjectValues, NullValue, SplitId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector, Upstream
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.syntax.statements import InjectSourceOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One entry: the split, the state as it was written (None resets it), and where that stands in the statement."""

    split: SplitId
    state: str | None
    span: Span


def lower_inject_source_offsets(statement: InjectSourceOffsets, snapshot: Snapshot) -> Asking[Plan]:
    """INJECT SOURCE OFFSETS: the source must be paused and its splits known; every offset is checked first."""
    source = find_source(snapshot, statement.name)
    kind = connector(source.connector)
    fragment = ingest_fragment(source.id)
    yield from _require_stopped(statement, snapshot, source)
    splits = named_splits(snapshot, source, snapshot.splits(fragment))
    if not splits:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'the splits of source "{source.name}" are not known',
            span=statement.name.span,
            hint=f"RESET SOURCE SPLITS {source.name} finds them, once the upstream answers",
        )
    options = source_options(snapshot, source)
    upstream = yield from look(source.connector, options)
    if statement.is_validated:
        require_upstream(upstream, source.name, statement.name.span)
    stands = yield from positions(source.id)
    chosen = resolve_splits(kind, snapshot, source, statement.splits, splits) or splits
    chosen_set = frozenset(chosen)
    wanted = yield from _wanted(statement, chosen, upstream)
    ids = resolve_splits(kind, snapshot, source, tuple(entry.split for entry in wanted), splits)
    picked = [(id_, entry) for id_, entry in zip(ids, wanted, strict=True) if id_ in chosen_set]
    resets = [upstream.splits[id_] for id_, entry in picked if entry.state is None and id_ in upstream.splits]
    restarted = yield from startup_states(kind, source.connector, options, resets)
    states: dict[str, SplitState] = {}
    for id_, entry in picked:
        if entry.state is None:
            if id_ not in restarted:
                raise SqlError(
                    SPLITS_UNKNOWN, f'split "{id_}" cannot be reset while its upstream does not answer', span=entry.span
                )
            states[id_] = restarted[id_]
        else:
            states[id_] = _checked(statement, kind, id_, entry, upstream, stands)
    return _plan(statement, snapshot, source, kind, states, upstream, stands)


def _require_stopped(statement: InjectSourceOffsets, snapshot: Snapshot, source: SourceRecord) -> Asking[None]:
    hint = f"PAUSE SOURCE {source.name} first, RESUME SOURCE {source.name} afterwards"
    if not holds_of(snapshot, source.id):
        raise SqlError(
            SOURCE_IS_RUNNING,
            f'source "{source.name}" must be paused to take offsets',
            span=statement.name.span,
            hint=hint,
        )
    statuses = yield from job_statuses()
    status = statuses.get(ingest_fragment(source.id))
    if status is not None and status.state in ("RUNNING", "STARTING", "STOPPING"):
        raise SqlError(
            SOURCE_IS_RUNNING,
            f'source "{source.name}" is paused in the catalog, but its job still runs',
            span=statement.name.span,
            hint="SHOW JOBS tells when it has stopped; then run this again",
        )


def _wanted(statement: InjectSourceOffsets, chosen: tuple[str, ...], upstream: Upstream) -> Asking[tuple[Wanted, ...]]:
    target = statement.target
    if statement.convention != "next" and not isinstance(target, InjectValues | InjectFromFile):
        raise SqlError(
            INVALID_DEFINITION,
            "CONVENTION tells how written offsets are meant, and this target writes none",
            span=target.span,
            hint="leave CONVENTION out",
        )
    if statement.splits and isinstance(target, InjectValues):
        raise SqlError(
            INVALID_DEFINITION,
            "VALUES names its splits itself",
            span=statement.splits[0].span,
            hint="leave FOR SPLITS out, or the other splits out of VALUES",
        )
    if isinstance(target, InjectValues):
        return tuple(
            Wanted(
                split=entry.split,
                state=None if isinstance(entry.value, NullValue) else entry.value.text,
                span=entry.value.span,
            )
            for entry in target.entries
        )
    if isinstance(target, InjectFromFile):
        try:
            text = yield from file_text(target.path)
        except SqlError as error:
            error.span = error.span or target.span
            error.hint = error.hint or "give a path or URI that this process can read"
            raise
        return _read_file(text, target.path, target.span)
    if isinstance(target, InjectTo):
        missing = [split for split in chosen if split not in upstream.splits]
        if missing:
            raise SqlError(
                SPLITS_UNKNOWN,
                f"the upstream does not tell the bounds of {', '.join(missing[:8])}",
                span=target.span,
                hint="name the offsets with VALUES, or wait until the upstream answers",
            )
        return tuple(
            Wanted(
                split=SplitId(id=split, span=target.span),
                state=str(upstream.splits[split].start if target.where == "earliest" else upstream.splits[split].end),
                span=target.span,
            )
            for split in chosen
        )
    raise SqlError(
        NOT_SUPPORTED,
        "this target of INJECT SOURCE OFFSETS is not supported yet",
        span=target.span,
        hint="use VALUES, FROM FILE, TO EARLIEST or TO LATEST",
    )


def _read_file(text: str, path: str, span: Span) -> tuple[Wanted, ...]:
    """Our JSON map: ``{"split": offset | state | null, …}``."""

    def refuse(message: str) -> SqlError:
        return SqlError(
            INVALID_OFFSETS_FILE,
            f"offsets file {path!r} {message}",
            span=span,
            hint='the file holds one JSON object such as {"orders:0": 1200, "orders:1": null}',
        )

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise refuse(f'names "{twice}" more than once')
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise refuse(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    if not isinstance(document, dict):
        raise refuse("does not hold a JSON object")
    if not document:
        raise refuse("names no split")
    entries = []
    for split, value in document.items():
        match value:
            case None:
                state = None
            case dict():
                state = json.dumps(value)
            case int() if not isinstance(value, bool):
                state = str(value)
            case str():
                state = value
            case _:
                raise refuse(f'gives split "{split}" the offset {json.dumps(value)}, which is not a whole number')
        entries.append(Wanted(split=SplitId(id=split, span=span), state=state, span=span))
    return tuple(entries)


def _checked(
    statement: InjectSourceOffsets, kind: Connector, split: str, entry: Wanted, upstream: Upstream, stands: Positions
) -> SplitState:
    """The state to store, once it is a valid state of this split that the upstream holds (or may be clamped to it)."""
    try:
        state = kind.decode_state(split, entry.state or "")
    except SqlError as error:
        if error.span is None:
            error.span = entry.span
        raise
    if statement.convention == "last_seen":
        state = replace(state, offset=state.offset + 1)
    seen = upstream.splits.get(split)
    if seen is not None and (identity := identity_status(state, seen)) != OK:
        what = "another cluster" if identity == OTHER_CLUSTER else "a topic that was deleted and made again"
        raise SqlError(
            INVALID_SPLIT_STATE,
            f'the state of split "{split}" was taken from {what}: its offset means nothing here',
            span=entry.span,
            hint="write the offset alone if it is meant for this upstream",
        )
    if state.offset < 0:
        raise SqlError(INVALID_SPLIT_STATE, f'offset {state.offset} of split "{split}" is negative', span=entry.span)
    if seen is None:
        old = stands.states.get(split)
        return replace(state, cluster=old.cluster, incarnation=old.incarnation) if old else state
    state = identified(state, seen)
    if seen.start <= state.offset <= seen.end:
        return state
    if "CLAMP" in statement.allow:
        return replace(state, offset=min(max(state.offset, seen.start), seen.end))
    side = "beyond the end" if state.offset > seen.end else "before the start"
    raise SqlError(
        OFFSET_OUT_OF_RANGE,
        f'offset {state.offset} of split "{split}" lies {side}: the upstream holds [{seen.start}, {seen.end})',
        span=entry.span,
        hint="ALLOW CLAMP takes the nearest offset that it holds",
    )


def _plan(
    statement: InjectSourceOffsets,
    snapshot: Snapshot,
    source: SourceRecord,
    kind: Connector,
    states: Mapping[str, SplitState],
    upstream: Upstream,
    stands: Positions,
) -> Plan:
    if not states:
        raise SqlError(INVALID_SPLIT_STATE, "no offsets are given", span=statement.target.span)
    assigned = named_splits(snapshot, source, snapshot.splits(ingest_fragment(source.id)))
    kept = [split for split in assigned if split not in states]
    after = {split: states.get(split, stands.states.get(split)) for split in assigned}
    answers = []
    for split, state in states.items():
        old = stands.states.get(split)
        was = f" (was {old.offset})" if old else ""
        change = "INJECTED" if old is None or old.offset != state.offset else "UNCHANGED"
        answers.append(ObjectChange(object=source.name, change=change, detail=f"{split} at {state.offset}{was}"))
    if kept:
        answers.append(
            ObjectChange(object=source.name, change="KEPT", detail=f"not named, position kept: {', '.join(kept[:12])}")
        )
    preview = Preview(
        title=f"INJECT SOURCE OFFSETS into source {source.name}",
        dependents=dependents_of(snapshot, source),
        splits=preview_splits(kind, upstream, stands, after),
        notices=() if upstream.is_reachable else (f"the upstream does not answer: {upstream.error}",),
    )
    return unsafe_plan(
        statement,
        snapshot,
        source,
        kind="INJECT SOURCE OFFSETS",
        changes=(states_change(source.id, source.connector, dict(states), stands.log_version),),
        preview=preview,
        answers=tuple(answers),
        reason=statement.reason,
    )
