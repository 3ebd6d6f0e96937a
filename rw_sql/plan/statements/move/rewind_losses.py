"""Finds records whose rows a REWIND would remove and that the source could not read again afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector, names_split
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.model.job_specs import named_splits
from rw_sql.model.offset_ranges import with_span, within
from rw_sql.model.options import source_options, visible
from rw_sql.model.split_status import EXPIRED, OK, identity_status, is_emptied, is_known_same, split_order
from rw_sql.plan.effects.connection_impact import may_be_elsewhere
from rw_sql.plan.effects.discovery import discover
from rw_sql.plan.effects.impact_of_changes import GONE, Unreadable
from rw_sql.plan.effects.verdicts import shown_offset

if TYPE_CHECKING:
    from rw_sql.connectors.base import Connector, UpstreamSplit
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import RewindPoint
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.plan.effects.impact_of_changes import SourceImpact
    from rw_sql.plan.ports.inspector import Inspector

MAY_BE_EXPIRED = "MAY BE EXPIRED"
"""The status of a split that was read from its beginning, if the upstream may have removed the split's first records
since then."""

_Reading = tuple[str, str | None, str | None]
"""A split with the cluster and the incarnation from which it was read."""


def records_lost_by_rewind(
    snapshot: Snapshot,
    then: Snapshot,
    inspector: Inspector,
    impact: SourceImpact,
    moved: SourceRecord,
    point: RewindPoint,
) -> tuple[Unreadable, ...]:
    """Returns the splits with lost records, each with the offset of its first lost record. A record is lost if it was
    read after the rewind point was created and the restored source cannot read it again.

    ``then`` is the catalog after the REWIND, with the source ``moved``. Records from an upstream that the restored
    definition does not name do not count as lost, because the REWIND removes their rows on purpose. The result is empty
    if the upstream does not respond.
    """
    source = impact.source
    kind = connector(source.connector)
    options, present_options = source_options(then, moved), source_options(snapshot, source)
    upstream = inspector.upstreams.look(source.connector, options)
    if not upstream.is_reachable:
        return ()
    left = inspector.upstreams.look(source.connector, present_options)
    is_elsewhere = may_be_elsewhere(kind.spec, present_options, options)
    removed = _removed(inspector, source, point)
    named = frozenset(named_splits(then, moved, {split for split, _, _ in removed}))
    later = _later_beginnings(inspector, then, kind, moved, impact, {split for split, _, _ in removed} & named)
    lost: dict[str, Unreadable] = {}
    for (split, cluster, incarnation), spans in removed.items():
        seen, position = upstream.splits.get(split), impact.states.get(split)
        state = SplitState(split=split, offset=spans[0][0], cluster=cluster, incarnation=incarnation)
        if split not in named or (cluster and upstream.cluster and cluster != upstream.cluster):
            continue
        if seen is None:
            # The restored definition leaves out the split, for example by its pattern.
            is_left_out = split in left.splits or not names_split(source.connector, visible(options), split)
            if is_left_out or (is_elsewhere and not (cluster and upstream.cluster)):
                continue
        elif is_elsewhere and not is_known_same(state, seen):
            continue
        if position is not None and identity_status(position, state) == OK:
            spans = within(spans, position.offset, max(position.offset, spans[-1][1]))
        found = _first_lost(kind, state, spans, seen, later.get(split))
        # The same split may occur twice, with and without its identity. In this case, the earlier of the two lost
        # offsets is returned.
        earlier = lost[split].offset if split in lost else None
        if found is not None and (earlier is None or found[1] < earlier):
            status, offset = found
            lost[split] = Unreadable(
                split=split,
                offset=offset,
                status=status,
                bounds=(seen.start, seen.end) if seen else None,
                connector=source.connector,
            )
    return tuple(lost[split] for split in sorted(lost, key=split_order))


def _removed(inspector: Inspector, source: SourceRecord, point: RewindPoint) -> dict[_Reading, Spans]:
    """The offsets that the source has read since a rewind point, according to the log's commits. A REWIND removes the
    rows of these offsets."""
    found: dict[_Reading, Spans] = {}
    for commit in inspector.positions.committed_ranges(source.id, down_to=point.log_version + 1):
        if commit.epoch < point.operation:
            continue
        for split, (start, end) in commit.ranges.items():
            if end > start:
                reading = (split, *commit.lives.get(split, (None, None)))
                found[reading] = with_span(found.get(reading, ()), start, end)
    return found


def _later_beginnings(
    inspector: Inspector, then: Snapshot, kind: Connector, moved: SourceRecord, impact: SourceImpact, splits: set[str]
) -> dict[str, int]:
    """The splits without positions in the catalog ``then``, each with the offset at which its reader begins after the
    next discovery."""
    stored = then.states(impact.reader.fragment)
    forgotten = {split for split, row in stored.items() if row.state == FORGOTTEN}
    if not forgotten & splits:
        return {}
    options = source_options(then, moved)
    upstream = inspector.upstreams.look(moved.connector, options)
    found = discover(inspector, kind, moved.connector, options, upstream, impact.states, forgotten=forgotten)
    return {split: found.states[split].offset for split in forgotten & splits & found.states.keys()}


def _first_lost(
    kind: Connector, read: SplitState, spans: Spans, seen: UpstreamSplit | None, begins: int | None
) -> tuple[str, int] | None:
    """Returns the status of the split, and the first offset in ``spans`` that cannot be read again. Returns None if all
    offsets in ``spans`` can be read again.

    ``begins`` is the offset at which the reader begins the split after the next discovery; None if the split keeps its
    position. Records that a log has lost at its end do not count, because removing the rows of these records is a
    purpose of REWIND.
    """
    if not spans:
        return None
    start, end = spans[0][0], spans[-1][1]
    if seen is None:
        return GONE, start
    identity = identity_status(read, seen)
    if identity != OK:
        return identity, start
    if seen.has_lost(start) or is_emptied(seen):
        return EXPIRED, start
    if seen.start > start:
        # Position 0 of a split with an open start is valid even if records after this position were removed. Nothing
        # shows whether the first existing record is the first record that was read.
        return (EXPIRED if seen.start >= end else MAY_BE_EXPIRED), start
    if begins is not None and begins > start:
        return f"BEGINS AT {shown_offset(kind, begins)}", start
    return None
