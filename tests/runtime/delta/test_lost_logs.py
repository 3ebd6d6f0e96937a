"""A source whose log is lost does not get an empty log; a source that rightly has no log gets one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import NotedPosition
from rw_sql.metastore.job_store import JobStore
from rw_sql.metastore.records import FORGOTTEN, DropObject, PutSplitStates, SourceRecord
from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.lost_logs import log_remedy, noted_version
from rw_sql.runtime.jobs import context as context_module
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.sql.source_logs import readable_log
from rw_sql.runtime.status import doctor
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.stored_warehouse import FOLDER, SUFFIX, unpack
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class World:
    """A warehouse with a source of two splits and a view over the source."""

    def __init__(self, folder: Path) -> None:
        self.written = WrittenWarehouse(folder)
        self.written.commit(*self.written.source(2, "Orders"), self.written.view(3, "totals", 2))
        self.log = folder / "data" / "2" / "1"
        self.context = Context(
            warehouse=Warehouse.at(self.written.uri),
            metastore=self.written.metastore,
            sessions=NoSpark(),
            owner="a test",
        )

    @property
    def source(self) -> SourceRecord:
        return cast("SourceRecord", self.written.metastore.snapshot().get(2))

    def set_positions(self, *splits: str, state: str = '{"offset":7}', version: int = -1) -> int:
        """A statement that sets positions; returns its epoch. ``version`` is the version of the log at that time."""
        states = dict.fromkeys(splits, state)
        return self.written.commit(PutSplitStates(fragment="ingest-2", states=states, log_version=version))

    def note(self, epoch: int, version: int, *splits: str, run: int = 1) -> None:
        """The positions that a run stores at a version of the log. The empty name stands for all splits."""
        self.written.metastore.jobs.note_positions(
            [
                NotedPosition(
                    fragment="ingest-2", split=split, state='{"offset":9}', epoch=epoch, run=run, log_version=version
                )
                for split in splits
            ]
        )

    def run(self) -> int:
        """A first run of the reader: it creates the log and stores its positions; returns the epoch of the run."""
        epoch = self.set_positions("0", "1")
        self.written.metastore.jobs.claim_run("ingest-2", epoch, "a test")
        self.context.ensure_log(self.source)
        self.note(epoch, 0, "")
        return epoch

    def lose(self) -> None:
        shutil.rmtree(self.log)

    def found(self) -> list[str]:
        """The subjects of what doctor finds."""
        return [finding.subject for finding in examine(self.context)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # Spark parses the types of the columns.
    monkeypatch.setattr(context_module, "log_schema", lambda statement: StructType([StructField(BUCKET, LongType())]))
    return World(tmp_path / "w")


def test_a_lost_log_is_refused_with_the_path_and_the_statement_and_nothing_is_created(world: World) -> None:
    world.run()
    assert world.found() == []
    world.lose()
    for _ in range(2):
        with pytest.raises(StalledError) as caught:
            world.context.ensure_log(world.source)
    assert caught.value.reason == (
        "LOG lost: the positions of source Orders are those after version 0 of its log, but "
        f"{world.log} no longer exists: restore a backup of the warehouse, or read the source again: "
        'RESET SOURCE SPLITS "Orders" WITH (FORGET_OFFSETS = true), and then rebuild what reads it'
    )
    assert caught.value.is_lasting
    assert not caught.value.is_final
    assert not world.log.exists()
    with pytest.raises(SqlError, match=r'the log of source "Orders" is lost: .*/data/2/1 no longer exists') as refused:
        readable_log(world.context, world.source)
    assert refused.value.hint is not None
    assert 'RESET SOURCE SPLITS "Orders"' in refused.value.hint
    assert world.found() == ['source "Orders"']


def test_the_remedy_of_a_source_whose_positions_cannot_be_moved_is_no_refused_statement(world: World) -> None:
    remedy = log_remedy(world.context.metastore.snapshot(), replace(world.source, connector="mqtt"))
    assert remedy == (
        'restore a backup of the warehouse, or copy the rows that are left, DROP SOURCE "Orders" CASCADE, and create '
        "it and what reads it again: its upstream does not send the records again"
    )


def test_a_lost_log_is_told_where_the_package_of_its_connector_is_missing(world: World) -> None:
    remedy = log_remedy(world.context.metastore.snapshot(), replace(world.source, connector="absent"))
    assert 'RESET SOURCE SPLITS "Orders"' in remedy


def test_a_log_whose_commits_are_gone_is_lost_too(world: World) -> None:
    world.run()
    shutil.rmtree(world.log / "_delta_log")
    with pytest.raises(StalledError, match="LOG lost"):
        world.context.ensure_log(world.source)


def test_a_folder_that_is_put_back_is_used_again(world: World, tmp_path: Path) -> None:
    world.run()
    world.log.rename(tmp_path / "away")
    with pytest.raises(StalledError):
        world.context.ensure_log(world.source)
    (tmp_path / "away").rename(world.log)
    world.context.ensure_log(world.source)
    assert world.found() == []


def test_a_source_that_never_started_gets_a_log(world: World) -> None:
    world.set_positions("0", "1")
    assert world.found() == []
    world.context.ensure_log(world.source)
    assert world.log.exists()


def test_a_run_that_was_killed_before_it_created_its_log_does_not_keep_the_next_one_from_it(world: World) -> None:
    epoch = world.set_positions("0", "1")
    world.written.metastore.jobs.claim_run("ingest-2", epoch, "a test")
    assert world.found() == []
    world.context.ensure_log(world.source)
    assert world.log.exists()


def test_a_run_that_was_killed_between_its_log_and_its_first_note_has_a_log(world: World) -> None:
    world.set_positions("0", "1")
    world.context.ensure_log(world.source)
    world.context.ensure_log(world.source)
    assert noted_version(world.context.metastore, world.source) == -1


def test_new_positions_of_all_splits_permit_a_new_log(world: World) -> None:
    """What RESET SOURCE SPLITS … WITH (FORGET_OFFSETS = true) and INJECT do while the log is missing."""
    world.run()
    world.lose()
    epoch = world.set_positions("0", "1")
    assert world.found() == []
    world.context.ensure_log(world.source)
    world.note(epoch, 0, "", run=2)
    assert world.found() == []
    world.lose()
    assert world.found() == ['source "Orders"']


def test_a_log_that_is_older_than_the_positions_is_refused(world: World) -> None:
    """The table of the log was restored from a backup that is older than the positions."""
    epoch = world.run()
    world.note(epoch, 3, "")
    with pytest.raises(StalledError) as caught:
        world.context.ensure_log(world.source)
    assert caught.value.reason == (
        "LOG too old: the positions of source Orders are those after version 3 of its log, but "
        f"{world.log} ends at version 0: restore a backup of the warehouse, or read the source again: "
        'RESET SOURCE SPLITS "Orders" WITH (FORGET_OFFSETS = true), and then rebuild what reads it'
    )
    assert caught.value.is_lasting
    with pytest.raises(SqlError, match=r'the log of source "Orders" is too old: .*/data/2/1 ends at version 0'):
        readable_log(world.context, world.source)
    world.set_positions("0", "1", version=0)
    world.context.ensure_log(world.source)
    assert world.found() == []


def test_new_positions_of_some_splits_do_not(world: World) -> None:
    world.run()
    world.lose()
    world.set_positions("0")
    with pytest.raises(StalledError, match="LOG lost"):
        world.context.ensure_log(world.source)


def test_forgotten_positions_refer_to_no_log(world: World) -> None:
    world.run()
    world.lose()
    world.set_positions("0", "1", state=FORGOTTEN)
    assert world.found() == []
    world.context.ensure_log(world.source)


def test_a_position_that_a_statement_has_set_in_an_existing_log_refers_to_it(world: World) -> None:
    """A run ends, a statement moves the source, and no later run has stored a position."""
    world.run()
    world.set_positions("0", "1", version=0)
    world.lose()
    with pytest.raises(StalledError, match="after version 0 of its log"):
        world.context.ensure_log(world.source)


def test_a_source_without_splits_has_nothing_to_lose(world: World) -> None:
    world.context.ensure_log(world.source)
    world.lose()
    assert world.found() == []
    world.context.ensure_log(world.source)


def test_a_log_that_another_process_creates_and_notes_meanwhile_is_no_loss(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = world.set_positions("0", "1")
    known = JobStore.noted_positions
    begun: list[str] = []

    def run_meanwhile(jobs: JobStore, fragment: str) -> Mapping[str, NotedPosition]:
        if not begun:
            begun.append(fragment)
            world.context.ensure_log(world.source)
            world.note(epoch, 0, "")
        return known(jobs, fragment)

    monkeypatch.setattr(JobStore, "noted_positions", run_meanwhile)
    world.context.ensure_log(world.source)
    assert noted_version(world.context.metastore, world.source) == 0
    assert world.found() == []


def test_doctor_names_a_log_that_is_older_than_the_positions(world: World) -> None:
    epoch = world.run()
    world.note(epoch, 5, "0", run=2)
    (finding,) = examine(world.context)
    assert (finding.about, finding.subject) == ("folder", 'source "Orders"')
    assert finding.problem == (
        f"its positions refer to version 5 of its log, but the log {world.log} ends at version 0"
    )
    assert finding.remedy.startswith("restore a backup of the warehouse, or ")


def test_doctor_asks_for_no_log_of_a_source_that_is_not_shared(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "direct", is_shared=False))
    assert examine(written.context()) == ()


def test_doctor_asks_for_no_log_of_a_source_that_is_dropped_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    known = latest_version

    def drop_meanwhile(warehouse: Warehouse, table: str) -> int:
        monkeypatch.undo()
        world.written.commit(DropObject(id=3), DropObject(id=2))
        world.lose()
        return known(warehouse, table)

    monkeypatch.setattr(doctor, "latest_version", drop_meanwhile)
    assert 'source "Orders"' not in world.found()


def test_each_lost_log_of_a_stored_warehouse_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    unpack(max(FOLDER.glob(f"*{SUFFIX}")), folder)
    uri = str(folder)
    context = Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner="a test")

    def lost() -> list[str]:
        return [found.subject for found in examine(context) if found.about == "folder"]

    assert lost() == []
    with_logs = [
        source
        for source in context.metastore.snapshot().all("source")
        if isinstance(source, SourceRecord) and source.is_shared
    ]
    assert {source.name for source in with_logs} >= {"s", "orders"}
    for source in with_logs:
        log = folder / "data" / str(source.id)
        log.rename(tmp_path / "away")
        assert lost() == [f'source "{source.name}"']
        with pytest.raises(StalledError, match=f"LOG lost: .*RESET SOURCE SPLITS {source.name} "):
            context.ensure_log(source)
        (tmp_path / "away").rename(log)
    assert lost() == []
    (table,) = context.metastore.snapshot().all("table")
    shutil.rmtree(folder / "data" / str(table.id))
    remedies = [found.remedy for found in examine(context) if found.subject == f'table "{table.name}"']
    assert remedies == [f"restore the table, or DROP TABLE {table.name} and create it again"]
