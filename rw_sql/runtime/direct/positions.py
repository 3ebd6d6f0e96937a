"""Reads the positions of a view's direct reader: the present positions, the positions before an operation, and the
ranges that the reader has read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.connectors.base import TermConnector
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import FORGOTTEN, MaterializedViewRecord
from rw_sql.model.job_ids import fragment_object
from rw_sql.plan.ports.positions import CommittedRanges, Positions
from rw_sql.runtime.delta.delta_log import job_commits, last_batch, latest_version
from rw_sql.runtime.direct.align_checkpoint import positions_of
from rw_sql.runtime.direct.checkpoint_record import Head, read_head
from rw_sql.runtime.direct.read_terms import commit_key, reached_states
from rw_sql.runtime.positions.commit_history import noted_stretches
from rw_sql.runtime.positions.logged_ranges import read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord, StoredState
    from rw_sql.runtime.support.warehouse import Warehouse

    T = TypeVar("T")


def _of_source(found: Mapping[str, T], source_id: int) -> dict[str, T]:
    prefix = commit_key(source_id, "")
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReaderContext:
    """The facts about a fragment's reader: the source, the view, the end of the view's checkpoint (``head``), and the
    last batch whose rows are in the view (``done``)."""

    warehouse: Warehouse
    source_id: int
    view: MaterializedViewRecord
    kind: Connector
    files: CheckpointFiles
    head: Head
    done: int

    @staticmethod
    def of(warehouse: Warehouse, snapshot: Snapshot, source: SourceRecord, fragment: str) -> _ReaderContext | None:
        view = snapshot.get(fragment_object(fragment))
        if not isinstance(view, MaterializedViewRecord):
            return None
        files = CheckpointFiles.at(warehouse.view_checkpoint(view.id, view.generation))
        return _ReaderContext(
            warehouse=warehouse,
            source_id=source.id,
            view=view,
            kind=connector(source.connector),
            files=files,
            head=read_head(files),
            done=last_batch(warehouse, warehouse.data(view.id, view.generation), view.generation),
        )

    def positions(self, fragment: str, stored: Mapping[str, StoredState]) -> dict[str, SplitState]:
        """The positions of the splits. A batch whose rows are in the view counts as read, even if Spark has not
        committed it."""
        states = positions_of(self.head, fragment, self.kind, stored)
        if self.head.planned > self.head.committed and self.done >= self.head.planned and self.head.record is not None:
            planned = self.head.planned_offsets(self.files, fragment, self.kind) or {}
            reflected = self.head.record.epochs.get(fragment, -1)
            states |= {
                split: replace(state, offset=planned[split], term=None)
                for split, state in states.items()
                if split in planned and stored[split].epoch <= reflected
            }
        return self.with_terms(states, stored)

    def with_terms(
        self, states: Mapping[str, SplitState], stored: Mapping[str, StoredState], *, before: int | None = None
    ) -> dict[str, SplitState]:
        """Returns the states, each with the term of the split's log. The terms come from the view's commits. If
        ``before`` is given, only commits of runs that started before the operation with this epoch count."""
        if not isinstance(self.kind, TermConnector):
            return dict(states)
        table = self.warehouse.data(self.view.id, self.view.generation)
        since = {split: stored[split].epoch for split in states}
        reached = reached_states(self.warehouse, table, self.source_id, states, since, before=before)
        return {split: replace(state, term=reached[split].term) for split, state in states.items()}


def read_fragment_positions(warehouse: Warehouse, snapshot: Snapshot, source: SourceRecord, fragment: str) -> Positions:
    """The positions of a direct reader (the offset of the next record of each split), the splits that the reader has
    read, and the incarnations of these splits."""
    stored = snapshot.states(fragment)
    reader_context = _ReaderContext.of(warehouse, snapshot, source, fragment)
    if reader_context is None:
        return Positions()
    read = read_ranges(warehouse, reader_context.view)
    lives = _of_source(read.lives, source.id)
    return Positions(
        states=reader_context.positions(fragment, stored),
        log_version=latest_version(warehouse, warehouse.data(reader_context.view.id, reader_context.view.generation)),
        read_splits=frozenset(lives),
        forgotten=frozenset(split for split, row in stored.items() if row.state == FORGOTTEN),
        lives=lives,
        is_complete=read.is_complete,
    )


def read_fragment_positions_before(
    warehouse: Warehouse,
    snapshot: Snapshot,
    source: SourceRecord,
    fragment: str,
    epoch: int,
    stood: Iterable[StoredState],
) -> dict[str, SplitState]:
    """Returns the positions of splits just before the operation with the epoch ``epoch`` took effect. ``stood`` are the
    states of these splits in the catalog when the operation was planned. The positions come from the recorded changes
    to the checkpoint."""
    rows = {row.split: row for row in stood}
    reader_context = _ReaderContext.of(warehouse, snapshot, source, fragment)
    if reader_context is None:
        kind = connector(source.connector)
        return {split: kind.decode_state(split, row.state) for split, row in rows.items()}
    change = next((c for c in reader_context.head.changes if c.epochs.get(fragment, -1) >= epoch), None)
    if change is None:
        return reader_context.positions(fragment, rows)
    then = Head(committed=change.batch, planned=change.batch, text=change.before, record=change.was, changes=())
    states = positions_of(then, fragment, reader_context.kind, rows)
    return reader_context.with_terms(states, rows, before=epoch)


def read_fragment_ranges(
    warehouse: Warehouse, snapshot: Snapshot, source: SourceRecord, fragment: str
) -> tuple[CommittedRanges, ...]:
    """The ranges that a direct reader has read, in the order of the view's commits. The ranges of cleaned-up commits
    are merged."""
    view = snapshot.get(fragment_object(fragment))
    if not isinstance(view, MaterializedViewRecord):
        return ()
    version, stretches = noted_stretches(warehouse, view)
    told = [(each.epoch, each.ranges, each.lives) for each in stretches]
    table = warehouse.data(view.id, view.generation)
    new = [(each.epoch, each.ranges, each.lives) for at, each in job_commits(warehouse, table) if at > version]
    found = []
    for epoch, ranges, lives in (*told, *reversed(new)):
        of_source = _of_source(ranges, source.id)
        if of_source:
            found.append(CommittedRanges(epoch=epoch, ranges=of_source, lives=_of_source(lives, source.id)))
    return tuple(found)
