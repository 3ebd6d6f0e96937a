"""Computes the notices about a move of a change data capture source. The notices state whether the source can continue
at its position, how many transactions the move skips or repeats, and which tables the source reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.connectors.registry import connector
from rw_sql.errors import OFFSET_OUT_OF_RANGE, SqlError
from rw_sql.metastore.records import FORGOTTEN, UNDO
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import cdc_tables
from rw_sql.model.offset_ranges import reads_of, within, without
from rw_sql.model.options import source_options, visible
from rw_sql.model.split_status import AHEAD, EXPIRED, split_status
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream
    from rw_sql.connectors.changes import CaptureError
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import CdcTableSpec, Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.plan.result.plan import SplitPreview

_PUBLICATION = "publication.name"

_TRIES = 3
"""The maximum number of requests to an upstream until the position of a running reader stays the same during a
request."""


def notes_on_capture(
    inspector: Inspector,
    kind: Connector,
    source: SourceRecord,
    options: tuple[PlannedOptions, PlannedOptions],
    upstream: Upstream,
    states: Mapping[str, SplitState],
) -> Iterator[str]:
    """Yields the reasons why the source would stall after a change of its options. Each reason comes with the statement
    that solves the problem. ``options`` is the pair (old options, new options). Yields nothing if the source can
    continue, if its connector does not capture changes, or if the upstream does not respond.
    """
    if not isinstance(kind, ChangeConnector) or not upstream.is_reachable:
        return
    old, new = options
    again = (
        f"RESET SOURCE SPLITS {sql_name(source.name)} ALLOW GAPS WITH (FORGET_OFFSETS = true) reads the tables again"
    )
    known = {split: state for split, state in states.items() if split in upstream.splits}
    if known and (name := missing_slot(inspector, kind, source.connector, new, upstream)) is not None:
        yield f'slot "{name}" does not exist there, and a new slot would skip changes, so the source stalls: {again}'
        return
    for split, state in known.items():
        seen = upstream.splits[split]
        status, at = split_status(state, seen), kind.show_position(state.offset)
        if status == EXPIRED:
            yield (
                f"the slot begins at {kind.show_position(seen.start)}, after the position {at} of the source: "
                f"the changes between the two are missing, so the source stalls: {again}"
            )
        elif status == AHEAD:
            end = kind.show_position(seen.end)
            yield (
                f"the server's log ends at {end}, before the position {at} of the source, so the source stalls: {again}"
            )
    if known and visible(old).get(_PUBLICATION) != visible(new).get(_PUBLICATION):
        yield (
            f"it is not known whether the other publication always contained the tables, so the source stalls: {again}"
        )


def notes_on_left_slot(
    inspector: Inspector, then: Snapshot, source: SourceRecord, old: PlannedOptions, new: PlannedOptions
) -> Iterator[str]:
    """Yields a notice about the slot that the source no longer reads after its options were changed from ``old`` to
    ``new``, with the statement that drops this slot. ``then`` is the catalog after the change.

    rw_sql does not drop the slot, because the source needs the slot if the change is undone. Yields nothing if the slot
    does not exist, if its server does not respond, or if another source reads it.
    """
    kind = connector(source.connector)
    removal = kind.slot_removal(visible(old)) if isinstance(kind, ChangeConnector) else None
    readers = (other for other in then.all("source") if other.connector == source.connector)
    if removal is None or any(_slot_of(kind, source_options(then, other)) == _slot_of(kind, old) for other in readers):
        return
    slot = inspector.upstreams.slot_details(source.connector, old)
    if slot is None:
        return
    if slot.name == visible(new).get("slot.name"):
        upstream = inspector.upstreams.look(source.connector, new)
        if upstream.cluster is None or upstream.cluster == slot.cluster:
            return  # It is the same slot at another address of its server, or this is not known.
    host, kept = visible(old).get("hostname", ""), slot.retained_bytes
    yield (
        f'slot "{slot.name}" stays on the server {host}, and the server keeps its log for the slot'
        f"{'' if kept is None else f' (now {kept} bytes)'}, so that this operation can be undone. When neither an UNDO "
        f"nor another program needs the slot, run on that server: {removal}"
    )


def _slot_of(kind: Connector, options: PlannedOptions) -> tuple[str | None, ...]:
    """The options that name a slot, in a comparable form."""
    given = visible(options)
    return (given.get("hostname", "").lower(), kind.spec.value(given, "port"), given.get("slot.name"))


def missing_slot(
    inspector: Inspector, kind: Connector, connector: str, options: PlannedOptions, upstream: Upstream
) -> str | None:
    """Returns the name of the slot that a change data capture source with the given options reads, if the server lacks
    this slot. Returns None if the server has the slot or does not respond.

    A source that has already read changes cannot continue without its slot, because the server then keeps no changes
    for the source.
    """
    name = visible(options).get("slot.name")
    if name is None or not isinstance(kind, ChangeConnector) or not upstream.is_reachable:
        return None
    return name if inspector.upstreams.lacks_slot(connector, options) else None


def find_obstacle(
    inspector: Inspector, at: Snapshot, source: SourceRecord, fragment: str, split: str, slot: SlotDetails | None
) -> CaptureError | None:
    """Returns the reason why the reader of a change data capture source cannot continue at the position of a split;
    None if the reader can continue. ``at`` is the catalog, and ``slot`` is the source's slot.

    The reader may commit and acknowledge changes during the request to the upstream. A reason is therefore valid only
    if the position did not change during the request.
    """
    options = source_options(at, source)
    positions = inspector.positions.of(source.id, fragment)
    is_usable = "slot.name" not in visible(options) or (slot is not None and slot.status != "lost")
    if not is_usable and may_create_slot(inspector, at, source, positions):
        return None
    for _ in range(_TRIES):
        position = positions.states.get(split)
        if position is None:
            return None
        found = inspector.upstreams.find_obstacle(source.connector, options, position)
        positions = inspector.positions.of(source.id, fragment)
        if found is None or positions.states.get(split) == position:
            is_young = found is not None and found.kind is OFFSET_OUT_OF_RANGE and _begins_after(slot, position)
            return None if is_young and may_create_slot(inspector, at, source, positions) else found
    return None


def _begins_after(slot: SlotDetails | None, position: SplitState) -> bool:
    """True if ``slot`` begins after ``position``, or if the server is still creating the slot, which may last until the
    oldest transaction ends. The first run of a source creates the slot, and then commits the slot's position."""
    if slot is None or slot.files:
        return False
    return slot.acknowledged is None or slot.acknowledged > position.offset


def may_create_slot(inspector: Inspector, at: Snapshot, source: SourceRecord, positions: Positions) -> bool:
    """True if the next run of a change data capture source may create the source's slot, because nothing has been read
    since the source was created, or since a statement made the source read its tables again.

    The decision of the run itself, :func:`rw_sql.runtime.ingest.capture.is_new_upstream`, also depends on the stored
    progress of the tables.
    """
    kind = connector(source.connector)
    for split, row in at.states(ingest_fragment(source.id)).items():
        state = positions.states.get(split)
        if state is None or row.state == FORGOTTEN or state.offset != kind.decode_state(split, row.state).offset:
            return False
        if split not in positions.read_splits:
            continue
        if source.snapshot != row.epoch or any(
            found.epoch == row.epoch and found.kind == UNDO for found in inspector.operations(since=row.epoch)
        ):
            return False
    return True


def remedy(error: CaptureError, source: SourceRecord) -> str:
    """The reason why changes cannot be read, followed by the remedy."""
    hint = hint_for(error, source)
    return f"{error.message}: {hint}" if hint else error.message


def hint_for(error: CaptureError, source: SourceRecord) -> str:
    """The remedy, with the name of the source."""
    return (error.hint or "").replace("SOURCE_NAME", sql_name(source.name))


def require_slot(
    inspector: Inspector, source: SourceRecord, upstream: Upstream, positions: Positions, span: Span, *, at: Snapshot
) -> None:
    """Raises SqlError OFFSET_OUT_OF_RANGE if a change data capture source has read changes and its slot no longer
    exists. ``at`` is the catalog that contains the source."""
    if positions.read_splits.isdisjoint(upstream.splits):
        return
    options = source_options(at, source)
    name = missing_slot(inspector, connector(source.connector), source.connector, options, upstream)
    if name is not None:
        raise SqlError(
            OFFSET_OUT_OF_RANGE,
            f'replication slot "{name}" does not exist, so the server has no changes that source "{source.name}" could '
            "read",
            span=span,
            hint=f"RESET SOURCE SPLITS {sql_name(source.name)} ALLOW GAPS WITH (FORGET_OFFSETS = true) creates a slot "
            "and reads the tables again",
        )


def tables_read_again(tables: Iterable[CdcTableSpec]) -> Iterator[str]:
    """Yields, for each table of a source, the effect of repeating the snapshots of the source's tables. A table with a
    snapshot is read again. A table without a snapshot reads changes from the source's new position on."""
    for table in tables:
        does = (
            "is read again; queries see the existing rows until then"
            if table.has_snapshot
            else "reads changes from that position on"
        )
        yield f"{table.upstream} {does}"


def changes_between(
    snapshot: Snapshot,
    inspector: Inspector,
    reader: Reader,
    rows: Iterable[SplitPreview],
    options: PlannedOptions | None = None,
) -> Iterator[str]:
    """Yields notices about the number of transactions that a move skips or repeats, if the upstream can count them. The
    verdicts in ``rows`` state only how many bytes of the log the move skips or repeats.

    ``options`` are the options of the source after the move; None if the move does not change them. Skipped
    transactions are counted in the slot that the source reads before the move, and repeated transactions in the slot
    that the source reads after the move.
    """
    source = reader.source
    before = source_options(snapshot, source)
    tables = tuple(table.upstream for table in cdc_tables(snapshot, source))
    for row in rows:
        if not (row.gaps or row.duplicates) or row.old is None or row.new is None:
            continue
        skipped, repeated = _ranges(inspector.positions.of(source.id, reader.fragment), row, row.old, row.new)
        for verb, slot, ranges in (("skips", before, skipped), ("repeats", options or before, repeated)):
            counts = [
                inspector.upstreams.count_changes(
                    source.connector, slot, start, end, tables, includes_earlier=verb == "skips"
                )
                for start, end in ranges
            ]
            known = [count for count in counts if count is not None]
            if known and len(known) == len(counts):
                least = "" if all(count.is_exact for count in known) else "at least "
                transactions = _number(sum(count.transactions for count in known), "transaction")
                changes = _number(sum(count.changes for count in known), "change")
                yield f"{row.split}: {verb} {least}{transactions} with {changes}"
        if row.duplicates:
            yield "changes that are read again have no effect on tables, but views over the source contain them twice"


def _ranges(positions: Positions, row: SplitPreview, old: int, new: int) -> tuple[Spans, Spans]:
    """Returns two results: the ranges of positions that a move from ``old`` to ``new`` skips, and the ranges that it
    repeats."""
    state = positions.states.get(row.split)
    lives = positions.lives.get(row.split, ())
    reads = reads_of(lives, state.cluster, state.incarnation) if state is not None else None
    if reads is None:
        between = ((min(old, new), max(old, new)),)
        return (between, ()) if row.gaps else ((), between)
    end = reads.spans[-1][1]
    skipped = without(((reads.reached, new),), reads.spans) if row.gaps and new > reads.reached else ()
    if not row.duplicates or end <= new:
        return skipped, ()
    return skipped, within(reads.spans, new, end) if positions.is_complete else ((new, end),)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
