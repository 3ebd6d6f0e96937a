"""An upkeep that follows soon after the last one compacts only the tiny files, so that no batch waits for seconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta import compaction
from rw_sql.runtime.delta.compaction import compact
from rw_sql.runtime.upkeep import table_upkeep
from rw_sql.runtime.upkeep.table_upkeep import WHOLE_EVERY_SECONDS
from tests.runtime.maintained_log import MaintainedLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KILO = 1 << 10


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "TARGET_BYTES", 640 * KILO)
    monkeypatch.setattr(compaction, "TINY_BYTES", 10 * KILO)
    monkeypatch.setattr(compaction, "MOST_SMALL_FILES", 3)
    monkeypatch.setattr(compaction, "MOST_LEFT_FILES", 20)


def add(folder: Path, sizes: Sequence[int], hour: int = 7) -> None:
    """Appends files of about these sizes in bytes."""
    for size in sizes:
        rows = pa.table({"content": [os.urandom(size)], "hour": pa.array([hour], pa.int32())})
        write_deltalake(str(folder), rows, mode="append", partition_by=["hour"])


def kilobytes(folder: Path) -> list[int]:
    """The sizes of the table's files, to ten kilobytes."""
    sizes = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return sorted(round(size / KILO, -1) for size in sizes)


def brief(folder: Path) -> int:
    return compact(DeltaTable(str(folder)), "hour", is_brief=True)


def test_files_that_are_not_tiny_stay(tmp_path: Path) -> None:
    add(tmp_path, [100 * KILO] * 3 + [KILO] * 5)
    assert brief(tmp_path) == 5
    assert kilobytes(tmp_path) == [10, 100, 100, 100]
    assert compact(DeltaTable(str(tmp_path)), "hour") == 4
    assert kilobytes(tmp_path) == [310]


def test_a_few_tiny_files_stay(tmp_path: Path) -> None:
    add(tmp_path, [100 * KILO] * 5 + [KILO] * 3)
    assert brief(tmp_path) == 0


def test_files_of_earlier_hours_stay(tmp_path: Path) -> None:
    add(tmp_path, [KILO] * 5, hour=6)
    add(tmp_path, [KILO] * 5)
    assert brief(tmp_path) == 5
    assert kilobytes(tmp_path) == [0, 0, 0, 0, 0, 10]


def test_all_small_files_are_compacted_if_there_are_very_many(tmp_path: Path) -> None:
    add(tmp_path, [20 * KILO] * 21)
    assert brief(tmp_path) == 21
    assert kilobytes(tmp_path) == [420]


def test_all_small_files_are_compacted_before_they_are_more_than_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the compaction after ten minutes would rewrite all of them at once, and a pause would wait for it."""
    monkeypatch.setattr(compaction, "TURN_BYTES", 500 * KILO)
    add(tmp_path, [100 * KILO] * 4)
    assert brief(tmp_path) == 0
    add(tmp_path, [100 * KILO])
    assert brief(tmp_path) == 5


def test_a_table_without_rows_has_nothing_to_compact(tmp_path: Path) -> None:
    add(tmp_path, [KILO])
    DeltaTable(str(tmp_path)).delete()
    assert brief(tmp_path) == 0


def test_upkeep_compacts_all_small_files_every_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_upkeep, "EVERY_VERSIONS", 5)
    seen: list[bool] = []

    def noted(_table: DeltaTable, _partition: str | None, *, is_brief: bool) -> int:
        seen.append(is_brief)
        return 0

    monkeypatch.setattr(table_upkeep, "compact", noted)
    log = MaintainedLog.open(str(tmp_path))
    for seconds in (0.0, 1.0, WHOLE_EVERY_SECONDS, 1.0, 1.0):
        log.later_seconds += seconds
        log.append(5)
        log.upkeep().run_if_due()
    # A process that starts later knows when the last compaction was.
    later = MaintainedLog.open(str(tmp_path), run=2)
    later.later_seconds = log.later_seconds + 1.0
    later.append(5)
    later.upkeep().run_if_due()
    assert seen == [True, True, False, True, True, True]
