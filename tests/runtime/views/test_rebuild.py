"""A rebuilt view serves once it has all rows of the old one, and not before; unneeded tables are removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import Operation, PutObject, RebuildRecord
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.job_ids import rebuild_job
from rw_sql.plan.statements.view.rebuild import SWAP
from rw_sql.runtime.backfill.completion import LIVE
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.observe import flush as flush_module
from rw_sql.runtime.support import faults
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep import dropped_objects
from rw_sql.runtime.upkeep.dropped_objects import sweep
from rw_sql.runtime.views.swap import _has_data, swap_rebuilt
from tests.runtime.mini_streams import SPLIT, MiniView, MiniWarehouse, expected
from tests.runtime.rewind_sequences import SWAP_POINTS, Killed


def run_new(mini: MiniWarehouse) -> None:
    """One run of the job that rebuilds the view: it reads all rows."""
    snapshot = mini.context.metastore.snapshot()
    (rebuild,) = snapshot.all("rebuild")
    (view,) = mini.views()
    MiniView(mini.context, replace(view, generation=rebuild.generation)).run()
    status = JobStatus(job=rebuild_job(rebuild), object_id=view.id, state="RUNNING", run=1)
    mini.context.metastore.jobs.write_job_status([status])


@pytest.mark.long
@pytest.mark.parametrize("point", SWAP_POINTS)
def test_the_old_rows_serve_until_the_new_ones_have_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def die(name: str) -> None:
        raise Killed(name)

    monkeypatch.setattr(faults, "kill", die)
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(4, 6)
    mini.read_views()
    answer = mini.run("REBUILD MATERIALIZED VIEW counts REASON 'checkpoint lost'")
    assert answer.rows[0][:2] == ("counts", "REBUILDING")
    assert not swap_rebuilt(mini.context)
    run_new(mini)
    mini.ingest(5)
    mini.read_views()
    # The old table is ahead again.
    assert not swap_rebuilt(mini.context)
    assert mini.rows("counts") == expected(range(15))["counts"]
    run_new(mini)
    faults.arm(point)
    with pytest.raises(Killed):
        swap_rebuilt(mini.context)
    faults.arm("")
    # The next owner makes the switch, or finds it made.
    assert swap_rebuilt(mini.context) == (point == "rebuild.before_swap")
    assert not swap_rebuilt(mini.context)
    (view,) = mini.views()
    assert view.generation == 2
    assert mini.rows("counts") == expected(range(15))["counts"]
    operation = mini.context.metastore.operation(mini.epoch())
    assert operation is not None
    assert (operation.kind, operation.objects, operation.is_unsafe) == (SWAP, ("counts",), False)
    mini.ingest(2)
    mini.read_views()
    assert mini.rows("counts") == expected(range(17))["counts"]


@pytest.mark.long
def test_what_is_left_behind_goes_with_the_one_after_or_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    view = mini.create_view("counts")
    mini.ingest(4)
    mini.read_views()
    warehouse = mini.context.warehouse
    folders = (f"{warehouse.uri}/data/{view.id}", f"{warehouse.uri}/checkpoints/mv-{view.id}")
    for served, kept in ((2, ["1", "2"]), (3, ["2", "3"])):
        mini.run("REBUILD MATERIALIZED VIEW counts")
        run_new(mini)
        sweep(mini.context, mini.epoch())
        assert swap_rebuilt(mini.context)
        sweep(mini.context, mini.epoch())
        assert mini.views()[0].generation == served
        assert [sorted(warehouse.list_names(folder)) for folder in folders] == [kept, kept]
    mini.run("ALTER SYSTEM SET rollback_window = '1min'")
    sweep(mini.context, mini.epoch())
    assert [sorted(warehouse.list_names(folder)) for folder in folders] == [kept, kept]
    later = now_ms() + 61_000
    monkeypatch.setattr(dropped_objects, "now_ms", lambda: later)
    sweep(mini.context, mini.epoch())
    assert [sorted(warehouse.list_names(folder)) for folder in folders] == [["3"], ["3"]]
    assert mini.rows("counts") == expected(range(4))["counts"]


@pytest.mark.parametrize("is_switched", ["before its turn", "while it is waited for"])
def test_flush_follows_a_view_to_its_rebuilt_table(tmp_path: Path, is_switched: str) -> None:
    """No job writes the old table after the switch, so that it never gets the rows which FLUSH waits for."""
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    view = mini.create_view("counts")
    mini.ingest(4)
    mini.read_views()
    mini.run("REBUILD MATERIALIZED VIEW counts")
    run_new(mini)
    mini.ingest(3)
    if is_switched == "before its turn":
        assert swap_rebuilt(mini.context)
        reading = flush_module._Reading(context=mini.context, reader=view)
    else:
        reading = flush_module._Reading(context=mini.context, reader=view)
        assert not reading.is_over()
        assert swap_rebuilt(mini.context)
    assert not reading.is_over()
    assert "is 3 rows behind" in reading.left()
    mini.read_views()
    assert reading.is_over()
    assert mini.rows("counts") == expected(range(7))["counts"]


def test_a_rebuilt_view_without_its_history_does_not_serve(tmp_path: Path) -> None:
    """The log of a source that began at the end of its topic has no rows: nothing in it is left to read."""
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    view = mini.create_view("counts")
    history = History(source_id=mini.source.id, log_version=0, splits=(SplitHistory(split=SPLIT, start=0, end=4),))
    rebuild = RebuildRecord(id=99, name="counts", view_id=view.id, generation=2, histories=(history.to_text(),))
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=rebuild),))
    mini.context.metastore.commit(operation, based_on=mini.context.metastore.snapshot())
    run_new(mini)
    assert not swap_rebuilt(mini.context)
    progress = BackfillProgress(
        job=rebuild_job(rebuild),
        object_id=view.id,
        generation=2,
        phase=LIVE,
        done=4,
        total=4,
        started_ms=1,
        updated_ms=1,
        is_over=True,
    )
    mini.context.metastore.jobs.write_backfill(progress)
    assert swap_rebuilt(mini.context)


def test_versions_without_rows_need_not_be_read(tmp_path: Path) -> None:
    """A query waits for rows, and its offset stays before the fence of a new run; another query may have passed it."""
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(4)
    context, log = mini.context, mini.context.warehouse.data(mini.source.id, 1)
    end = latest_version(context.warehouse, log) + 1
    assert _has_data(context, log, 0, end)
    DeltaTable(log).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert latest_version(context.warehouse, log) == end
    assert not _has_data(context, log, end, end + 1)
    assert not _has_data(context, log, end + 1, end + 1)
    assert _has_data(context, log, end - 1, end + 1)
    # Commits that were removed may have had rows.
    for version in range(end):
        (Path(log) / "_delta_log" / f"{version:020}.json").unlink()
    assert _has_data(context, log, 0, end + 1)
