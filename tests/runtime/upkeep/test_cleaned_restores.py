"""Upkeep never stores facts about commits that a later RESTORE reverts while that RESTORE stays in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import RewindPoint
from rw_sql.model.backfill_ranges import History, SplitHistory, plan_portions
from rw_sql.plan.statements.show.continuity import stretches
from rw_sql.runtime.delta import restores, table_files
from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.positions import logged_ranges
from rw_sql.runtime.positions.logged_ranges import held_pieces, read_ranges
from rw_sql.runtime.positions.shared import read_committed_ranges
from tests.runtime.maintained_log import SPLIT_NAME, MaintainedLog

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from rw_sql.runtime.support.warehouse import Warehouse


class RewoundLog:
    """A log with rewind points, and REWINDs to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.log = MaintainedLog.open(self.folder)
        self.points: dict[int, RewindPoint] = {}

    def make_point(self, operation: int) -> None:
        """A point for an operation, and the run after that operation."""
        log = self.log
        point = RewindPoint(
            source_id=log.source.id,
            operation=operation,
            made_ms=0,
            folder=f"p{operation}",
            log_version=log.output.table.version(),
        )
        log.context.metastore.jobs.write_rewind_points((point,))
        self.points[operation] = point
        log.output = MaintainedLog.open(self.folder, run=operation).output

    def erase_point(self, operation: int) -> None:
        gone = RewindPoint(source_id=self.log.source.id, operation=operation, made_ms=0, reason="old")
        self.log.context.metastore.jobs.replace_rewind_points((gone,))

    def rewind(self, epoch: int, operation: int, *, end: int) -> None:
        """A REWIND at an epoch, which gets a point of its own."""
        self.make_point(epoch)
        self.log.output.restore(self.points[operation].log_version, rewind=epoch, done=-1)
        self.log.end = end

    def held(self) -> list[int]:
        """The offsets in the log according to its ranges, as a new process finds them."""
        logged_ranges._folded.clear()
        found = read_ranges(self.log.warehouse, self.log.source)
        assert found.is_complete
        return sorted(
            offset for life in found.lives[SPLIT_NAME] for span in life.spans for offset in range(span[0], span[1])
        )


@pytest.fixture
def rewound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RewoundLog:
    """Operation 20 has moved the source to another position, and upkeep has run while it read from there."""
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    found = RewoundLog(tmp_path)
    found.log.append(3)
    found.make_point(20)
    return found


def read_on(rewound: RewoundLog, start: int) -> None:
    rewound.log.end = start
    for _ in range(2):
        rewound.log.append(4)
        rewound.log.turn()


@pytest.mark.parametrize("start", [0, 1000])
@pytest.mark.parametrize("is_apart", [True, False])
def test_ranges_are_those_of_the_rows_after_the_point_of_a_rewind_outlives_its_target(
    rewound: RewoundLog, start: int, is_apart: bool
) -> None:
    log = rewound.log
    read_on(rewound, start)
    rewound.rewind(30, 20, end=6)
    log.append(3)
    log.turn()
    rewound.erase_point(20)
    if is_apart:
        log.turn()
    rewound.erase_point(30)
    log.append(3)
    log.turn()
    assert logged_ranges._cleaned(log.warehouse, log.source).version > rewound.points[30].log_version
    rewound.make_point(50)
    log.append(2)
    rewound.rewind(60, 50, end=18)
    log.turn()
    log.append(1)
    log.turn()
    assert log.ids() == list(range(20))
    assert rewound.held() == log.ids()
    of_split = SplitHistory(split=SPLIT_NAME, start=0, end=20)
    history = History(source_id=log.source.id, log_version=log.output.table.version(), splits=(of_split,))
    chunks = plan_portions(history, held_pieces(log.warehouse, log.source), {})
    (chunk,) = chunks.from_log
    assert (chunk.start, chunk.end) == (0, 20)
    assert chunk.runs is not None
    assert chunk.runs[0] == 1
    assert not chunks.from_upstream


def test_a_rewind_of_a_rewind_brings_the_stored_history_back(rewound: RewoundLog) -> None:
    log = rewound.log
    read_on(rewound, 6)
    rewound.rewind(30, 20, end=6)
    log.append(2)
    rewound.erase_point(20)
    log.turn()
    rewound.rewind(40, 30, end=22)
    log.append(2)
    log.turn()
    rewound.erase_point(30)
    log.turn()
    assert len(log.ids()) == 26
    assert rewound.held() == log.ids()
    of_operations, _ = stretches(read_committed_ranges(log.warehouse, log.source), [20, 30, 40])
    assert of_operations
    read = sorted(found.ranges[SPLIT_NAME] for found in read_committed_ranges(log.warehouse, log.source))
    assert (read[0][0], read[-1][1]) == (0, 26)
    assert sum(end - start for start, end in read) == 26


def test_upkeep_reads_each_commit_after_a_restore_once(rewound: RewoundLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = rewound.log
    read_on(rewound, 6)
    rewound.rewind(30, 20, end=6)
    rewound.erase_point(20)
    found: list[int] = []

    def read(warehouse: Warehouse, table: str, version: int) -> list[dict[str, Any]]:
        found.append(version)
        return read_actions(warehouse, table, version)

    monkeypatch.setattr(restores, "read_actions", read)
    for _ in range(5):
        log.append(2)
        log.turn()
    assert len(found) == len(set(found)) > 0


def test_a_restore_to_a_version_before_the_stored_ranges_makes_them_incomplete(rewound: RewoundLog) -> None:
    """A warehouse of an earlier version of rw_sql may contain such a file."""
    log = rewound.log
    read_on(rewound, 1000)
    newest = log.output.table.version()
    logged_ranges.note_cleaned_ranges(log.warehouse, log.source, newest)
    for version in log.versions():
        if version < rewound.points[20].log_version:
            log.warehouse.remove(f"{log.output.path}/_delta_log/{version:020d}.json")
    log.warehouse.remove(log.warehouse.read_ranges(log.source.id, 1))
    rewound.rewind(30, 20, end=6)
    log.append(1)
    logged_ranges._folded.clear()
    logged_ranges.note_cleaned_ranges(log.warehouse, log.source, log.output.table.version())
    found = logged_ranges._cleaned(log.warehouse, log.source)
    assert not found.is_complete
    assert all(end <= 8 for life in found.lives[SPLIT_NAME] for _, end in life.spans)
