"""Which views have an unfinished backfill: all of them, or those that a caller names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.runtime.jobs.unfinished import unfinished_backfills

if TYPE_CHECKING:
    from pathlib import Path


def view(id_: int) -> MaterializedViewRecord:
    history = History(source_id=1, log_version=0, splits=(SplitHistory(split="t:0", start=0, end=5),))
    return MaterializedViewRecord(
        id=id_, name=f"v{id_}", definition="", query="", inputs=(1,), schema="", histories=(history.to_text(),)
    )


def progress(id_: int, *, is_over: bool) -> BackfillProgress:
    return BackfillProgress(
        job=f"mv-{id_}",
        object_id=id_,
        generation=1,
        phase="reading",
        done=5 if is_over else 2,
        total=5,
        started_ms=1,
        updated_ms=1,
        is_over=is_over,
    )


def test_the_progress_of_one_view_is_that_among_all(tmp_path: Path) -> None:
    metastore = Metastore.open(str(tmp_path))
    views = [view(id_) for id_ in (2, 3, 4)]
    changes = tuple(PutObject(record=each) for each in views)
    snapshot = metastore.commit(
        Operation(kind="TEST", statement="", objects=(), changes=changes), based_on=metastore.snapshot()
    ).snapshot
    metastore.jobs.write_backfill(progress(2, is_over=True))
    metastore.jobs.write_backfill(progress(3, is_over=False))
    found = unfinished_backfills(metastore, snapshot)
    assert {job: (told.done, told.total) for job, told in found.items()} == {"mv-3": (2, 5), "mv-4": (0, 5)}
    for each in views:
        own = unfinished_backfills(metastore, snapshot, [each])
        assert own == {job: told for job, told in found.items() if told.object_id == each.id}
