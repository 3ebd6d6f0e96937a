"""A view whose backfill is complete stays live, whichever files of its staging table a kill has left."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from rw_sql.model.backfill_ranges import BackfillChunk, History
from rw_sql.runtime.backfill import staging_table
from rw_sql.runtime.backfill.completion import is_live, leave_histories
from rw_sql.runtime.backfill.staging_table import is_there
from rw_sql.runtime.positions.checkpoint_handover import move
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.backfill.test_staging_table import LIFE, opened, rows

if TYPE_CHECKING:
    from rw_sql.metastore.facts import BackfillProgress

VIEW, SOURCE = 3, 1


class World:
    """A view in a warehouse without Spark, its staging table, and a checkpoint that has read the staging table."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.progress: dict[str, BackfillProgress] = {}
        jobs = SimpleNamespace(
            backfills=lambda: self.progress,
            write_backfill=lambda told: self.progress.update({told.job: told}),
        )
        self.context: Any = SimpleNamespace(warehouse=self.warehouse, metastore=SimpleNamespace(jobs=jobs))
        given = SimpleNamespace(id=SOURCE, history=History(source_id=SOURCE, log_version=7, splits=()).to_text())
        self.spec: Any = SimpleNamespace(view_id=VIEW, generation=1, inputs=(given,), job="mv-3")
        self.checkpoint = self.warehouse.view_checkpoint(VIEW, 1)
        self.path = self.warehouse.history(VIEW, 1, SOURCE)
        table = opened(self.warehouse, self.path)
        for start in (0, 5, 10):
            table.append(rows(table, start, start + 5), (BackfillChunk(split="t:0", start=start, end=start + 5),), LIFE)
        table.finish(8)
        self.id = str(DeltaTable(self.path).metadata().id)
        offset = {"sourceVersion": 1, "reservoirId": self.id, "reservoirVersion": 5, "index": -1}
        for batch in (0, 1):
            self.warehouse.write_text(f"{self.checkpoint}/offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset)}")
            self.warehouse.write_text(f"{self.checkpoint}/commits/{batch}", "v1\n{}")

    def is_live(self) -> bool:
        return is_live(self.context, self.spec, self.checkpoint)

    def files(self) -> list[Path]:
        return sorted(path for path in Path(self.path).rglob("*") if path.is_file())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(staging_table, "small_rows", lambda rows: rows.toArrow())
    return World(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_a_view_stays_live_whatever_a_kill_has_left_of_its_staging_table(world: World, seed: int) -> None:
    assert not world.is_live()
    move(world.checkpoint, {world.id: ("log", 8)})
    assert world.is_live()
    files = world.files()
    random.Random(seed).shuffle(files)
    assert len(files) > 8
    for file in files:
        file.unlink()
        assert world.is_live(), f"without {file.name}"
    assert not is_there(world.warehouse, world.path)


def test_what_a_kill_has_left_is_deleted_at_the_next_start(world: World) -> None:
    move(world.checkpoint, {world.id: ("log", 8)})
    next(file for file in world.files() if file.name == f"{0:020d}.json").unlink()
    assert world.is_live()
    leave_histories(world.context, world.spec)
    assert not world.warehouse.exists(world.path)
    assert world.progress["mv-3"].is_over
