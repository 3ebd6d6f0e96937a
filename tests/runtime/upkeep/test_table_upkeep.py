"""A table stays small while it is written: no needed file is removed, whatever step a kill interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DIFF, RebuildRecord
from rw_sql.model.job_specs import view_spec
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.delta.delta_log import commit_versions
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.positions.high_water import last_data_version
from rw_sql.runtime.positions.logged_ranges import read_ranges
from rw_sql.runtime.positions.shared import read_committed_ranges
from rw_sql.runtime.positions.table_consumers import require_versions
from rw_sql.runtime.support import faults
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep import table_upkeep as log_upkeep
from rw_sql.runtime.upkeep.table_upkeep import Retention, Upkeep, retention_of
from tests.runtime.maintained_log import SPLIT_NAME, MaintainedLog, put

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
POINTS = (
    "noted", "compacted", "dropped", "checkpointed", "listed", "cleaning", "cleaning@7",
    "cleaned", "removing@9", "done",
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


def test_small_files_are_put_together_and_a_stream_sees_no_row_twice(log: MaintainedLog) -> None:
    view = log.view("v")
    log.append(30)
    log.read(view, 0, 2)
    log.turn()
    assert log.files() == 1
    log.append(3)
    assert log.ids() == list(range(66))
    # The reader is at the beginning, so every commit and every file that a commit names are kept.
    assert log.streamed(2) == list(range(66))
    assert len(log.on_disk()) == 34


def test_checksums_are_kept_of_the_newest_versions_only(log: MaintainedLog) -> None:
    log.append(2 * table_files.MOST_CHECKSUMS)
    log.turn()
    folder = Path(log.output.path) / "_delta_log"
    told = sorted(int(file.stem) for file in folder.glob("*.crc"))
    newest = log.output.table.version()
    assert told == list(range(newest - table_files.MOST_CHECKSUMS + 1, newest + 1))
    log.append(3)
    assert (folder / f"{newest + 3:020d}.crc").exists()


def test_what_every_reader_has_read_is_removed(log: MaintainedLog) -> None:
    views = [log.view("v"), log.view("w")]
    log.append(30)
    log.turn()
    for view in views:
        log.read(view, 0, 5)
        log.read(view, 1, log.output.table.version() + 1)
    log.append(10)
    log.turn()
    # A restarted query requests its last but one batch.
    assert log.versions()[0] <= 5
    for view in views:
        log.read(view, 2, log.output.table.version() + 1)
    needed = log.output.table.version() + 1
    log.append(10)
    log.turn()
    assert 5 < log.versions()[0] <= needed
    assert log.ids() == list(range(100))
    assert log.streamed(needed) == list(range(80, 100))
    for view in views:
        for batch in (3, 4):
            log.read(view, batch, log.output.table.version() + 1)
    log.append(10)
    log.turn()
    assert log.ids() == list(range(120))
    assert log.unexplained() == set()
    assert len(log.on_disk()) < 40
    assert log.pending == []


def test_a_view_that_is_computed_again_reads_its_inputs_as_they_were(log: MaintainedLog) -> None:
    view = log.view("v", strategy=DIFF)
    log.append(30)
    log.turn()
    compacted = log.output.table.version()
    # A batch that was planned before the compaction, and must be repeated after a kill.
    for batch in (0, 1):
        log.read(view, batch, compacted)
    for _ in range(3):
        log.append(30)
        log.turn()
    assert log.ids(version=compacted - 1) == list(range(60))
    for batch in (2, 3):
        log.read(view, batch, log.output.table.version() + 1)
    log.turn()
    assert log.versions()[0] > compacted


def test_a_query_that_has_one_batch_is_given_the_version_before_its_end(log: MaintainedLog) -> None:
    views = [log.view("v"), log.view("w")]
    log.append(30)
    log.turn()
    # This version has a checkpoint, so nothing before it is needed to continue from it.
    compacted = log.output.table.version()
    for view in views:
        log.read(view, 0, compacted)
    for _ in range(2):
        log.append(30)
        log.turn()
    assert log.ids(version=compacted - 1) == list(range(60))
    for view in views:
        log.read(view, 1, log.output.table.version() + 1)
        log.read(view, 2, log.output.table.version() + 1)
    log.append(30)
    log.turn()
    assert log.versions()[0] > compacted


def test_replaced_files_stay_for_queries_that_have_begun(log: MaintainedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 3600.0)
    log.append(30)
    old = DeltaTable(log.output.path)
    for _ in range(3):
        log.turn()
        log.append(25)
    assert log.versions()[0] > 30
    assert len(log.pending) >= 1
    assert sorted(old.to_pyarrow_table(columns=["id"]).column("id").to_pylist()) == list(range(60))
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    log.turn()
    assert log.pending == []
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        old.to_pyarrow_table(columns=["id"])


def test_commits_stay_for_readers_that_have_just_listed_them(
    log: MaintainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 60.0)
    log.append(30)
    log.turn()
    assert log.versions()[0] == 0
    # Everybody has read the checkpoint for a minute now.
    (checkpoint,) = (Path(log.output.path) / "_delta_log").glob("*.checkpoint.parquet")
    os.utime(checkpoint, (time.time() - 61, time.time() - 61))
    log.append(30)
    log.turn()
    assert log.versions()[0] == int(checkpoint.name.partition(".")[0])
    assert log.ids() == list(range(120))


def test_a_reader_that_has_not_begun_holds_the_commits_but_not_for_ever(log: MaintainedLog) -> None:
    log.view("v", created_at_ms=now_ms())
    log.append(30)
    log.turn()
    log.append(30)
    log.turn()
    assert log.versions()[0] == 0
    log.retention = Retention(max_hold_seconds=0.0)
    log.append(1)
    log.later_seconds += 1
    log.turn()
    assert log.versions()[0] > 0


def test_a_view_that_is_rebuilt_and_does_not_read_does_not_hold_the_log_for_ever(log: MaintainedLog) -> None:
    view = log.view("v")
    put(
        log.context.metastore,
        RebuildRecord(
            id=log.context.metastore.snapshot().next_id, name="v", view_id=view.id, generation=1, created_at_ms=now_ms()
        ),
    )
    log.append(30)
    log.read(view, 0, 3)
    log.turn()
    log.append(30)
    log.turn()
    assert log.versions()[0] == 0
    log.retention = Retention(max_hold_seconds=0.0)
    log.append(1)
    log.later_seconds += 1
    log.turn()
    assert log.versions()[0] > 0


def test_an_idle_reader_is_waited_for_as_long_as_log_max_hold_says(log: MaintainedLog) -> None:
    view = log.view("v")
    log.append(30)
    log.read(view, 0, 3)
    for _ in range(2):
        log.append(5)
        log.turn()
    assert log.versions()[0] <= 3
    log.retention = Retention(max_hold_seconds=0.0)
    log.append(1)
    log.later_seconds += 1
    log.turn()
    assert log.versions()[0] > 3
    # A reader that has waited too long does not keep the rest for ever.
    log.retention = Retention()
    before = log.versions()[0]
    log.append(30)
    log.turn()
    log.append(30)
    log.turn()
    assert log.versions()[0] > before


def test_a_reader_whose_versions_are_gone_is_stalled_and_told_what_to_type(log: MaintainedLog) -> None:
    view = log.view("v")
    log.append(30)
    spec = view_spec(log.context.metastore.snapshot(), view)
    checkpoint = log.warehouse.view_checkpoint(view.id, view.generation)
    require_versions(log.context, spec, checkpoint)
    log.read(view, 0, 3)
    log.retention = Retention(max_hold_seconds=0.0)
    for _ in range(2):
        require_versions(log.context, spec, checkpoint)
        log.later_seconds += 1
        log.append(20)
        log.turn()
    with pytest.raises(StalledError) as raised:
        require_versions(log.context, spec, checkpoint)
    begins = log.versions()[0]
    assert raised.value.is_final
    assert raised.value.reason == (
        f"EXPIRED s: v has read to version 3 and has not read for longer than log.max_hold, so the first "
        f"available version is now {begins}: REBUILD MATERIALIZED VIEW v"
    )
    log.read(view, 1, begins)
    log.read(view, 2, log.output.table.version() + 1)
    require_versions(log.context, spec, checkpoint)


def test_hours_go_by_age_when_they_have_been_read(log: MaintainedLog) -> None:
    now = int(time.time()) // 3600
    view = log.view("v")
    for hour in range(now - 5, now + 1):
        log.hour = hour
        log.append(2)
        if hour == now - 3:
            log.read(view, 0, 2)
            log.read(view, 1, log.output.table.version() + 1)
    log.retention = Retention(seconds=3600.0)
    log.turn()
    # The reader might request its batch of version 2 again, so all hours from there on stay.
    assert log.ids() == list(range(24))
    log.read(view, 2, log.output.table.version() - 3)
    log.turn()
    assert log.ids()[0] == 12, "the hours up to the last one it has read"
    for batch in (3, 4):
        log.read(view, batch, log.output.table.version() + 1)
    log.turn()
    assert log.ids() == list(range(16, 24)), "one whole hour stays, and the one that is written to"
    log.retention = Retention(seconds=0.0)
    log.turn()
    assert log.ids() == list(range(20, 24)), "never the hour that is written to"


def test_hours_go_by_size(log: MaintainedLog) -> None:
    for hour in range(1000, 1006):
        log.hour = hour
        log.append(1, rows=100)
    (size,) = {pa.table(log.output.table.get_add_actions()).column("size_bytes").to_pylist()[0]}
    log.retention = Retention(bytes=3 * size + size // 2)
    log.turn()
    assert log.ids() == list(range(300, 600))


def spans_told(log: MaintainedLog) -> list[tuple[int, int]]:
    """The ranges that the present and the removed commits of the log report, in order, joined where they meet."""
    joined: list[tuple[int, int]] = []
    for told in read_committed_ranges(log.warehouse, log.source):
        start, end = told.ranges[SPLIT_NAME]
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def test_facts_of_removed_commits_are_still_reported(log: MaintainedLog) -> None:
    log.append(40)
    assert spans_told(log) == [(0, 80)]
    for _ in range(3):
        log.turn()
        log.append(30)
    assert log.versions()[0] > 60
    assert spans_told(log) == [(0, 260)]
    assert len(read_committed_ranges(log.warehouse, log.source)) <= len(log.versions()) + 1
    now = read_ranges(log.warehouse, log.source)
    assert now.is_complete
    assert now.lives[SPLIT_NAME][0].spans == ((0, 260),)


def test_a_reverted_commit_is_not_reported(log: MaintainedLog) -> None:
    for _ in range(3):
        log.append(30)
        log.turn()
    view = log.view("v")
    back_to, rows = log.output.table.version(), log.ids()
    log.read(view, 0, back_to)
    log.append(10)
    log.turn()
    assert 0 < log.versions()[0] <= back_to
    log.output.table.restore(back_to)
    assert log.ids() == rows
    assert spans_told(log) == [(0, 180)]
    found = read_ranges(log.warehouse, log.source)
    assert found.is_complete
    assert found.lives[SPLIT_NAME][0].spans == ((0, 180),)


def test_flush_waits_for_rows_whose_commits_are_gone(log: MaintainedLog) -> None:
    log.append(40)
    last = log.output.table.version()
    assert last_data_version(log.context, log.output.path) == last
    log.turn()
    for version in log.versions()[:-1]:
        log.warehouse.remove(f"{log.output.path}/_delta_log/{version:020d}.json")
    assert last_data_version(log.context, log.output.path) == log.versions()[0] - 1 >= last


def test_a_run_that_was_fenced_out_does_nothing(log: MaintainedLog) -> None:
    log.append(30)
    later = MaintainedLog.open(log.warehouse.uri, run=2)
    with pytest.raises(FencedError):
        log.turn()
    assert later.files() == 30


def test_a_turn_comes_with_every_hundredth_version(log: MaintainedLog) -> None:
    upkeep = log.upkeep()
    log.append(20)
    upkeep.run_if_due()
    assert log.files() == 20
    log.append(90)
    upkeep.run_if_due()
    assert log.files() == 1


def test_many_small_batches_leave_a_table_of_one_size(log: MaintainedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "EVERY_VERSIONS", 20)
    view = log.view("v")
    upkeep = log.upkeep()
    sizes: list[tuple[int, int, int]] = []
    for batch in range(240):
        log.append()
        log.read(view, batch, log.output.table.version() + 1)
        upkeep.run_if_due()
        commits = log.versions()
        sizes.append((log.files(), len(commits), len(log.on_disk())))
    for number in range(3):
        third, fourth = ([each[number] for each in sizes[low : low + 60]] for low in (120, 180))
        assert max(fourth) <= max(third)
    assert max(files for files, _, _ in sizes) <= 45
    assert log.ids() == list(range(480))


def test_a_view_s_table_and_its_change_feed(log: MaintainedLog) -> None:
    schema = Schema.from_arrow(pa.schema([("k", pa.int32()), ("n", pa.int64())])).to_json()
    path = log.warehouse.data(77, 1)
    output = JobOutput.open(log.warehouse, path, schema, job="mv-77", run=1, epoch=1, has_change_feed=True)
    upkeep = Upkeep(context=log.context, object_id=77, generation=1, output=output)
    for batch in range(60):
        keys = pa.array([batch % 3, 3 + batch % 2], pa.int32())
        output.upsert_rows(pa.table({"k": keys, "n": pa.array([batch, batch], pa.int64())}), ["k"], batch)
        if batch % 15 == 14:
            upkeep.run()
    rows = output.table.to_pyarrow_table().to_pylist()
    assert {row["k"]: row["n"] for row in rows} == {0: 57, 1: 58, 2: 59, 3: 58, 4: 59}
    assert len(commit_versions(log.warehouse, path)) < 40
    feed = Path(path) / "_change_data"
    assert 0 < len(list(feed.glob("*.parquet"))) < 80
    again = JobOutput.open(log.warehouse, path, schema, job="mv-77", run=2, epoch=2, has_change_feed=True)
    assert again.done == 59


def test_what_killed_writers_leave_behind_goes_after_a_day(log: MaintainedLog) -> None:
    log.append(3)
    folder = Path(log.output.path) / "_rw_bucket=1000"
    for name, age in (("old.parquet", 90_000), ("new.parquet", 60)):
        (folder / name).write_bytes(b"PAR1")
        os.utime(folder / name, (time.time() - age,) * 2)
    log.turn()
    assert not (folder / "old.parquet").exists()
    assert (folder / "new.parquet").exists()
    assert log.ids() == list(range(6))


class Killed(BaseException):
    """The process would be gone here."""


def interrupted(log: MaintainedLog) -> tuple[int, list[int]]:
    """A log with two hours, after two runs of upkeep, and a reader that has read it up to the first of these versions;
    also returns its rows."""
    view = log.view("v")
    for hour in (1000, 1001):
        log.hour = hour
        log.append(15)
    log.turn()
    log.append(30)
    log.turn()
    log.append(30)
    needed = log.output.table.version() + 1
    log.read(view, 0, needed)
    log.read(view, 1, needed)
    log.append(5)
    return needed, log.ids()


@pytest.mark.parametrize(
    ("point", "seconds"),
    [*((point, None) for point in POINTS), ("compacted", 0.0), ("dropped", 0.0), ("cleaning", 0.0)],
)
def test_a_kill_at_any_step_leaves_the_rows_and_the_next_turn_does_the_rest(
    point: str, seconds: float | None, log: MaintainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed, rows = interrupted(log)

    def kill(_: str) -> None:
        raise Killed

    monkeypatch.setattr(faults, "kill", kill)
    faults.arm(f"upkeep.{point}")
    log.retention = Retention(seconds=seconds)
    with pytest.raises(Killed):
        log.turn()
    require_healed(log.warehouse.uri, needed, rows, seconds)


def test_a_process_that_is_killed_while_it_cleans(log: MaintainedLog) -> None:
    needed, rows = interrupted(log)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.runtime.maintained_log", log.warehouse.uri, "upkeep.cleaning@7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    require_healed(log.warehouse.uri, needed, rows, None)


def require_healed(folder: str, needed: int, rows: list[int], seconds: float | None) -> None:
    """Asserts that a new run has all rows, that its first upkeep completes the interrupted one, and that no unneeded
    file remains."""
    kept = rows if seconds is None else rows[30:]
    log = MaintainedLog.open(folder, run=3)
    assert log.ids() in (rows, kept)
    assert log.streamed(needed) == rows[-10:]
    log.retention = Retention(seconds=seconds)
    log.turn()
    assert log.ids() == kept
    assert log.streamed(needed) == rows[-10:]
    assert log.pending == []
    assert log.unexplained() == set()
    assert spans_told(log) == [(0, len(rows))]


def test_what_a_source_says_of_its_log() -> None:
    assert retention_of({}) == Retention()
    told = {"log.retention": "2 days", "log.retention.bytes": "1000", "log.max_hold": "12 hours"}
    assert retention_of(told) == Retention(seconds=172_800.0, bytes=1000, max_hold_seconds=43_200.0)


def test_the_options_are_checked() -> None:
    from tests.plan.canned import moved_world

    world = moved_world()
    world.run("ALTER SOURCE s CONNECTOR WITH (log.retention = '7 days', log.retention.bytes = '1000000')")
    with pytest.raises(SqlError, match="duration"):
        world.run("ALTER SOURCE s CONNECTOR WITH (log.retention = 'for ever')")
    with pytest.raises(SqlError, match="at least 60"):
        world.run("ALTER SOURCE s CONNECTOR WITH (log.max_hold = '1 s')")
