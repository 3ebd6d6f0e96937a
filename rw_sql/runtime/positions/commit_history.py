"""Determines which ranges of offsets were read into a table between one operation and the next. The ranges are
preserved when commits are cleaned up.

A *stretch* consists of consecutive commits with contiguous offsets. The runs that made these commits started at the
same epoch, or at different epochs between which no operation changed the job's input. A file beside the checkpoints
contains the stretches of cleaned-up commits, without the splits from which nothing was read. The file therefore grows
with the number of operations on the job's input and with the number of splits that were read. The size of the file does
not depend on the number of runs or on operations on other objects. Code that reads the file adds the stretches of the
existing commits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import reader_fragment
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.source_readers import newest_change
from rw_sql.runtime.delta.delta_log import standing_commits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.runtime.delta.delta_log import JobCommit, SplitIdentity
    from rw_sql.runtime.support.warehouse import Warehouse

_FORM = 1


@dataclass(slots=True, kw_only=True)
class Stretch:
    """Consecutive commits. The runs that made these commits started at ``epoch``, or later but before the next
    operation that changed the job's input. ``ranges`` are the contiguous offsets ``[start, end)`` that the commits have
    read from each split.

    ``at`` maps each split to the newest version of the log whose commit contains the split. ``lives`` maps each split
    to its cluster and incarnation.
    """

    epoch: int
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    lives: dict[str, SplitIdentity] = field(default_factory=dict)

    @staticmethod
    def of(version: int, commit: JobCommit) -> Stretch:
        """The stretch that consists of a single commit."""
        ranges = dict(commit.ranges)
        return Stretch(epoch=commit.epoch, ranges=ranges, at=dict.fromkeys(ranges, version), lives=dict(commit.lives))

    def takes(self, later: Stretch, unchanged_since: int) -> bool:
        """True if a later stretch continues this stretch. ``unchanged_since`` is the epoch of the last operation that
        changed the job's input."""
        if self.epoch != later.epoch and min(self.epoch, later.epoch) < unchanged_since:
            return False
        for split, (start, _) in later.ranges.items():
            known = self.ranges.get(split)
            if known is not None and (known[1] != start or self.lives.get(split) != later.lives.get(split)):
                return False
        return True

    def add(self, later: Stretch) -> None:
        """Extends this stretch by a later stretch that continues this stretch."""
        for split, (start, end) in later.ranges.items():
            known = self.ranges.get(split)
            self.ranges[split] = (start if known is None else known[0], end)
            self.at[split] = later.at[split]
            if split in later.lives:
                self.lives[split] = later.lives[split]

    def leave_out_unread(self) -> None:
        """Leaves out the splits from which nothing was read."""
        self.ranges = {split: (start, end) for split, (start, end) in self.ranges.items() if end > start}
        self.at = {split: self.at[split] for split in self.ranges}
        self.lives = {split: self.lives[split] for split in self.ranges if split in self.lives}


def noted_stretches(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord) -> tuple[int, list[Stretch]]:
    """Returns two values: the version of the log up to which stretches are stored (-1 if none are stored), and the
    stored stretches in log order."""
    try:
        body = warehouse.read_json(warehouse.range_history(source.id, source.generation))
    except FileNotFoundError:
        return -1, []
    if body is None or body["form"] != _FORM:
        return -1, []
    lives = [(cluster, incarnation) for cluster, incarnation in body["lives"]]
    return body["version"], [_stretch(found, lives) for found in body["stretches"]]


def note_stretches(
    warehouse: Warehouse, snapshot: Snapshot, source: SourceRecord | MaterializedViewRecord, version: int
) -> None:
    """Stores the stretches of the commits up to a version. Must be called before these commits are cleaned up.

    ``snapshot`` is the present catalog. Commits after ``version`` are left out, because a REWIND may revert these
    commits but cannot revert the stored history. These commits need not be read, because none of them is a RESTORE to a
    version before ``version`` (:meth:`TableFiles.oldest_needed`). Reading them would take long if a slow reader has
    prevented the clean-up of a hundred thousand commits.
    """
    noted, stretches = noted_stretches(warehouse, source)
    if version <= noted:
        return
    table = warehouse.data(source.id, source.generation)
    found = list(standing_commits(warehouse, table, down_to=noted + 1, newest=version))
    new = (Stretch.of(at, commit) for at, commit in reversed(found))
    stretches = joined((*stretches, *new), unchanged_since=_newest_change(snapshot, source))
    path = warehouse.range_history(source.id, source.generation)
    warehouse.write_text(path, _to_json(version, stretches), is_durable=True)


def joined(stretches: Iterable[Stretch], *, unchanged_since: int) -> list[Stretch]:
    """Joins each stretch with the next stretches that continue it, and leaves out splits from which nothing was read.

    ``stretches`` are in log order. The function modifies these objects. ``unchanged_since`` is the epoch of the last
    operation that changed the job's input.
    """
    found: list[Stretch] = []
    for stretch in stretches:
        stretch.leave_out_unread()
        if found and found[-1].takes(stretch, unchanged_since):
            found[-1].add(stretch)
        elif stretch.ranges:
            found.append(stretch)
    return found


def _newest_change(snapshot: Snapshot, source: SourceRecord | MaterializedViewRecord) -> int:
    """The epoch of the last operation that changed the input of a source's shared reader or of a view's direct
    readers."""
    if isinstance(source, SourceRecord):
        return newest_change(snapshot, source)
    changes = (
        newest_change(snapshot, given, reader_fragment(source.id, given.id))
        for given in direct_inputs(snapshot, source)
    )
    return max((snapshot.object_epoch(source.id), *changes))


def _stretch(body: Mapping[str, Any], lives: list[SplitIdentity]) -> Stretch:
    found = Stretch(epoch=body["epoch"])
    for split, (start, end, at, life) in body["splits"].items():
        found.ranges[split] = (start, end)
        found.at[split] = at
        if life is not None:
            found.lives[split] = lives[life]
    return found


def _to_json(version: int, stretches: Iterable[Stretch]) -> str:
    lives: dict[SplitIdentity, int] = {}
    told = []
    for stretch in stretches:
        splits = {}
        for split, (start, end) in stretch.ranges.items():
            life = stretch.lives.get(split)
            number = None if life is None else lives.setdefault(life, len(lives))
            splits[split] = [start, end, stretch.at[split], number]
        told.append({"epoch": stretch.epoch, "splits": splits})
    body = {"form": _FORM, "version": version, "lives": [list(life) for life in lives], "stretches": told}
    return json.dumps(body, separators=(",", ":"))
