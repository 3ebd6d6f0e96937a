"""Upkeep of a table with a reader that is far behind: it reads each commit at most once, and keeps every unread row."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rw_sql.metastore.records import DropObject, Operation
from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.delta.delta_log import commit_path
from rw_sql.runtime.delta.table_files import RemovedFiles, TableFiles
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep import unread_buckets
from rw_sql.runtime.upkeep.dropped_objects import sweep
from rw_sql.runtime.upkeep.table_upkeep import Retention, Upkeep
from rw_sql.runtime.upkeep.unread_buckets import UnreadBuckets
from tests.runtime.maintained_log import MaintainedLog

HOUR = int(time.time()) // 3600
HOURS = 12
SIX_HOURS = Retention(seconds=6 * 3600.0)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of Delta logs that were listed."""
    found: list[str] = []
    for name in ("list_names", "older_files"):
        method = getattr(Warehouse, name)

        def counted(self: Warehouse, path: str, *more: float, method: Any = method) -> object:
            if path.endswith("/_delta_log"):
                found.append(path)
            return method(self, path, *more)

        monkeypatch.setattr(Warehouse, name, counted)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the commits that were read."""
    found: list[str] = []
    read = Warehouse.read_text

    def counted(self: Warehouse, path: str) -> str:
        if "/_delta_log/" in path and path.endswith(".json"):
            found.append(path)
        return read(self, path)

    monkeypatch.setattr(Warehouse, "read_text", counted)
    return found


def with_a_stuck_reader(log: MaintainedLog, stuck_in: int) -> None:
    """Two commits of two rows in each of the hours before HOUR, oldest first, and a view that has read up to the first
    commit of the hour with the number ``stuck_in``."""
    view = log.view("v")
    for number in range(HOURS):
        log.hour = HOUR - HOURS + number
        log.append(1)
        if number == stuck_in:
            for batch in range(2):
                log.read(view, batch, log.output.table.version() + 1)
        log.append(1)
    set_clock(log, 0)


def set_clock(log: MaintainedLog, hours: int) -> None:
    """Sets upkeep's clock to that many hours after the middle of HOUR."""
    log.later_seconds = (HOUR + hours + 0.5) * 3600.0 - time.time()


def reads_of(upkeep: Upkeep, reads: list[str]) -> int:
    """The number of commits that one run of upkeep reads."""
    before = len(reads)
    upkeep.run()
    return len(reads) - before


def test_a_log_without_a_limit_is_kept_up_without_reading_what_a_reader_has_not_read(
    log: MaintainedLog, reads: list[str]
) -> None:
    with_a_stuck_reader(log, 0)
    upkeep = log.upkeep()
    first = reads_of(upkeep, reads)
    log.append(10)
    assert reads_of(upkeep, reads) <= first < 10


def test_upkeep_reads_one_commit_if_the_oldest_hour_is_unread(log: MaintainedLog, reads: list[str]) -> None:
    with_a_stuck_reader(log, 0)
    few = reads_of(log.upkeep(), reads)
    log.retention = SIX_HOURS
    upkeep = log.upkeep()
    assert reads_of(upkeep, reads) <= few + 1
    log.append(10)
    assert reads_of(upkeep, reads) <= few
    assert log.ids() == list(range(68))


def test_upkeep_reads_a_commit_once_to_find_the_hours_that_a_reader_has_read(
    log: MaintainedLog, reads: list[str]
) -> None:
    with_a_stuck_reader(log, 7)
    few = reads_of(log.upkeep(), reads)
    log.retention = SIX_HOURS
    upkeep = log.upkeep()
    assert reads_of(upkeep, reads) > few + 8
    assert log.ids() == list(range(24, 48)), "the first six hours are older than six hours"
    set_clock(log, 1)
    # It also reads the commits of the two runs of upkeep.
    assert reads_of(upkeep, reads) <= few + 3
    assert log.ids() == list(range(28, 48))
    set_clock(log, 48)
    assert reads_of(upkeep, reads) <= few + 3
    assert log.ids() == list(range(28, 48)), "the hour of the first unread commit and all later ones"


def test_an_hour_that_a_later_commit_adds_to_is_kept(log: MaintainedLog) -> None:
    """The clock of the machine was set back, so a reader has not read all rows of an old hour."""
    with_a_stuck_reader(log, 9)
    log.retention = SIX_HOURS
    upkeep = log.upkeep()
    upkeep.run()
    assert log.ids() == list(range(24, 48))
    log.hour = HOUR - HOURS + 7
    log.append(1)
    log.hour = HOUR
    log.append(1)
    set_clock(log, 48)
    upkeep.run()
    assert log.ids() == list(range(28, 52)), "the hours before the one to which the later commit adds"


def test_no_hour_is_dropped_before_all_unread_commits_are_known(
    log: MaintainedLog, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_stuck_reader(log, 8)
    few = reads_of(log.upkeep(), reads)
    log.retention = SIX_HOURS
    monkeypatch.setattr(unread_buckets, "MOST_COMMITS", 3)
    upkeep = log.upkeep()
    for _ in range(2):
        assert reads_of(upkeep, reads) <= few + 3
        assert log.ids() == list(range(48))
    upkeep.run()
    assert log.ids() == list(range(24, 48))


def test_upkeep_goes_on_with_unread_commits_in_the_next_run_of_the_job(
    log: MaintainedLog, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that rests has a new run for almost every batch."""
    with_a_stuck_reader(log, 8)
    few = reads_of(log.upkeep(), reads)
    log.retention = SIX_HOURS
    monkeypatch.setattr(unread_buckets, "MOST_COMMITS", 3)
    for _ in range(2):
        assert reads_of(log.upkeep(), reads) <= few + 3
        assert log.ids() == list(range(48))
    log.turn()
    assert log.ids() == list(range(24, 48))


def test_upkeep_goes_on_although_another_process_has_cleaned_up_in_between(log: MaintainedLog) -> None:
    with_a_stuck_reader(log, 8)
    log.turn()
    (view,) = log.context.metastore.snapshot().all("materialized_view")
    other = MaintainedLog.open(log.warehouse.uri, run=2)
    other.hour, other.later_seconds = HOUR, log.later_seconds
    other.append(3)
    for batch in range(2, 4):
        other.read(view, batch, other.output.table.version() + 1)
    for _ in range(3):
        other.turn()
    oldest = other.versions()[0]
    assert oldest > 20
    again = replace(MaintainedLog.open(log.warehouse.uri, run=3), context=log.context, retention=SIX_HOURS, hour=HOUR)
    again.later_seconds = log.later_seconds
    for _ in range(3):
        again.append()
        again.turn()
    assert again.versions()[0] >= oldest
    assert again.ids()[-1] == again.end - 1
    assert again.ids()[0] == 24, "the hours that are younger than six hours"
    assert again.unexplained() == set()


def test_upkeep_forgets_the_commits_of_a_dropped_object(log: MaintainedLog) -> None:
    log.append()
    log.turn()
    known = log.context.made["known_commits"]
    assert list(known) == [(log.source.id, 1)]
    metastore = log.context.metastore
    operation = Operation(kind="TEST", statement="", objects=(), changes=(DropObject(id=log.source.id),))
    epoch = metastore.commit(operation, based_on=metastore.snapshot()).epoch
    assert sweep(log.context, epoch)
    assert not known


def put_commit(warehouse: Warehouse, version: int, *actions: dict[str, object]) -> None:
    warehouse.write_text(commit_path(f"{warehouse.uri}/t", version), "\n".join(map(json.dumps, actions)))


def added(bucket: int) -> dict[str, object]:
    return {"add": {"path": "x", "partitionValues": {BUCKET: str(bucket)}}}


def test_the_oldest_unread_hour_is_that_of_all_commits_from_every_version(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_buckets, "MOST_COMMITS", 7)
    chance = random.Random(5)
    warehouse = Warehouse.at(str(tmp_path))
    buckets: list[int | None] = [
        chance.choice([None, 10 + at // 5, 10 + at // 5 - chance.randrange(4)]) for at in range(60)
    ]
    for version, bucket in enumerate(buckets):
        put_commit(warehouse, version, *([] if bucket is None else [added(bucket)]))
    # The first commits were cleaned up.
    for version in range(4):
        warehouse.remove(commit_path(f"{warehouse.uri}/t", version))
    unread = UnreadBuckets(warehouse=warehouse, table=f"{warehouse.uri}/t")
    for newest in sorted(chance.randrange(30, 60) for _ in range(300)):
        first, least = chance.randrange(newest + 2), chance.randrange(8, 25)
        expected = min((each for each in buckets[max(first, 4) : newest + 1] if each is not None), default=None)
        for _ in range(12):
            found = unread.oldest_from(first, newest, least=least)
            assert found in (least, expected)
            assert found is None or expected is None or found <= max(expected, least)
        assert found == (expected if expected is None else max(expected, least))


def test_the_removed_files_of_a_commit_are_read_once(tmp_path: Path, reads: list[str]) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    for version in range(20):
        put_commit(warehouse, version, {"remove": {"path": f"a%20{version}"}}, {"remove": {"path": "both"}})
    removed = RemovedFiles(warehouse=warehouse, table=f"{warehouse.uri}/t")
    assert set(removed.paths()) == {*(f"a {version}" for version in range(20)), "both"}
    assert len(reads) == 20
    for version in range(15):
        warehouse.remove(commit_path(f"{warehouse.uri}/t", version))
    put_commit(warehouse, 20, {"add": {"path": "new"}})
    assert set(removed.paths()) == {*(f"a {version}" for version in range(15, 20)), "both"}
    assert len(reads) == 21


def test_no_commit_is_read_to_find_left_behind_files_where_there_are_none(log: MaintainedLog, reads: list[str]) -> None:
    with_a_stuck_reader(log, 0)
    log.turn()
    before = len(reads)
    files = table_files.TableFiles(
        warehouse=log.warehouse, table=log.output.path, pending=log.warehouse.replaced_files(log.source.id, 1)
    )
    assert files.remove_orphans(table_files.live_files(log.output.table)) == 0
    assert len(reads) == before


def test_the_log_is_listed_when_its_commits_can_be_cleaned_up(log: MaintainedLog, listings: list[str]) -> None:
    view, upkeep = log.view("v"), log.upkeep()
    log.append(20)
    upkeep.run()
    for batch in range(2):
        log.read(view, batch, log.output.table.version() + 1)
    log.append(5)
    upkeep.run()
    kept = log.versions()[0]
    assert kept > 20
    for _ in range(2):
        listings.clear()
        log.append(5)
        upkeep.run()
        assert listings == []
    # The reader goes on.
    for batch in range(2, 4):
        log.read(view, batch, log.output.table.version() + 1)
    upkeep.run()
    assert log.versions()[0] > kept
    assert log.ids() == list(range(70))
    checksums = sorted(int(file.stem) for file in (Path(log.output.path) / "_delta_log").glob("*.crc"))
    newest = log.output.table.version()
    assert checksums == list(range(newest - len(checksums) + 1, newest + 1))
    assert len(checksums) <= table_files.MOST_CHECKSUMS


def test_commits_are_cleaned_up_when_their_checkpoint_is_old_enough(
    log: MaintainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 60.0)
    upkeep = log.upkeep()
    for _ in range(2):
        log.append(5)
        upkeep.run()
        assert log.versions()[0] == 0
    first = min((Path(log.output.path) / "_delta_log").glob("*.checkpoint.parquet"))
    os.utime(first, (time.time() - 61, time.time() - 61))
    upkeep.run()
    assert log.versions()[0] == int(first.name.partition(".")[0])


def test_checksums_of_versions_that_another_process_wrote_are_listed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, removed = str(tmp_path / "table"), []
    monkeypatch.setattr(Warehouse, "remove", lambda _, path: removed.append(path))
    files = TableFiles(warehouse=Warehouse.at(str(tmp_path)), table=table, pending=f"{table}/pending")
    files.clean_checksums(220)
    files.clean_checksums(100_100)
    assert removed == []
    files.clean_checksums(100_102)
    assert len(removed) == 2
