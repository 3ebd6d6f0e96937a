"""When the user confirms an INJECT, checks that the upstream still has the positions that the preview showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import FORGOTTEN, PutSplitStates, SourceRecord
from rw_sql.model.job_specs import named_splits
from rw_sql.model.options import source_options
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import OK, split_status
from rw_sql.plan.effects.verdicts import preview_splits, with_cuts
from rw_sql.plan.ports.upstreams import look_closely
from rw_sql.plan.result.allow import effect_without_counts
from rw_sql.syntax.statements import InjectSourceOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore import Snapshot
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan, Preview


def is_inject_current(shown: Plan, snapshot: Snapshot, inspector: Inspector) -> bool:
    """True if the plan of an INJECT SOURCE OFFSETS still has the effect that its preview shows.

    The catalog must not have changed since the preview. The function contacts the upstream, which may have changed: a
    topic may have been deleted and created again, retention may have removed records, or a log may have been cut. New
    records and new splits do not count as a change, because the statement does not affect them.
    """
    source = snapshot.get(shown.affected[0]) if shown.affected else None
    if not isinstance(source, SourceRecord) or shown.preview is None or shown.operation is None:
        return False
    readers = readers_of(snapshot, source)
    parts = shown.preview.parts or (shown.preview,)
    set_states = {c.fragment: c.states for c in shown.operation.changes if isinstance(c, PutSplitStates)}
    return len(parts) == len(readers) and all(
        _is_current(shown, snapshot, inspector, reader, part, set_states.get(reader.fragment, {}))
        for reader, part in zip(readers, parts, strict=True)
    )


def _is_current(
    shown: Plan, snapshot: Snapshot, inspector: Inspector, reader: Reader, part: Preview, encoded: Mapping[str, str]
) -> bool:
    source = reader.source
    kind = connector(source.connector)
    options = source_options(snapshot, source)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    if not upstream.is_reachable:
        return not (isinstance(shown.statement, InjectSourceOffsets) and shown.statement.is_validated)
    states = {split: kind.decode_state(split, state) for split, state in encoded.items() if state != FORGOTTEN}
    before = {row.split: row for row in part.splits}
    for split, state in states.items():
        seen = upstream.splits.get(split)
        is_as_before = seen is None and split in before and before[split].start is None
        if not is_as_before and split_status(state, seen) != OK:
            return False
    positions = inspector.positions.of(source.id, reader.fragment)
    positions = with_cuts(inspector, source.connector, options, upstream, positions, states)
    assigned = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    target: dict[str, SplitState | None] = {s: states.get(s, positions.states.get(s)) for s in assigned}
    now = {row.split: effect_without_counts(row) for row in preview_splits(kind, upstream, positions, target)}
    return all(split in before and now.get(split) == effect_without_counts(before[split]) for split in target)
