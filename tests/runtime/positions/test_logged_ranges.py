"""The offsets that a log contains: computed from its commits, stored beside them, and right after a restore."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.offset_ranges import ReadIncarnation
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.positions import logged_ranges as module
from rw_sql.runtime.positions.logged_ranges import (
    ReadRanges,
    held_log,
    note_cleaned_ranges,
    note_ranges,
    read_ranges,
)
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
BUCKETS = SCHEMA.replace("]}", ',{"name":"_rw_bucket","type":"integer","nullable":true,"metadata":{}}]}')
SOURCE = SourceRecord(id=1, name="s", definition="", connector="kafka", options=(), is_shared=True)
LIFE = ("c", "first")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


class Log:
    """The log of a source with one run after the other."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.table = warehouse.data(1, 1)
        self.run = 0
        self.start()

    def start(self, life: tuple[str | None, str | None] = LIFE) -> None:
        self.run += 1
        self.output = JobOutput.open(self.warehouse, self.table, SCHEMA, job="ingest-1", run=self.run, epoch=1)
        self.output.lives = {"t:0": life, "t:1": life}
        self.batch = 0

    def read(self, rows: int | None = None, **ranges: tuple[int, int]) -> None:
        named = {f"t:{name[1:]}": bounds for name, bounds in ranges.items()}
        count = sum(end - start for start, end in named.values()) if rows is None else rows
        self.output.append_rows(pa.table({"id": pa.array(range(count), pa.int32())}), self.batch, named)
        self.batch += 1

    def held(self) -> ReadRanges:
        """The ranges that a process without any cached state finds."""
        module._folded.clear()
        return read_ranges(self.warehouse, SOURCE)

    def clean(self, keep_from: int) -> None:
        """Upkeep by another process: stores the ranges and removes the commits before a version."""
        known = dict(module._folded)
        module._folded.clear()
        note_ranges(self.warehouse, SOURCE)
        note_cleaned_ranges(self.warehouse, SOURCE, keep_from - 1)
        self.remove(keep_from)
        module._folded.clear()
        module._folded.update(known)

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.output.table.version()

    def remove(self, keep_from: int) -> None:
        """Removes the commits before a version."""
        self.output.table.create_checkpoint()
        for version in range(keep_from):
            self.warehouse.remove(f"{self.table}/_delta_log/{version:020d}.json")


def life(*spans: tuple[int, int], reached: int, incarnation: str = "first") -> ReadIncarnation:
    return ReadIncarnation(spans=spans, reached=reached, cluster="c", incarnation=incarnation)


def test_ranges_join_and_incarnations_stay_apart(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5), p1=(3, 3))
    log.read(p0=(5, 9), p1=(3, 4))
    log.start()
    log.read(p0=(20, 25))
    log.read(p0=(2, 4))
    log.start(("c", "second"))
    log.read(p0=(0, 2))
    found = log.held()
    assert found.lives == {
        "t:0": (life((0, 9), (20, 25), reached=4), life((0, 2), reached=2, incarnation="second")),
        "t:1": (life((3, 4), reached=4),),
    }
    assert (found.sparse, found.is_complete) == (frozenset(), True)


def test_fewer_rows_than_offsets_are_holes(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    log.read(rows=3, p1=(0, 5))
    assert log.held().sparse == {"t:1"}


def test_the_file_outlives_the_commits(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    note_ranges(warehouse, SOURCE)
    log.read(p0=(5, 7))
    for version in range(3):
        warehouse.remove(f"{log.table}/_delta_log/{version:020d}.json")
    found = log.held()
    assert found.lives == {"t:0": (life((0, 7), reached=7),)}
    assert found.is_complete
    warehouse.remove(warehouse.read_ranges(1, 1))
    found = log.held()
    assert found.lives == {"t:0": (life((5, 7), reached=7),)}
    assert not found.is_complete


@pytest.mark.parametrize("lost", ["", "read_ranges", "cleaned_ranges"])
def test_ranges_of_cleaned_commits_are_read_from_the_files(warehouse: Warehouse, lost: str) -> None:
    """This process reads the ranges once, and again after another process has cleaned up commits."""
    log = Log(warehouse)
    log.read(p0=(0, 5))
    log.held()
    log.read(p0=(5, 9))
    log.read(p0=(9, 12))
    log.clean(log.newest)
    if lost:
        warehouse.remove(getattr(warehouse, lost)(1, 1))
    log.read(p0=(12, 14))
    found = read_ranges(warehouse, SOURCE)
    assert (found.lives, found.is_complete) == ({"t:0": (life((0, 14), reached=14),)}, True)
    assert [(piece.start, piece.end) for piece in found.pieces["t:0"]] == [(0, 14)]
    # What this process then stores is complete as well.
    note_ranges(warehouse, SOURCE)
    log.read(p0=(14, 15))
    log.remove(log.newest)
    found = log.held()
    assert (found.lives, found.is_complete) == ({"t:0": (life((0, 15), reached=15),)}, True)


def test_ranges_that_lack_commits_do_not_replace_complete_ones(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    log.held()
    log.read(p0=(5, 9))
    log.clean(log.newest)
    path = warehouse.read_ranges(1, 1)
    complete = warehouse.read_text(path)
    log.read(p0=(9, 12))
    log.read(p0=(12, 14))
    # Another program removes a commit whose ranges are not stored.
    log.remove(log.newest)
    warehouse.remove(warehouse.cleaned_ranges(1, 1))
    found = read_ranges(warehouse, SOURCE)
    assert not found.is_complete
    note_ranges(warehouse, SOURCE)
    assert json.loads(warehouse.read_text(path))["is_complete"]
    assert warehouse.read_text(path) == complete


def test_incomplete_ranges_of_an_earlier_version_are_computed_again(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    log.read(p0=(5, 9))
    log.clean(log.newest)
    path = warehouse.read_ranges(1, 1)
    holed = replace(log.held(), lives={"t:0": (life((5, 9), reached=9),)}, is_complete=False)
    warehouse.write_text(path, module._to_json(holed))
    log.read(p0=(9, 12))
    found = log.held()
    assert (found.lives, found.is_complete) == ({"t:0": (life((0, 12), reached=12),)}, True)
    note_ranges(warehouse, SOURCE)
    assert json.loads(warehouse.read_text(path))["is_complete"]


def test_what_is_known_is_folded_on(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    assert log.held().lives == {"t:0": (life((0, 5), reached=5),)}
    log.read(p0=(5, 6))
    note_ranges(warehouse, SOURCE)
    assert read_ranges(warehouse, SOURCE).lives == {"t:0": (life((0, 6), reached=6),)}


def test_a_restored_log_holds_what_it_held_then(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5))
    version = DeltaTable(log.table).version()
    log.read(p0=(5, 9))
    DeltaTable(log.table).restore(version)
    assert log.held().lives == {"t:0": (life((0, 5), reached=5),)}


@pytest.mark.parametrize(
    "lives",
    [{}, {"t:0": LIFE, "t:1": LIFE}, {"t:0": LIFE, "t:1": ("c", "second")}, {"t:0": (None, None), "t:1": LIFE}],
)
def test_commits_name_the_incarnations_of_their_splits(lives: dict[str, tuple[str | None, str | None]]) -> None:
    commit = JobCommit(job="j", run=1, epoch=1, batch=0, ranges={"t:0": (0, 1), "t:1": (0, 2)}, lives=lives)
    read = JobCommit.from_json(commit.to_json())
    assert read is not None
    assert [read.identity_of(split) for split in ("t:0", "t:1")] == [
        commit.identity_of(split) for split in ("t:0", "t:1")
    ]


def spelt(found: ReadRanges) -> dict[str, list[tuple[int, int, int, int]]]:
    return {
        split: [(piece.first_run, piece.last_run, piece.start, piece.end) for piece in pieces]
        for split, pieces in found.pieces.items()
    }


def test_pieces_name_the_runs_that_read_them(warehouse: Warehouse) -> None:
    log = Log(warehouse)
    log.read(p0=(0, 5), p1=(3, 4))
    log.read(p0=(5, 9))
    log.start()
    log.read(p0=(9, 11))
    log.start()
    log.read(p0=(2, 4))
    log.start(("c", "second"))
    log.read(p0=(4, 6))
    assert spelt(log.held()) == {"t:0": [(1, 2, 0, 11), (3, 3, 2, 4), (4, 4, 4, 6)], "t:1": [(1, 1, 3, 4)]}
    note_ranges(warehouse, SOURCE)
    again = log.held()
    assert spelt(again) == {"t:0": [(1, 2, 0, 11), (3, 3, 2, 4), (4, 4, 4, 6)], "t:1": [(1, 1, 3, 4)]}
    assert again.trimmed is None
    assert held_log(warehouse, SOURCE) == (again.version, again.pieces)


def test_a_piece_ends_where_a_later_run_reads_on_in_another_term(warehouse: Warehouse) -> None:
    """The log may have been cut before this position, from which an INJECT has let the source continue."""
    log = Log(warehouse)
    log.output.terms = {"t:0": 1}
    log.read(p0=(0, 5))
    # This run has checked that the records before are still there.
    log.output.terms = {"t:0": 2}
    log.read(p0=(5, 9))
    log.start()
    log.output.terms = {"t:0": 2}
    log.read(p0=(9, 11))
    log.start()
    log.output.terms = {"t:0": 3}
    log.read(p0=(11, 12))
    found = log.held()
    assert [(piece.version, piece.start, piece.end, piece.term) for piece in found.pieces["t:0"]] == [
        (2, 0, 11, 2),
        (7, 11, 12, 3),
    ]
    note_ranges(warehouse, SOURCE)
    for version in range(7):
        warehouse.remove(f"{log.table}/_delta_log/{version:020d}.json")
    assert log.held().pieces == found.pieces
    # The file of an earlier version of rw_sql.
    path = warehouse.read_ranges(1, 1)
    body = json.loads(warehouse.read_text(path))
    del body["readings"], body["piece_readings"]
    warehouse.write_text(path, json.dumps(body))
    assert log.held().pieces == {
        "t:0": tuple(replace(piece, version=-1, epoch=0, term=None) for piece in found.pieces["t:0"])
    }


def test_of_a_log_without_its_old_buckets_only_what_is_there_is_held(warehouse: Warehouse) -> None:
    table = DeltaTable.create(
        warehouse.data(1, 1), Schema.from_json(BUCKETS), mode="ignore", partition_by=["_rw_bucket"]
    )
    output = JobOutput.open(warehouse, warehouse.data(1, 1), BUCKETS, job="ingest-1", run=1, epoch=1)
    for batch, bucket in enumerate((7, 7, 8, 9)):
        rows = pa.table({"id": pa.array(range(10), pa.int32()), "_rw_bucket": pa.array([bucket] * 10, pa.int32())})
        output.append_rows(rows, batch, {"t:0": (batch * 10, batch * 10 + 10)})
    table.update_incremental()
    table.delete("_rw_bucket <= 7")
    module._folded.clear()
    before_ms = int(time.time() * 1000)
    found = read_ranges(warehouse, SOURCE)
    assert found.trimmed == 7
    assert found.trimmed_ms is not None
    assert before_ms - 60_000 < found.trimmed_ms <= before_ms
    assert module._from_json(json.loads(module._to_json(found))) == found
    assert found.lives["t:0"].__len__() == 1
    version, pieces = held_log(warehouse, SOURCE)
    assert version == found.version
    assert [(piece.start, piece.end) for piece in pieces["t:0"]] == [(20, 40)]
