"""The ranges of offsets that were read into a table, listed separately for the time after each operation. The ranges
are preserved when commits are cleaned up.

A *stretch* consists of consecutive commits of one epoch with contiguous offsets. A file beside the checkpoints contains
the stretches of cleaned-up commits. Code that reads the file adds the stretches of the existing commits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.delta.delta_log import standing_commits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
    from rw_sql.runtime.delta.delta_log import JobCommit, SplitIdentity
    from rw_sql.runtime.support.warehouse import Warehouse

_FORM = 1


@dataclass(slots=True, kw_only=True)
class Stretch:
    """Commits of runs that started at ``epoch``, with the contiguous offsets ``[start, end)`` that they have read from
    each split.

    ``at`` is, for each split, the newest version of the log whose commit contains the split. ``lives`` has the cluster
    and incarnation of each split.
    """

    epoch: int
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    lives: dict[str, SplitIdentity] = field(default_factory=dict)

    def takes(self, commit: JobCommit) -> bool:
        """True if a commit continues this stretch."""
        if commit.epoch != self.epoch:
            return False
        for split, (start, _) in commit.ranges.items():
            known = self.ranges.get(split)
            if known is not None and (known[1] != start or self.lives.get(split) != commit.lives.get(split)):
                return False
        return True

    def add(self, version: int, commit: JobCommit) -> None:
        """Extends the stretch by a commit."""
        for split, (start, end) in commit.ranges.items():
            known = self.ranges.get(split)
            self.ranges[split] = (start if known is None else known[0], end)
            self.at[split] = version
            if split in commit.lives:
                self.lives[split] = commit.lives[split]


def noted_stretches(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord) -> tuple[int, list[Stretch]]:
    """The version of the log up to which stretches are stored (-1: none are), and the stored stretches in log order."""
    try:
        body = warehouse.read_json(warehouse.range_history(source.id, source.generation))
    except FileNotFoundError:
        return -1, []
    if body is None or body["form"] != _FORM:
        return -1, []
    lives = [(cluster, incarnation) for cluster, incarnation in body["lives"]]
    return body["version"], [_stretch(found, lives) for found in body["stretches"]]


def note_stretches(warehouse: Warehouse, source: SourceRecord | MaterializedViewRecord, version: int) -> None:
    """Stores the stretches of the commits up to a version. Must be called before these commits are cleaned up.

    Later commits are left out, because a REWIND may revert them but cannot revert the stored history.
    """
    noted, stretches = noted_stretches(warehouse, source)
    if version <= noted:
        return
    table = warehouse.data(source.id, source.generation)
    found = [(at, commit) for at, commit in standing_commits(warehouse, table, down_to=noted + 1) if at <= version]
    stretches = _with(stretches, reversed(found))
    path = warehouse.range_history(source.id, source.generation)
    warehouse.write_text(path, _to_json(version, stretches), is_durable=True)


def _with(stretches: list[Stretch], commits: Iterable[tuple[int, JobCommit]]) -> list[Stretch]:
    for version, commit in commits:
        if not commit.ranges:
            continue
        if not stretches or not stretches[-1].takes(commit):
            stretches.append(Stretch(epoch=commit.epoch))
        stretches[-1].add(version, commit)
    return stretches


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
