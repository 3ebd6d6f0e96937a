"""Batches that are planned and completed in a query's checkpoint without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.runtime.positions.checkpoint_batches import CheckpointBatches, end_of_batch
from rw_sql.runtime.positions.progress import committed_versions, newest_planned, planned_stretch
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "5f0e"
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


@pytest.fixture
def checkpoint(warehouse: Warehouse) -> str:
    return f"{warehouse.uri}/checkpoint"


def offset(version: int, **changes: Any) -> str:
    plain = {"sourceVersion": 1, "reservoirId": TABLE, "reservoirVersion": version, "index": -1}
    return json.dumps({**plain, "isStartingVersion": False, **changes})


def entry(*offsets: str) -> str:
    times = {"batchWatermarkMs": 0, "batchTimestampMs": 7, "conf": {"spark.sql.shuffle.partitions": "2"}}
    return "\n".join(("v1", json.dumps(times), *offsets))


def write(warehouse: Warehouse, checkpoint: str, planned: dict[int, str], completed: tuple[int, ...]) -> None:
    for batch, text in planned.items():
        warehouse.write_text(f"{checkpoint}/offsets/{batch}", text)
    for batch in completed:
        warehouse.write_text(f"{checkpoint}/commits/{batch}", COMMIT)


def test_a_batch_is_planned_then_completed(warehouse: Warehouse, checkpoint: str) -> None:
    write(warehouse, checkpoint, {0: entry(offset(3))}, (0,))
    batches = CheckpointBatches.of(warehouse, checkpoint, TABLE)
    assert batches is not None
    assert (batches.done, batches.begin, batches.planned) == (0, 3, None)
    assert batches.plan(7) == 1
    assert (newest_planned(warehouse, checkpoint), end_of_batch(warehouse, checkpoint, 1)) == (1, 7)
    assert planned_stretch(warehouse, checkpoint, 1) == (range(3, 7), True)
    assert committed_versions(warehouse, checkpoint) == {TABLE: 3}
    batches.complete()
    assert committed_versions(warehouse, checkpoint) == {TABLE: 7}
    assert warehouse.read_text(f"{checkpoint}/commits/1") == COMMIT
    version, times, told = warehouse.read_text(f"{checkpoint}/offsets/1").split("\n")
    assert (version, json.loads(told)) == ("v1", json.loads(offset(7)))
    assert json.loads(times)["conf"] == {"spark.sql.shuffle.partitions": "2"}
    assert json.loads(times)["batchTimestampMs"] > 7
    again = CheckpointBatches.of(warehouse, checkpoint, TABLE)
    assert again is not None
    assert (again.done, again.begin, again.planned) == (1, 7, None)


def test_a_planned_batch_is_the_next_one_with_its_own_end(warehouse: Warehouse, checkpoint: str) -> None:
    write(warehouse, checkpoint, {4: entry(offset(3)), 5: entry(offset(9))}, (4,))
    batches = CheckpointBatches.of(warehouse, checkpoint, TABLE)
    assert batches is not None
    assert (batches.done, batches.begin, batches.planned) == (4, 3, 9)
    batches.complete()
    assert (batches.done, batches.begin, batches.planned) == (5, 9, None)


def test_what_another_process_has_planned_is_not_overwritten(warehouse: Warehouse, checkpoint: str) -> None:
    write(warehouse, checkpoint, {0: entry(offset(3))}, (0,))
    batches = CheckpointBatches.of(warehouse, checkpoint, TABLE)
    assert batches is not None
    write(warehouse, checkpoint, {1: entry(offset(4))}, ())
    with pytest.raises(FileExistsError):
        batches.plan(8)
    assert end_of_batch(warehouse, checkpoint, 1) == 4
    assert sorted(warehouse.list_names(f"{checkpoint}/offsets")) == ["0", "1"]


def test_the_files_of_a_hundred_batches_are_kept(warehouse: Warehouse, checkpoint: str) -> None:
    write(warehouse, checkpoint, {0: entry(offset(1))}, (0,))
    batches = CheckpointBatches.of(warehouse, checkpoint, TABLE)
    assert batches is not None
    for version in range(2, 122):
        batches.plan(version)
        batches.complete()
    for folder in ("offsets", "commits"):
        kept = sorted(map(int, warehouse.list_names(f"{checkpoint}/{folder}")))
        assert kept == list(range(21, 121))


@pytest.mark.parametrize(
    ("planned", "completed"),
    [
        ({}, ()),
        ({0: entry(offset(3))}, ()),
        ({0: entry(offset(3, isStartingVersion=True))}, (0,)),
        ({0: entry(offset(3, index=5))}, (0,)),
        ({0: entry(offset(3, reservoirId="another"))}, (0,)),
        ({0: entry(offset(3), offset(3))}, (0,)),
        ({0: entry("-")}, (0,)),
        ({0: entry(offset(3)), 1: entry(offset(4, index=2))}, (0,)),
        ({0: entry(offset(3)), 1: entry(offset(4)), 2: entry(offset(5))}, (0,)),
        ({0: entry(offset(3))}, (1,)),
        ({0: entry(offset(3))[:-9]}, (0,)),
        ({0: ""}, (0,)),
    ],
)
def test_other_checkpoints_are_left_to_spark(
    warehouse: Warehouse, checkpoint: str, planned: dict[int, str], completed: tuple[int, ...]
) -> None:
    write(warehouse, checkpoint, planned, completed)
    assert CheckpointBatches.of(warehouse, checkpoint, TABLE) is None
