"""What the doctor finds in a warehouse that is damaged in one way at a time, and what a repair leaves."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import QuiesceLock
from rw_sql.metastore.job_store import JobStore
from rw_sql.metastore.records import (
    INJECT_CHECKPOINT,
    UNDO,
    DropObject,
    MaterializedViewRecord,
    Operation,
    PutObject,
)
from rw_sql.plan.statements.checkpoint.checkpoint_outcomes import NOT_KNOWN
from rw_sql.runtime.control.quiesce import QUIESCED
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.status import doctor
from rw_sql.runtime.status.doctor import examine, repair
from rw_sql.runtime.status.findings import Finding
from rw_sql.runtime.support.processes import process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.s3_store import BUCKET, S3Store
from tests.support.stored_warehouse import FOLDER, SUFFIX, unpack
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """A warehouse of a source, a view with two batches and a sink, in which nothing is wrong."""

    def __init__(self, folder: Path) -> None:
        self.written = WrittenWarehouse(folder)
        self.folder = folder
        view = self.written.view(3, "totals", 2)
        assert isinstance(view, PutObject)
        assert isinstance(view.record, MaterializedViewRecord)
        definition = "CREATE MATERIALIZED VIEW totals AS SELECT id FROM orders"
        self.view = replace(view.record, definition=definition)
        self.written.commit(
            *self.written.source(2, "orders"), PutObject(record=self.view), self.written.sink(4, "out", 3)
        )
        self.table = self.written.fence("mv-3", 1)
        for batch in (0, 1):
            self.written.batch(self.table, "mv-3", 1, batch, 5)
            self.plan(batch)

    def plan(self, batch: int) -> None:
        """A batch that the view's checkpoint has."""
        offsets = self.folder / "checkpoints" / "mv-3" / "1" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(batch)).write_text("v1", encoding="utf-8")

    @property
    def context(self) -> Context:
        """The warehouse as a process that may write sees it."""
        uri = str(self.folder)
        return Context(
            warehouse=Warehouse.at(uri), metastore=self.written.metastore, sessions=NoSpark(), owner="a test"
        )

    def found(self) -> list[tuple[str, str]]:
        """What each finding is about, and its subject."""
        return [(finding.about, finding.subject) for finding in examine(self.context)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "w")


def the_one(world: World) -> Finding:
    (finding,) = examine(world.context)
    return finding


def test_in_a_sound_warehouse_nothing_is_found(world: World) -> None:
    assert world.found() == []
    world.written.lease()
    for job in ("ingest-2", "mv-3", "sink-4"):
        world.written.status(job, "RUNNING")
    assert world.found() == []


def test_a_definition_that_does_not_parse(world: World) -> None:
    world.written.commit(PutObject(record=replace(world.view, definition="CREATE MATERIALIZED VUE totals")))
    finding = the_one(world)
    assert (finding.about, finding.subject) == ("catalog", 'materialized view "totals"')
    assert "does not parse" in finding.problem
    assert repair(world.context) == (finding,)


def test_an_input_that_is_missing(world: World) -> None:
    world.written.commit(DropObject(id=3))
    assert ("catalog", 'sink "out"') in world.found()


def test_a_checkpoint_whose_table_is_gone(world: World) -> None:
    shutil.rmtree(world.folder / "data" / "3" / "1")
    finding = the_one(world)
    assert finding.about == "checkpoint"
    assert finding.remedy == "restore the table, or REBUILD MATERIALIZED VIEW totals"


def test_a_checkpoint_that_is_behind_its_table(world: World) -> None:
    (world.folder / "checkpoints" / "mv-3" / "1" / "offsets" / "1").unlink()
    finding = the_one(world)
    assert finding.problem == "its table has batch 1, but its checkpoint ends at batch 0"
    shutil.rmtree(world.folder / "checkpoints" / "mv-3")
    assert the_one(world).problem == "its table has batch 1, but its checkpoint is empty"


def test_a_job_that_should_run_and_is_reported_as_stopped(world: World) -> None:
    world.written.lease()
    world.written.status("ingest-2", "STOPPED")
    assert world.found() == [("job", "ingest-2")]


def test_a_job_that_a_statement_has_stopped_for_its_preview_is_no_finding(world: World) -> None:
    """The owner would report it as stopped for as long as the user looks at the preview."""
    world.written.lease()
    epoch = world.written.metastore.snapshot().epoch
    world.written.metastore.jobs.add_locks((lock_of(epoch, process_start(os.getpid())),))
    world.written.status("ingest-2", "STOPPED", reason=f"{QUIESCED} by process 4711 on prod-1")
    assert world.found() == []


def test_folders_of_dropped_objects_are_removed_unless_an_owner_does_it(world: World) -> None:
    world.written.commit(DropObject(id=4))
    world.written.commit(DropObject(id=3))
    assert world.found() == [("folder", "data/3"), ("folder", "checkpoints/mv-3")]
    world.written.lease()
    assert [finding.is_repairable for finding in repair(world.context)] == [False, False]
    lease = world.written.metastore.jobs.lease()
    assert lease is not None
    world.written.metastore.jobs.renew_lease(replace(lease, is_released=True))
    assert repair(world.context) == ()
    assert not (world.folder / "data" / "3").exists()


def test_a_folder_of_an_id_that_no_object_has_had_is_left_alone(world: World) -> None:
    (world.folder / "data" / "999").mkdir()
    finding = the_one(world)
    assert not finding.is_repairable
    assert repair(world.context) == (finding,)
    assert (world.folder / "data" / "999").exists()


def lock_of(epoch: int, start: str) -> QuiesceLock:
    """A lock of the process with this one's number that started at ``start``."""
    return QuiesceLock(
        hold="h",
        source_id=2,
        epoch=epoch,
        host=this_machine(),
        pid=os.getpid(),
        process_start=start,
        expires_ms=2**62,
    )


def test_a_lock_of_a_dead_process_is_released(world: World) -> None:
    epoch = world.written.metastore.snapshot().epoch
    world.written.metastore.jobs.add_locks((lock_of(epoch, "another process had this id"),))
    assert world.found() == [("lock", 'source "orders"')]
    assert repair(world.context) == ()


def test_an_operation_without_outcome_gets_one_once_the_owner_has_applied_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_OUTCOME_SECONDS", 0.0)
    epoch = world.written.commit(kind="UNSAFE SET", is_unsafe=True, statement="ALTER SOURCE orders …")
    (finding,) = examine(world.context)
    assert finding.subject == f"operation {epoch}"
    assert not finding.is_repairable
    assert repair(world.context) == (finding,)
    world.written.lease(applied=epoch)
    assert the_one(world).is_repairable
    assert repair(world.context) == ()
    (operation,) = world.written.metastore.operations(is_unsafe=True)
    assert operation.outcome == "applied"


def test_an_unsafe_operation_that_an_owner_has_yet_to_apply_needs_no_other_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_OUTCOME_SECONDS", 0.0)
    world.written.lease()
    world.written.commit(kind="UNSAFE SET", is_unsafe=True, statement="ALTER SOURCE orders …")
    assert the_one(world).remedy == "wait until the jobs have adopted the operation; SHOW JOBS shows their states"


@pytest.mark.parametrize("kind", [INJECT_CHECKPOINT, UNDO])
def test_a_change_to_a_foreign_checkpoint_is_never_recorded_as_applied(
    kind: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may have been killed before the change, and no owner completes such a change."""
    monkeypatch.setattr(doctor, "_OUTCOME_SECONDS", 0.0)
    epoch = world.written.commit(kind=kind, is_unsafe=True, statement="INJECT …", objects=("/their's",))
    world.written.lease(applied=epoch)
    assert the_one(world).remedy == (
        "SHOW CHECKPOINT '/their''s' shows whether the change is complete; "
        "rw-sql doctor --repair then records that this is not known"
    )
    assert repair(world.context) == ()
    (operation,) = world.written.metastore.operations(is_unsafe=True)
    assert operation.outcome == NOT_KNOWN


def test_statuses_of_dropped_objects(world: World) -> None:
    world.written.status("mv-77", "RUNNING")
    assert world.found() == [("job", "mv-77")]
    lease = world.written.lease()
    assert [finding.remedy for finding in repair(world.context)] == ["the owner removes it after its next statement"]
    world.written.metastore.jobs.release_lease(lease)
    assert repair(world.context) == ()


def meanwhile(monkeypatch: pytest.MonkeyPatch, place: object, name: str, act: Callable[[], object]) -> None:
    """Makes ``act`` happen once, right before the first call of the function or method ``name`` of ``place``."""
    original, acts = getattr(place, name), [act]

    def changed(*args: object) -> object:
        if acts:
            acts.pop()()
        return original(*args)

    monkeypatch.setattr(place, name, changed)


@pytest.mark.parametrize("function", ["last_batch", "newest_planned"])
def test_a_batch_that_a_job_commits_meanwhile_is_no_finding(
    world: World, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_batch() -> None:
        world.plan(2)
        world.written.batch(world.table, "mv-3", 1, 2, 5)

    meanwhile(monkeypatch, doctor, function, commit_batch)
    assert world.found() == []


def test_a_view_that_is_rebuilt_meanwhile_is_no_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_generation() -> None:
        world.written.commit(PutObject(record=replace(world.view, generation=2)))
        shutil.rmtree(world.folder / "data" / "3" / "1")

    meanwhile(monkeypatch, Warehouse, "exists", remove_generation)
    assert world.found() == []


def test_an_object_that_is_created_meanwhile_is_no_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def create() -> None:
        world.written.commit(world.written.view(5, "more", 2))
        world.written.fence("mv-5", 1)
        world.written.status("mv-5", "RUNNING")

    meanwhile(monkeypatch, Warehouse, "exists", create)
    assert world.found() == []


def test_an_owner_that_begins_meanwhile_is_no_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.written.status("ingest-2", "STOPPED")
    read = JobStore.job_statuses

    def begin_after(jobs: JobStore) -> object:
        statuses = read(jobs)
        world.written.status("ingest-2", "RUNNING")
        if jobs.lease() is None:
            world.written.lease()
        return statuses

    monkeypatch.setattr(JobStore, "job_statuses", begin_after)
    assert world.found() == []


def test_an_owner_that_ends_meanwhile_is_no_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.written.status("ingest-2", "RUNNING")
    lease = world.written.lease()

    def end() -> None:
        world.written.status("ingest-2", "STOPPED")
        world.written.metastore.jobs.release_lease(lease)

    meanwhile(monkeypatch, JobStore, "job_statuses", end)
    assert world.found() == []


def test_a_lock_that_a_statement_takes_meanwhile_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = world.written.metastore.jobs

    def lock_source() -> None:
        epoch = world.written.commit(kind="TEST")
        jobs.add_locks((lock_of(epoch, process_start(os.getpid())),))

    meanwhile(monkeypatch, JobStore, "quiesce_locks", lock_source)
    assert repair(world.context) == ()
    assert len(jobs.quiesce_locks()) == 1


def test_a_group_that_nobody_runs_is_named_and_its_neighbours_keep_their_folders(world: World) -> None:
    world.written.commit(PutObject(record=replace(world.view, resource_group="nightly")))
    world.written.commit(DropObject(id=4))
    assert world.found() == []
    lease = world.written.lease()
    (finding,) = examine(world.context)
    start = f"rw-sql serve --warehouse {world.written.uri} --resource-group nightly"
    assert (finding.subject, finding.remedy) == ("resource group nightly", start)
    other = replace(lease, group="nightly", owner="other")
    assert world.written.metastore.jobs.take_lease(other, replacing=None)
    world.written.metastore.jobs.release_lease(lease)
    world.written.commit(DropObject(id=3))
    # The owner of another group may still write to what was dropped.
    repair(world.context)
    assert (world.folder / "data" / "3").exists()
    world.written.metastore.jobs.release_lease(other)
    assert repair(world.context) == ()
    assert not (world.folder / "data" / "3").exists()


def opened(uri: str) -> Context:
    return Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner="a test")


def subjects(uri: str) -> list[str]:
    return [finding.subject for finding in examine(opened(uri)) if finding.about != "operation"]


def newest_warehouse(folder: Path) -> Path:
    unpack(max(FOLDER.glob(f"*{SUFFIX}")), folder)
    return folder


def test_a_backup_is_a_copy_and_what_a_damaged_warehouse_lacks_is_named(tmp_path: Path) -> None:
    warehouse = newest_warehouse(tmp_path / "w")
    assert subjects(str(warehouse)) == []
    backup = tmp_path / "backup"
    shutil.copytree(warehouse, backup)
    epoch = opened(str(warehouse)).metastore.snapshot().epoch
    shutil.rmtree(warehouse / "data" / "3")
    shutil.rmtree(warehouse / "checkpoints" / "mv-4")
    named = {record.id: record.name for record in opened(str(warehouse)).metastore.snapshot().kept}
    assert subjects(str(warehouse)) == [f'materialized view "{named[id_]}"' for id_ in (3, 4)]
    # A repair removes nothing of an existing object, and invents nothing.
    assert len([f for f in repair(opened(str(warehouse))) if f.about != "operation"]) == 2
    shutil.rmtree(warehouse)
    shutil.copytree(backup, warehouse)
    assert subjects(str(warehouse)) == []
    assert opened(str(warehouse)).metastore.snapshot().epoch == epoch


@pytest.mark.s3
@pytest.mark.long
def test_in_an_object_store_the_same_is_found_and_repaired(tmp_path: Path, s3_store: S3Store) -> None:
    folder, uri = newest_warehouse(tmp_path / "w"), s3_store.warehouse()
    prefix = uri.removeprefix(f"s3://{BUCKET}/")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{prefix}/{file.relative_to(folder)}"
        s3_store.client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
    assert subjects(uri) == []
    context = opened(uri)
    named = {record.id: record.name for record in context.metastore.snapshot().kept}
    context.warehouse.remove(f"{uri}/data/3")
    assert subjects(uri) == [f'materialized view "{named[3]}"']
    s3_store.client.put_object(Bucket=BUCKET, Key=f"{prefix}/data/999/part-0.parquet", Body=b"x")
    gone = context.metastore.snapshot().get(4)
    assert gone is not None
    users = [user.id for user in context.metastore.snapshot().dependents_of(4)]
    drop = Operation(kind="TEST", statement="", objects=(), changes=tuple(DropObject(id=id_) for id_ in (*users, 4)))
    context.metastore.commit(drop, based_on=context.metastore.snapshot())
    assert {"data/4", "checkpoints/mv-4", "data/999"} <= set(subjects(uri))
    repair(opened(uri))
    assert subjects(uri) == [f'materialized view "{named[3]}"', "data/999"]
