"""Determines the positions of a shared source. These are the positions in the catalog, advanced by the later commits of
the source's log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.plan.ports.positions import CommittedRanges, Positions
from rw_sql.runtime.delta.delta_log import job_commits, latest_version, standing_commits
from rw_sql.runtime.positions.commit_history import noted_stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.metastore import Metastore, Snapshot
    from rw_sql.metastore.facts import NotedPosition
    from rw_sql.metastore.records import SourceRecord, StoredState
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.support.warehouse import Warehouse


ALL_SPLITS = ""
"""The name of a special note, which belongs to no split. This note stores a version of the log: the notes of the splits
include all commits up to this version."""


def known_state(row: StoredState, note: NotedPosition | None) -> str:
    """Returns a split's position. ``row`` contains the position that a statement has set, and ``note`` is the split's
    noted position (None if there is none). The result is the noted position if it was recorded after the statement;
    otherwise, it is the position from ``row``."""
    return note.state if note is not None and note.counts(row) else row.state


def read_positions(warehouse: Warehouse, metastore: Metastore, snapshot: Snapshot, source: SourceRecord) -> Positions:
    """The position of each split that has a position. A position is the offset of the next record to read.

    A position that a statement has set is valid from the statement's epoch on. Commits of runs that started before the
    statement do not advance this position, because a batch that such a run commits after the statement would otherwise
    undo the statement. Among the other commits, the last commit that contains the split determines the split's
    position. This function does not read commits that are older than a note. The result's ``read_splits`` may therefore
    lack some splits from which records were read.
    """
    kind = connector(source.connector)
    fragment = ingest_fragment(source.id)
    stored = snapshot.states(fragment)
    noted = metastore.jobs.noted_positions(fragment)
    mark = noted.get(ALL_SPLITS)
    states: dict[str, SplitState] = {}
    began: dict[str, int] = {}
    floor: dict[str, int] = {}
    forgotten = frozenset(split for split, row in stored.items() if row.state == FORGOTTEN)
    for split, row in stored.items():
        if split in forgotten:
            continue
        states[split] = kind.decode_state(split, row.state)
        began[split] = states[split].offset
        floor[split] = row.log_version + 1
        note = noted.get(split)
        if note is not None and note.counts(row):
            reached = kind.decode_state(split, note.state)
            states[split] = replace(states[split], offset=reached.offset, term=reached.term)
            floor[split] = note.log_version + 1
        if mark is not None and mark.counts(row):
            floor[split] = max(floor[split], mark.log_version + 1)
    table = warehouse.data(source.id, source.generation)
    version = latest_version(warehouse, table)
    missing = {split for split in states if floor[split] <= version}
    read: set[str] = set()
    if missing or not noted:
        for at, commit in job_commits(warehouse, table, down_to=min((floor[s] for s in missing), default=0)):
            # Later commits are ignored, because a position must match the log version returned with it.
            if at > version:
                continue
            read.update(split for split, (start, end) in commit.ranges.items() if end > start)
            for split in missing & commit.ranges.keys():
                if at >= floor[split] and commit.epoch >= stored[split].epoch:
                    reached_term = commit.terms.get(split)
                    states[split] = replace(states[split], offset=commit.ranges[split][1], term=reached_term)
                    missing.discard(split)
            missing -= {split for split in missing if at <= floor[split]}
            if not missing:
                break
    read.update(split for split, state in states.items() if state.offset != began[split])
    return Positions(states=states, log_version=version, read_splits=frozenset(read), forgotten=forgotten)


def states_at(positions: Mapping[str, int], identities: Mapping[str, SplitIdentity]) -> dict[str, SplitState]:
    """Returns the state of each split in ``positions``, which maps the splits to the offsets of their next records.
    ``identities`` contains the cluster and the incarnation of each split."""
    return {
        split: SplitState(split=split, offset=offset, cluster=cluster, incarnation=incarnation)
        for split, offset in dict(positions).items()
        for cluster, incarnation in [identities[split]]
    }


def oldest_reader_epoch(warehouse: Warehouse, metastore: Metastore, source: SourceRecord) -> int | None:
    """The start epoch of the oldest run that may still commit to a source's log; None if no run was claimed yet.

    The last commit has fenced all runs before its own run. Therefore, the oldest run that may still commit is the run
    of the last commit, or a run that was claimed later. If a process has claimed a later run, its earlier runs count as
    ended. The result is 0 if the catalog may no longer list all runs that may still commit.
    """
    runs = metastore.jobs.runs(ingest_fragment(source.id))
    if not runs:
        return None
    table = warehouse.data(source.id, source.generation)
    fenced = next((commit.run for _, commit in job_commits(warehouse, table)), 0)
    if runs[0].run > max(fenced, 1):
        return 0
    newest_of = {run.owner: run for run in runs if run.run >= fenced}
    return min((run.epoch for run in newest_of.values()), default=runs[-1].epoch)


def read_positions_before(
    warehouse: Warehouse, source: SourceRecord, epoch: int, stood: Iterable[StoredState]
) -> dict[str, SplitState]:
    """The positions of splits just before the operation with ``epoch`` took effect.

    ``stood`` are the positions at the time when the operation was planned. After that time, a run that started before
    the operation may have committed further batches until it was stopped. The result includes these batches.
    """
    kind = connector(source.connector)
    waiting = {row.split: row for row in stood}
    states = {split: kind.decode_state(split, row.state) for split, row in waiting.items()}
    table = warehouse.data(source.id, source.generation)
    floor = min((row.log_version for row in waiting.values()), default=0) + 1
    for at, commit in job_commits(warehouse, table, down_to=floor):
        if commit.epoch < epoch:
            reached = {split: (end, at) for split, (_, end) in commit.ranges.items()}
            _take(states, waiting, commit.epoch, reached, commit.terms)
        if not waiting:
            return states
    _, stretches = noted_stretches(warehouse, source)
    for stretch in reversed(stretches):
        if stretch.epoch < epoch:
            ends = {split: (end, stretch.at[split]) for split, (_, end) in stretch.ranges.items()}
            _take(states, waiting, stretch.epoch, ends, {})
    return states


def _take(
    states: dict[str, SplitState],
    waiting: dict[str, StoredState],
    epoch: int,
    ends: Mapping[str, tuple[int, int]],
    terms: Mapping[str, int],
) -> None:
    """Adds positions from a commit to ``states``. ``waiting`` contains the splits whose positions are not known yet.
    Such a split gets the commit's end offset if the commit is later than the statement that set the split's position,
    and the commit's run is not older than that statement.

    ``ends`` are the commit's pairs (end offset, version of the log) by split, and ``terms`` are the terms at these
    offsets. ``epoch`` is the epoch at which the commit's run started.
    """
    for split in waiting.keys() & ends.keys():
        row, (end, at) = waiting[split], ends[split]
        if at > row.log_version and epoch >= row.epoch:
            states[split] = replace(states[split], offset=end, term=terms.get(split))
            del waiting[split]


def read_committed_ranges(
    warehouse: Warehouse, source: SourceRecord, *, down_to: int = 0
) -> tuple[CommittedRanges, ...]:
    """The ranges that the commits of a source's log have read, in log order. Commits that a REWIND has reverted are
    left out.

    Contiguous ranges of cleaned-up commits are merged. Commits before the version ``down_to`` are not read.
    """
    version, stretches = noted_stretches(warehouse, source)
    told = [
        CommittedRanges(epoch=each.epoch, ranges=each.ranges, lives=each.lives)
        for each in stretches
        if max(each.at.values(), default=-1) >= down_to
    ]
    found: list[CommittedRanges] = []
    table = warehouse.data(source.id, source.generation)
    for _, commit in standing_commits(warehouse, table, down_to=max(version + 1, down_to)):
        if commit.ranges:
            found.append(CommittedRanges(epoch=commit.epoch, ranges=commit.ranges, lives=commit.lives))
    return (*told, *reversed(found))
