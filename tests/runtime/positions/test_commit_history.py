"""The stored ranges of cleaned-up commits grow with what was read and with the operations on the source only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, PutObject
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.positions.commit_history import Stretch, joined, note_stretches, noted_stretches
from rw_sql.runtime.positions.shared import read_committed_ranges, read_positions_before
from tests.crash.test_positions import ROWS, Log

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.base import SplitState


def commit(epoch: int, **ranges: tuple[int, int]) -> JobCommit:
    lives = dict.fromkeys(ranges, ("cluster", "topic"))
    return JobCommit(job="ingest-1", run=epoch, epoch=epoch, batch=0, ranges=ranges, lives=lives)


def noted(*commits: JobCommit, unchanged_since: int) -> list[tuple[int, dict[str, tuple[int, int]]]]:
    """The epochs and ranges of the stretches of these commits."""
    of_each = (Stretch.of(version, each) for version, each in enumerate(commits))
    found = joined(of_each, unchanged_since=unchanged_since)
    assert all(stretch.ranges.keys() == stretch.at.keys() == stretch.lives.keys() for stretch in found)
    return [(stretch.epoch, stretch.ranges) for stretch in found]


def test_a_split_is_listed_only_where_something_was_read_from_it() -> None:
    """A source of files names each of its files in every commit. Each new file begins a new run."""
    files = [f"f{number}" for number in range(20)]
    commits = [
        commit(10 + at, **dict.fromkeys(files[:at], (4096, 4096)), **{file: (0, 4096)}) for at, file in enumerate(files)
    ]
    found = noted(*commits, unchanged_since=30)
    assert found == [(10 + at, {file: (0, 4096)}) for at, file in enumerate(files)]
    assert noted(commit(10, a=(0, 0)), commit(11, b=(4, 4)), unchanged_since=0) == []


def test_runs_between_which_nothing_changed_for_the_source_are_one_stretch() -> None:
    commits = [commit(10 + at, a=(at, at + 1), b=(0, 0) if at % 2 else (at // 2, at // 2 + 1)) for at in range(100)]
    assert noted(*commits, unchanged_since=10) == [(10, {"a": (0, 100), "b": (0, 50)})]
    # An operation at epoch 12 changed what the source reads.
    assert noted(*commits[:4], unchanged_since=12) == [
        (10, {"a": (0, 1), "b": (0, 1)}),
        (11, {"a": (1, 2)}),
        (12, {"a": (2, 4), "b": (1, 2)}),
    ]
    # Read again, read from another place, read from another topic.
    assert len(noted(commit(10, a=(0, 5)), commit(11, a=(3, 6)), unchanged_since=5)) == 2
    assert len(noted(commit(10, a=(0, 5)), commit(11, a=(7, 8)), unchanged_since=5)) == 2
    other = JobCommit(job="", run=2, epoch=11, batch=0, ranges={"a": (5, 6)}, lives={"a": ("cluster", "other")})
    assert len(noted(commit(10, a=(0, 5)), other, unchanged_since=5)) == 2


def reach(log: Log, epoch: int) -> dict[str, int]:
    stood = log.metastore.snapshot().states("ingest-1").values()
    states: dict[str, SplitState] = read_positions_before(log.context.warehouse, log.source, epoch, stood)
    return {split: state.offset for split, state in states.items()}


def test_an_operation_on_the_source_ends_a_stretch_and_any_other_does_not(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def wake(start: int, other: int = 0) -> None:
        """Another object is created, and the source reads one record in a new run."""
        id_ = log.metastore.snapshot().next_id
        view = MaterializedViewRecord(id=id_, name=f"v{id_}", definition="", query="", schema="", inputs=())
        log.put(PutObject(record=view))
        log.start().append_rows(ROWS, 0, {"a:0": (start, start + 1), "b:0": (other, other)})

    def note() -> list[Stretch]:
        note_stretches(log.context.warehouse, log.metastore.snapshot(), log.source, log.log_version())
        return noted_stretches(log.context.warehouse, log.source)[1]

    for start in range(4):
        wake(start)
    assert [stretch.ranges for stretch in note()] == [{"a:0": (0, 4)}]
    wake(4)
    (stretch,) = note()
    assert (stretch.ranges, stretch.at) == ({"a:0": (0, 5)}, {"a:0": log.log_version()})
    moved = log.put(log.states(log.log_version(), a=2, b=7))
    for start in range(2, 5):
        wake(start, 7)
    assert [stretch.ranges for stretch in note()] == [{"a:0": (0, 5)}, {"a:0": (2, 5)}]
    told = read_committed_ranges(log.context.warehouse, log.source)
    assert [each.epoch < moved for each in told] == [True, False]
    # The position just before a later operation, from the stored stretches alone.
    log.clean()
    assert reach(log, log.metastore.snapshot().epoch + 1) == {"a:0": 5, "b:0": 7}


def test_a_history_of_an_earlier_version_is_made_small(tmp_path: Path) -> None:
    log = Log(tmp_path)
    output = log.start()
    for batch in range(3):
        output.append_rows(ROWS, batch, {"a:0": (batch, batch + 1), "b:0": (0, 0)})
    path = log.context.warehouse.range_history(1, 1)
    epoch = output.epoch
    parts = ",".join(
        f'{{"epoch":{epoch + at},"splits":{{"a:0":[{at},{at + 1},0,null],"b:0":[0,0,0,null]}}}}' for at in range(2)
    )
    version = log.log_version() - 1
    log.context.warehouse.write_text(path, f'{{"form":1,"version":{version},"lives":[],"stretches":[{parts}]}}')
    note_stretches(log.context.warehouse, log.metastore.snapshot(), log.source, log.log_version())
    _, (stretch,) = noted_stretches(log.context.warehouse, log.source)
    assert (stretch.epoch, stretch.ranges) == (epoch, {"a:0": (0, 3)})
