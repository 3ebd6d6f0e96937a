"""Computes the effects of several changes to the catalog on each affected source. The previews of UNDO and of blocks
show these effects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, connector
from rw_sql.errors import first_names
from rw_sql.metastore.records import FORGOTTEN, ConnectionRecord, SourceRecord
from rw_sql.model.definitions import definition_of, listed_options
from rw_sql.model.job_ids import fragment_source
from rw_sql.model.job_specs import cdc_tables, named_splits
from rw_sql.model.object_lookup import spoken
from rw_sql.model.options import connection_options, shown, source_options, visible
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of, unread
from rw_sql.model.split_status import OK, ORPHAN, continuing_status
from rw_sql.plan.effects.capture_moves import missing_slot, notes_on_capture, tables_read_again
from rw_sql.plan.effects.connection_impact import may_be_elsewhere, selects_others, unselected_notice
from rw_sql.plan.effects.dependents import effects_on_dependents
from rw_sql.plan.effects.left_objects import notes_on_left_objects
from rw_sql.plan.effects.left_splits import stall_notice, unlisted, with_stored_ends
from rw_sql.plan.effects.verdicts import (
    preview_splits,
    shown_offset,
    with_cuts,
    with_other_records,
    without_identity,
)
from rw_sql.plan.ports.upstreams import look_closely
from rw_sql.plan.result.plan import Preview, ResultRow
from rw_sql.plan.result.prediction import SourcePrediction, predicted, prediction_to_json
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector

_MOST_NAMED = 8
"""The maximum number of splits that a notice lists by name."""


GONE = "GONE"
"""The status of a split that becomes unreadable because the upstream does not contain the split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A split that a change makes unreadable, with its status and the upstream's bounds. If the split is unreadable
    because the source's slot does not exist, ``slot`` is the name of this slot; otherwise None."""

    split: str
    offset: int | None
    status: str
    bounds: tuple[int, int] | None
    connector: str
    slot: str | None = None

    def describe(self) -> str:
        """Returns a description of the split for use in a sentence: ``orders:0 at 40 (EXPIRED, it holds [60, 90))``."""
        kind = connector(self.connector)
        at = "" if self.offset is None else f" at {shown_offset(kind, self.offset)}"
        holds = ""
        if self.bounds is not None:
            start, end = (shown_offset(kind, bound) for bound in self.bounds)
            holds = f", the upstream has [{start}, {end})"
        return f"{self.split}{at} ({self.status}{holds})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImpact:
    """The effect of a change on one reader of a source.

    ``states`` are the reader's positions after the change, and ``unreadable`` are the splits that the change makes
    unreadable.

    ``doubt`` is the reason why it is not known what the upstream contains; None if this is known.
    """

    reader: Reader
    preview: Preview
    prediction: SourcePrediction
    states: Mapping[str, SplitState]
    unreadable: tuple[Unreadable, ...] = ()
    doubt: str | None = None

    @property
    def source(self) -> SourceRecord:
        """The source of the reader."""
        return self.reader.source


def remedy_without_records(source: SourceRecord, unreadable: Iterable[Unreadable]) -> str:
    """Returns the statements with which a source can continue if the upstream no longer has the records at the source's
    positions. ``unreadable`` are the splits that contained these records."""
    name = sql_name(source.name)
    if (slot := next((found.slot for found in unreadable if found.slot is not None), None)) is not None:
        return (
            f"PAUSE SOURCE {name}; ALTER SOURCE {name} UNSAFE SET (slot.name = {literal(slot)}); RESET SOURCE SPLITS "
            f"{name} ALLOW GAPS WITH (FORGET_OFFSETS = true); RESUME SOURCE {name}: creates the slot and reads the "
            "tables again"
        )
    if captures_changes(source.connector):
        return (
            f"the server has removed the acknowledged changes: RESET SOURCE SPLITS {name} ALLOW GAPS WITH "
            "(FORGET_OFFSETS = true) reads the tables again"
        )
    return (
        f"INJECT SOURCE OFFSETS {name} sets offsets that the upstream has, RESET SOURCE SPLITS {name} discovers its "
        "splits"
    )


def touched_sources(fragments: Iterable[str], ids: Iterable[int], snapshot: Snapshot) -> tuple[int, ...]:
    """Returns the sorted ids of the sources that a change touches. These are the sources of ``fragments``, the sources
    in ``ids``, and the sources that use an object in ``ids``."""
    found = {fragment_source(fragment) for fragment in fragments}
    for id_ in ids:
        record = snapshot.get(id_)
        if isinstance(record, SourceRecord):
            found.add(id_)
        found |= {user.id for user in snapshot.users_of(id_) if isinstance(user, SourceRecord)}
    return tuple(sorted(id_ for id_ in found if isinstance(snapshot.get(id_), SourceRecord)))


def states_after(
    kind: Connector, then: Snapshot, now: Snapshot, fragment: str, positions: Mapping[str, SplitState]
) -> dict[str, SplitState]:
    """Returns the positions of the splits after a change of the catalog from ``now`` to ``then``. A split whose stored
    position the change does not replace keeps its current position in ``positions``."""
    found: dict[str, SplitState] = {}
    before = now.states(fragment)
    for split, row in then.states(fragment).items():
        if row.state == FORGOTTEN:
            continue
        if row is not before.get(split):
            found[split] = kind.decode_state(split, row.state)
        elif split in positions:
            found[split] = positions[split]
    return found


def impacts_of(
    snapshot: Snapshot,
    then: Snapshot,
    inspector: Inspector,
    source_ids: Iterable[int],
    restored: Mapping[str, Collection[str]] | None = None,
) -> list[SourceImpact]:
    """The effects of a change to the catalog, from ``snapshot`` to ``then``, on the readers of the given sources.

    ``restored`` maps each fragment to the splits whose former positions the change restores. The change also restores
    the properties that the source had at these positions.
    """
    given_back = restored or {}
    moves: list[SourceImpact] = []
    for source_id in source_ids:
        source, moved = snapshot.get(source_id), then.get(source_id)
        if not isinstance(source, SourceRecord) or not isinstance(moved, SourceRecord):
            raise LookupError(f"source {source_id} is not in the catalog")
        for reader in readers_of(snapshot, source) or (unread(source),):
            splits = given_back.get(reader.fragment, ())
            moves.append(impact_of(snapshot, then, inspector, reader, moved, restored=splits))
    return moves


def predictions(moves: Iterable[SourceImpact]) -> str:
    """The predictions for several readers, in the form that the catalog stores with an operation."""
    return prediction_to_json({move.reader.fragment: move.prediction for move in moves})


def impact_of(
    snapshot: Snapshot,
    then: Snapshot,
    inspector: Inspector,
    reader: Reader,
    moved: SourceRecord,
    *,
    is_taken_back: bool = False,
    restored: Collection[str] = (),
) -> SourceImpact:
    """Returns the effect of a change to the catalog on one reader. Examines the upstream before and after the change.

    If ``is_taken_back`` is True, the change restores rows together with the positions, and therefore neither repeats
    nor skips records. ``restored`` are the splits whose former positions are restored, as in :func:`impacts_of`.
    """
    source, fragment = reader.source, reader.fragment
    kind = connector(source.connector)
    positions = inspector.positions.of(source.id, fragment)
    states = states_after(kind, then, snapshot, fragment, positions.states)
    reads = named_splits(snapshot, source, snapshot.splits(fragment))
    will_read = named_splits(then, moved, then.splits(fragment))
    options, old_options = source_options(then, moved), source_options(snapshot, source)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    positions = with_cuts(inspector, source.connector, options, upstream, positions, states)
    left = upstream if options == old_options else look_closely(inspector.upstreams, source.connector, old_options)
    target: dict[str, SplitState | None] = dict.fromkeys(set(reads) - set(will_read))
    # A split that is no longer assigned keeps its position, and the next discovery assigns the split again at this
    # position.
    target |= {split: states[split] for split in named_splits(then, moved, target) if split in states}
    target |= {split: states.get(split) for split in will_read}
    found_again = upstream.splits if is_taken_back else ()
    notices = [*_pauses(snapshot, then, source), *_endings(will_read, reads, found_again)]
    # A split that the source could not read before the change is not lost by the change.
    had = {s for s in reads if continuing_status(kind, positions.states.get(s), left.splits.get(s)) != ORPHAN}
    lost = [split for split in unlisted(kind, will_read, states, upstream) if split in had]
    if lost:
        target |= dict.fromkeys(lost)
        notices.append(stall_notice(source.name, lost))
    doubt = None
    if not upstream.is_reachable:
        doubt = f"the upstream of source {source.name} does not answer: {upstream.error}"
        notices.append(doubt)
    old, new = dict(listed_options(definition_of(source))), dict(listed_options(definition_of(moved)))
    gone = {split: state for split, state in positions.states.items() if target.get(split, state) is None}
    old_upstream = with_stored_ends(left if left is not upstream else None, kind, gone)
    rows = preview_splits(kind, upstream, positions, target, left=old_upstream)
    if may_be_elsewhere(kind.spec, old_options, options):
        rows = without_identity(rows, positions.states, target, upstream)
    if selects_others(kind.spec, old_options, options) and not is_taken_back:
        rows, has_others = with_other_records(rows, restored)
        notices += [unselected_notice(source)] if has_others else []
    if is_taken_back:
        rows = tuple(replace(row, verdict="NONE", duplicates=0, gaps=0, is_exact=True, sizes=None) for row in rows)
    else:
        # Only a higher snapshot number makes the source read the tables again. The tables already have the rows of a
        # snapshot with a lower number.
        if moved.snapshot > source.snapshot:
            notices += tables_read_again(cdc_tables(then, moved))
        elif options != old_options and not any(row.verdict.startswith("UNKNOWN") for row in rows):
            notices += notes_on_capture(inspector, kind, source, (old_options, options), upstream, states)
        notices += effects_on_dependents(snapshot, inspector, reader, rows, options)
    notices += notes_on_left_objects(inspector, then, source, old_options, options)
    preview = Preview(
        title=reader.label,
        epoch=snapshot.epoch,
        dependents=tuple(f"{spoken(record.kind)} {record.name}" for record in reader.dependents(snapshot)),
        properties=tuple(
            (key, old.get(key, ""), new.get(key, ""))
            for key in dict.fromkeys((*old, *new))
            if old.get(key) != new.get(key)
        ),
        splits=rows,
        notices=tuple(notices),
    )
    return SourceImpact(
        reader=reader,
        preview=preview,
        prediction=predicted(source, positions, preview),
        states=states,
        unreadable=(
            *_broken(source.connector, will_read, states, upstream, set(reads), positions.states, left),
            *(
                _without_slot(inspector, source, options, states, upstream, positions.read_splits)
                if is_taken_back or not _is_same_slot(old_options, left, options, upstream)
                else ()
            ),
        ),
        doubt=doubt,
    )


def _pauses(snapshot: Snapshot, then: Snapshot, source: SourceRecord) -> Iterable[str]:
    was, is_held = bool(pauses_of(snapshot, source.id)), bool(pauses_of(then, source.id))
    if was and not is_held:
        yield f"source {source.name} is resumed"
    elif is_held and not was:
        yield f"source {source.name} is paused"


def _endings(will_read: tuple[str, ...], reads: tuple[str, ...], found_again: Collection[str]) -> Iterable[str]:
    """Yields notices about the splits that are no longer assigned after the change. ``found_again`` are the splits that
    the next discovery can assign again."""
    gone = sorted(set(reads) - set(will_read))
    if left := [split for split in gone if split not in found_again]:
        yield f"no longer read: {first_names(left, _MOST_NAMED)}"
    if again := [split for split in gone if split in found_again]:
        yield f"read again after the next discovery: {first_names(again, _MOST_NAMED)}"


def _broken(
    name: str,
    will_read: tuple[str, ...],
    states: Mapping[str, SplitState],
    upstream: Upstream,
    reads: set[str],
    positions: Mapping[str, SplitState],
    left: Upstream,
) -> tuple[Unreadable, ...]:
    """The splits that the change makes unreadable. The result omits a split whose status was the same before the
    change. The result is empty if the upstream does not respond."""
    if not upstream.is_reachable:
        return ()
    kind = connector(name)
    broken = []
    for split in will_read:
        state, seen = states.get(split), upstream.splits.get(split)
        status = continuing_status(kind, state, seen)
        before = continuing_status(kind, positions.get(split), left.splits.get(split)) if split in reads else None
        if status in (OK, before):
            continue
        broken.append(
            Unreadable(
                split=split,
                offset=state.offset if state else None,
                status=GONE if seen is None else status,
                bounds=(seen.start, seen.end) if seen else None,
                connector=name,
            )
        )
    return tuple(broken)


def _is_same_slot(old: PlannedOptions, left: Upstream, new: PlannedOptions, upstream: Upstream) -> bool:
    """True if a change data capture source reads the same slot before and after the change of its options. ``left`` is
    the upstream before the change, and ``upstream`` is the upstream after the change. If this slot does not exist, the
    change of the options is not the reason why the source cannot continue."""
    is_same_server = left.is_reachable and left.cluster == upstream.cluster
    return old == new or (is_same_server and visible(old).get("slot.name") == visible(new).get("slot.name"))


def _without_slot(
    inspector: Inspector,
    source: SourceRecord,
    options: PlannedOptions,
    states: Mapping[str, SplitState],
    upstream: Upstream,
    read: frozenset[str],
) -> tuple[Unreadable, ...]:
    """The splits that a change data capture source can no longer read because the slot in its new options does not
    exist. ``read`` are the splits that the source has read before the change."""
    if read.isdisjoint(upstream.splits):
        return ()
    kind = connector(source.connector)
    name = missing_slot(inspector, kind, source.connector, options, upstream)
    if name is None:
        return ()
    return tuple(
        Unreadable(
            split=split,
            offset=state.offset,
            status=f'slot "{name}" does not exist',
            bounds=None,
            connector=source.connector,
            slot=name,
        )
        for split, state in states.items()
        if split in upstream.splits and continuing_status(kind, state, upstream.splits[split]) == OK
    )


def in_one(title: str, parts: tuple[Preview, ...], notices: tuple[str, ...] = ()) -> Preview:
    """Combines the previews of several objects into one preview. If there is only one preview, returns this preview,
    and prefixes its title with ``title``."""
    if not parts:
        return Preview(title=title, notices=notices)
    if len(parts) == 1:
        (part,) = parts
        return replace(part, title=f"{title} of {part.title}", notices=(*part.notices, *notices))
    return Preview(title=title, parts=parts, notices=notices)


def answers_of(move: SourceImpact) -> tuple[ResultRow, ...]:
    """The result rows that describe the changes to one reader of a source."""
    name = move.source.name
    of = f" [{move.reader.view.name}]" if move.reader.view is not None else ""
    rows = [
        ResultRow(object=name, change="ALTERED", detail=f"{key} = {new or '(not set)'} (was {old or '(not set)'})")
        for key, old, new in move.preview.properties
    ]
    for split in move.preview.splits:
        if split.old == split.new:
            continue
        if split.new is None:
            rows.append(ResultRow(object=name, change="FORGOTTEN", detail=f"{split.split}{of}"))
        else:
            before, after, _ = split.written or (str(split.old), str(split.new), "")
            was = f" (was {before})" if split.old is not None else ""
            rows.append(ResultRow(object=name, change="MOVED", detail=f"{split.split} at {after}{was}{of}"))
    rows += [ResultRow(object=name, change="NOTICE", detail=notice) for notice in move.preview.notices]
    return tuple(rows)


def all_answers(moves: Iterable[SourceImpact]) -> tuple[ResultRow, ...]:
    """The result rows that describe the changes to several readers, without duplicates."""
    return tuple(dict.fromkeys(row for move in moves for row in answers_of(move)))


def connection_part(snapshot: Snapshot, then: Snapshot, connection: ConnectionRecord) -> Preview:
    """The part of a preview that describes the changes to a connection."""
    return Preview(
        title=f"connection {connection.name}",
        dependents=tuple(f"{spoken(d.kind)} {d.name}" for d in snapshot.dependents_of(connection.id)),
        properties=_connection_changes(snapshot, then, connection),
    )


def _connection_changes(
    snapshot: Snapshot, then: Snapshot, connection: ConnectionRecord
) -> tuple[tuple[str, str, str], ...]:
    now = snapshot.get(connection.id)
    old = shown(connection_options(snapshot, now)) if isinstance(now, ConnectionRecord) else {}
    new = shown(connection_options(then, connection))
    return tuple(
        (key, old.get(key, ""), new.get(key, "")) for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)
    )


def connection_answers(snapshot: Snapshot, then: Snapshot, connection: ConnectionRecord) -> tuple[ResultRow, ...]:
    """The result rows that describe the changes to a connection."""
    return tuple(
        ResultRow(
            object=connection.name, change="ALTERED", detail=f"{key} = {new or '(not set)'} (was {old or '(not set)'})"
        )
        for key, old, new in _connection_changes(snapshot, then, connection)
    )
