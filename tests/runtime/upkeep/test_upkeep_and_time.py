"""Upkeep keeps data regardless of the time that has passed: files that a REWIND restored, and rows that readers could
not read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease
from rw_sql.model.job_specs import view_spec
from rw_sql.runtime.control.owner import Owner
from rw_sql.runtime.delta import compaction, table_files
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.downtime import downtime, note_downtime, waited_ms
from rw_sql.runtime.positions.table_consumers import readers_of, require_versions
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep.table_upkeep import Retention
from tests.runtime.maintained_log import MaintainedLog, put

EIGHT_DAYS = 8 * 24


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


@pytest.mark.long
def test_a_file_that_a_rewind_put_back_stays_for_the_versions_after_that(
    log: MaintainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = log.view("v")
    log.append(30)
    rows = log.ids()
    log.read(view, 0, 2)
    log.turn()
    assert log.files() == 1
    # Taken back to before the small files were put together: they belong to the table again.
    compacted = log.output.table.version()
    output = JobOutput.reopen(log.warehouse, log.output.path, job=log.output.job, run=2, epoch=2)
    output.restore(compacted - 1, rewind=5, done=29)
    log = MaintainedLog.open(log.warehouse.uri, run=3)
    log.append(1)
    log.output.table.create_checkpoint()
    read_from = log.output.table.version()
    assert log.files() == 31
    for batch in (1, 2):
        log.read(view, batch, read_from)
    # The commit that had replaced them is cleaned away, and then they are replaced again.
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 3600.0)
    log.turn()
    assert log.versions()[0] == read_from
    assert log.pending
    log.append(30)
    log.turn()
    assert log.files() == 1
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    log.turn()
    assert log.ids(version=read_from) == [*rows, 60, 61]
    for batch in (3, 4):
        log.read(view, batch, log.output.table.version() + 1)
    for _ in range(3):
        log.append(30)
        log.turn()
        log.read(view, 5, log.output.table.version() + 1)
    assert log.unexplained() == set()


@pytest.mark.long
def test_while_nobody_runs_the_jobs_no_reader_is_given_up(log: MaintainedLog) -> None:
    """The warehouse is left for a week and started again; its views then read the missing rows at once."""
    began = now_ms()
    week = 7 * 24 * 3600 * 1000
    log.view("v", created_at_ms=began)
    log.append(30)
    log.turn()
    log.append(30)
    log.later_seconds = week / 1000 + 60
    note_downtime(log.warehouse, lease_at(began + 1000), began + week)
    log.turn()
    assert log.versions()[0] == 0
    # From then on it is waited for as long as any other.
    log.append(30)
    log.later_seconds += week / 1000
    log.turn()
    assert log.versions()[0] > 0


def test_a_reader_of_a_group_without_an_owner_is_not_given_up(log: MaintainedLog) -> None:
    """Nobody has recorded the period yet: only the group's next owner does."""
    began = now_ms()
    week = 7 * 24 * 3600 * 1000
    view = log.view("v", created_at_ms=began)
    put(log.context.metastore, replace(view, resource_group="nightly"))
    log.append(3)
    upkeep, snapshot = log.upkeep(), log.context.metastore.snapshot()
    log.later_seconds = week / 1000 + 60
    # The group never had an owner.
    assert [reader.name for reader in upkeep._held_readers(snapshot)] == ["v"]
    # Its owner has ended.
    facts = log.context.metastore.jobs
    ended = replace(lease_at(began + 1000), group="nightly")
    assert facts.take_lease(ended, replacing=None)
    assert [reader.name for reader in upkeep._held_readers(snapshot)] == ["v"]
    # The next owner records the period, in the file of the group; from then on the reader is waited for as any other.
    note_downtime(log.warehouse, ended, began + week)
    assert downtime(log.warehouse) == []
    assert downtime(log.warehouse, "nightly") == [(began + 1000, began + week)]
    log.later_seconds *= 2
    alive = replace(ended, heartbeat_ms=int(upkeep.clock() * 1000))
    assert facts.renew_lease(alive)
    assert upkeep._held_readers(snapshot) == []
    # The owner of the log's own group was there all the time: its readers do not count the other group's periods.
    put(log.context.metastore, view)
    log.later_seconds = week / 1000 + 60
    assert upkeep._held_readers(log.context.metastore.snapshot()) == []


def be_quiet(log: MaintainedLog, hours: int) -> None:
    """Makes all commits of the log older by that many hours."""
    for file in (Path(log.output.path) / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().split("\n") if line]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] -= hours * 3_600_000
        file.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
    log.hour += hours


def waits_since_ms(log: MaintainedLog) -> list[int | None]:
    snapshot = log.context.metastore.snapshot()
    found = readers_of(log.warehouse, snapshot, log.source.id, log.output.path, log.table_id)
    return [reader.waits_since_ms for reader in found]


@pytest.mark.parametrize("after", ["nothing", "a fence", "a compaction"])
def test_a_reader_that_has_read_all_rows_of_a_quiet_log_does_not_count_as_stuck(
    log: MaintainedLog, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query completes no batch for a commit without rows, so its checkpoint stays in front of that commit."""
    monkeypatch.setattr(compaction, "MOST_SMALL_FILES", 5)
    view = log.view("v")
    hour = Retention(seconds=3600.0)
    log.retention = hour
    log.append(3)
    log.read(view, 0, log.output.table.version() + 1)
    log.append(3)
    log.read(view, 1, log.output.table.version() + 1)
    if after == "a compaction":
        log.turn()
        assert log.files() == 1
    elif after == "a fence":
        log = MaintainedLog.open(log.warehouse.uri, run=2)
        log.retention = hour
    assert waits_since_ms(log) == [None]
    be_quiet(log, EIGHT_DAYS)
    began, unread = now_ms(), log.end
    log.append(1)
    (since,) = waits_since_ms(log)
    assert since is not None
    assert since >= began
    # The view does not read for the next hour.
    log.turn()
    log.later_seconds += 3600
    log.hour += 1
    log.append(1)
    log.turn()
    assert log.ids()[-4:] == list(range(unread, unread + 4))
    spec = view_spec(log.context.metastore.snapshot(), view)
    require_versions(log.context, spec, log.warehouse.view_checkpoint(view.id, view.generation))


def test_a_reader_that_has_not_begun_waits_since_there_are_rows_for_it(log: MaintainedLog) -> None:
    created = now_ms() - EIGHT_DAYS * 3_600_000
    log.view("v", created_at_ms=created)
    assert waits_since_ms(log) == [created]
    began = now_ms()
    log.append(1)
    (since,) = waits_since_ms(log)
    assert since is not None
    assert since >= began
    log.sink(starts=((log.source.id, log.output.table.version()),), created_at_ms=created)
    assert waits_since_ms(log)[1:] == [created]
    # A reader that is younger than the rows waits since its creation.
    be_quiet(log, 2 * EIGHT_DAYS)
    assert waits_since_ms(log) == [created, created]


def lease_at(heartbeat_ms: int) -> Lease:
    """A lease whose owner's last heartbeat was at that time."""
    return Lease(
        owner="another",
        host="elsewhere",
        python_pid=1,
        python_start="",
        jvm_pid=2,
        jvm_start="",
        taken_at_ms=heartbeat_ms,
        heartbeat_ms=heartbeat_ms,
        expires_ms=heartbeat_ms + 15_000,
        applied_epoch=0,
    )


def test_time_without_an_owner_is_counted_once() -> None:
    assert waited_ms(100, 1000, []) == 900
    assert waited_ms(100, 1000, [(0, 200), (150, 300), (600, 700), (900, 1000)]) == 500
    assert waited_ms(100, 1000, [(0, 1000)]) == 0
    assert waited_ms(100, 1000, [(2000, 3000)]) == 900
    # The clock was a year ahead when this was written down.
    assert waited_ms(100, 1000, [(0, 200), (300, 5000)]) == 800


class NoSpark:
    """A process of which only the JVM's number is used."""

    jvm_pid = 1


def test_an_owner_records_how_long_there_was_no_owner(tmp_path: Path) -> None:
    metastore, warehouse = Metastore.open(str(tmp_path)), Warehouse.at(str(tmp_path))
    context = Context(
        warehouse=warehouse,
        metastore=metastore,
        sessions=NoSpark(),  # type: ignore[arg-type]  # nothing here asks Spark
        owner="me",
    )
    began = now_ms()
    owner = Owner(context)
    owner._try_take()
    assert owner.is_owner
    assert downtime(warehouse) == []
    owner._renew(-1)
    assert downtime(warehouse) == []
    # The machine sleeps for a day: no heartbeat.
    day = 24 * 3600 * 1000
    assert owner._lease is not None
    asleep = replace(owner._lease, heartbeat_ms=began - day)
    assert metastore.jobs.renew_lease(asleep)
    owner._lease = asleep
    owner._renew(-1)
    (stretch,) = downtime(warehouse)
    assert stretch[0] == began - day
    assert stretch[1] >= began
    # The owner is killed, and another process starts a week later.
    gone = replace(owner._lease, heartbeat_ms=began - 7 * day, is_released=True)
    assert metastore.jobs.renew_lease(gone)
    Owner(context)._try_take()
    assert [start for start, _ in downtime(warehouse)] == [began - 7 * day, began - day]
    assert waited_ms(began - 7 * day, now_ms(), downtime(warehouse)) < day
