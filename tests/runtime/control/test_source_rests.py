"""Sources at rest: what wakes them and when, races with records and statements, and what the next process does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.metastore.records import (
    MaterializedViewRecord,
    PauseRecord,
    PutObject,
)
from rw_sql.runtime.control import reconciler, rest_conditions, rest_scheduler
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.statuses import IDLE, jobs_at_rest
from rw_sql.runtime.observe import cluster_looks, lag, upstream_watcher, watched_options
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.processes import now_ms
from tests.runtime.controlled_jobs import FakeJob
from tests.runtime.rested_sources import FakeReader, World

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.model.job_specs import IngestSpec, JobSpec
    from rw_sql.runtime.jobs.context import Context


def test_a_record_wakes_a_source_and_its_view_and_nothing_else(world: World) -> None:
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    assert all(job.is_stopped for job in world.jobs.values())
    world.starts.clear()
    world.cluster.ends["t10:0"] = 1
    world.reach(lambda: len(world.starts) == 2, "what reads the topic was started")
    assert set(world.started()) == {"ingest-10", "mv-11"}
    # One request for both sources, and none that asks about one of them.
    assert max(world.cluster.requests) == 2
    status = world.status("ingest-20")
    assert status is not None
    assert status.state == "RUNNING"


def test_a_record_that_comes_while_the_reader_stops_is_found(world: World) -> None:
    def produce() -> None:
        world.cluster.ends["t10:0"] = 7

    world.on_stop = produce
    world.source(10)
    world.reach(lambda: world.started().count("ingest-10") == 2, "it was started again")
    assert world.cluster.ends["t10:0"] == 7


def test_a_batch_that_is_committed_while_the_reader_stops_counts(world: World) -> None:
    def read_on() -> None:
        reader: Any = world.jobs["ingest-10"]
        world.cluster.ends["t10:0"] = 3
        reader.positions["t10:0"] = 3

    world.on_stop = read_on
    world.source(10)
    world.rest(10)
    for _ in range(20):
        world.reconciler.reconcile()
        world.reconciler.wait_changed(0.01)
    assert world.started().count("ingest-10") == 1


def test_a_source_with_records_to_read_does_not_rest(world: World) -> None:
    world.source(10)
    make = world.make

    def behind(spec: JobSpec, run: int) -> FakeJob:
        made = make(spec, run)
        if isinstance(made, FakeReader):
            made.positions = {"t10:0": 2}
        return made

    world.make = behind
    world.cluster.ends["t10:0"] = 5
    world.reach(lambda: world.cluster.looks > 2, "it was looked at again and again")
    assert not world.jobs["ingest-10"].is_stopped


def test_a_source_with_a_long_interval_between_batches_does_not_rest_before_it_is_over(world: World) -> None:
    """Its next run would write a batch at once."""
    for id_, milliseconds in ((10, 1_000), (20, 601_000)):
        world.context.note_batch(f"ingest-{id_}", now_ms() - milliseconds, 0.1)
        world.source(id_, more=(("barrier_interval_ms", "600000"),))
    world.rest(20)
    for _ in range(20):
        world.reconciler.reconcile()
        world.reconciler.wait_changed(0.01)
    assert not world.jobs["ingest-10"].is_stopped


def held_starts(world: World) -> threading.Event:
    """From now on the starts of jobs wait for the returned event."""
    may_start, make = threading.Event(), world.make

    def wait(spec: JobSpec, run: int) -> FakeJob:
        may_start.wait(60)
        return make(spec, run)

    world.make = wait
    return may_start


def test_a_statement_while_it_wakes_is_what_runs_in_the_end(world: World) -> None:
    world.source(10)
    world.rest(10)
    may_start = held_starts(world)
    world.cluster.ends["t10:0"] = 1
    world.reach(lambda: world.started().count("ingest-10") == 2, "it is being woken")
    status = world.status("ingest-10")
    assert status is not None
    assert status.state == "RUNNING"
    epoch = world.commit(PutObject(record=PauseRecord(id=99, name="s10", source_id=10)))
    world.reconciler.reconcile()
    assert world.reconciler.applied_epoch < epoch
    may_start.set()
    world.reach(lambda: world.reconciler.applied_epoch == epoch, "the pause is applied")
    assert world.jobs["ingest-10"].is_stopped


def test_a_statement_that_does_not_concern_it_does_not_wait_for_a_source_that_wakes(world: World) -> None:
    world.source(10)
    world.rest(10)
    may_start = held_starts(world)
    world.context.wakes.ask(["ingest-10"])
    world.reach(lambda: world.started().count("ingest-10") == 2, "it is being woken")
    world.set_idle_timeout("-1")
    epoch = world.metastore.snapshot().epoch
    world.reach(lambda: world.reconciler.applied_epoch == epoch, "the statement is applied")
    may_start.set()


def test_a_source_at_rest_that_is_paused_or_dropped_leaves_nothing_watched(world: World) -> None:
    world.source(10)
    world.rest(10)
    epoch = world.commit(PutObject(record=PauseRecord(id=99, name="s10", source_id=10)))
    world.reach(lambda: world.reconciler.applied_epoch == epoch, "the pause is applied")
    world.cluster.ends["t10:0"] = 1
    asked = len(world.cluster.requests)
    for _ in range(10):
        world.reconciler.reconcile()
        world.reconciler.wait_changed(0.02)
    assert len(world.cluster.requests) <= asked + 1
    assert world.started().count("ingest-10") == 1


def test_a_cluster_that_does_not_answer_is_reported_without_a_start_and_forgotten(world: World) -> None:
    world.source(10)
    world.rest(10)
    world.cluster.error = "h:1: connection refused"
    world.reach(lambda: world.reason("ingest-10").startswith("UNREACHABLE h:1"), "it is told")
    status = world.status("ingest-10")
    assert status is not None
    assert status.state == "STALLED"
    world.cluster.error = None
    world.reach(lambda: world.reason("ingest-10").startswith("idle: "), "it is over")
    assert world.started().count("ingest-10") == 1


def test_a_password_that_changes_in_its_file_while_a_source_rests_is_read_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement tells of the new value; a source that runs would fail, and read it at its next start."""
    monkeypatch.setattr(watched_options, "CHECK_SECONDS", 0.02)
    file = tmp_path / "password"
    file.write_text("first\n")
    world.secret(90, "pw", file)
    world.source(10, secret="pw")
    world.source(20)
    world.rest(10, 20)
    world.cluster.password = "second"
    world.reach(lambda: world.reason("ingest-10").startswith("UNREACHABLE h:1: SASL"), "it is told")
    world.passes()
    assert world.started().count("ingest-10") == 1
    file.write_text("second\n")
    world.reach(lambda: world.started().count("ingest-10") == 2, "it was started")
    world.rest(10)
    world.cluster.ends["t10:0"] = 1
    world.reach(lambda: world.started().count("ingest-10") == 3, "its record is found")
    assert world.started().count("ingest-20") == 1


@pytest.mark.parametrize("is_readable", [True, False])
def test_the_next_process_does_not_wait_for_the_secrets_of_what_rests(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    """A vault that does not answer takes seconds for each secret."""
    file = tmp_path / "password"
    file.write_text("first\n")
    world.secret(90, "pw", file)
    world.source(10, secret="pw")
    world.source(20, secret="pw")
    world.rest(10, 20)
    goes_on = threading.Event()
    reads: list[str] = []
    real = rest_conditions.options_of

    def slowly(context: Context, spec: IngestSpec) -> dict[str, str] | None:
        reads.append(spec.job)
        goes_on.wait(60)
        return real(context, spec) if is_readable else None

    monkeypatch.setattr(rest_scheduler, "options_of", slowly)
    world.again()
    epoch = world.metastore.snapshot().epoch
    world.reach(lambda: world.reconciler.applied_epoch == epoch, "everything is applied")
    assert not world.starts
    goes_on.set()
    if not is_readable:
        world.reach(lambda: {"ingest-10", "ingest-20"} <= set(world.started()), "their starts report the secret")
        assert len(reads) == 1
        return
    world.cluster.ends["t20:0"] = 4
    world.reach(lambda: len(world.starts) == 2, "what reads the topic was started")
    assert set(world.started()) == {"ingest-20", "mv-21"}


def test_what_rests_runs_when_no_job_may_rest_any_more(world: World) -> None:
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    world.set_idle_timeout("-1")
    world.reach(lambda: len(world.starts) == 8, "all run")
    world.passes()
    assert all(world.started().count(job) == 2 for job in ("ingest-10", "mv-11", "ingest-20", "mv-21"))


def test_new_partitions_and_another_topic_of_the_name_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_watcher, "TOPICS_SECONDS", 0.02)
    for id_ in (10, 20, 30):
        world.source(id_)
    world.rest(10, 20, 30)
    world.reconciler.take_changed()
    world.cluster.ends["t10:1"] = 0
    world.cluster.ids["t20"] = "another"
    found: set[int] = set()

    def look() -> bool:
        found.update(world.reconciler.take_changed())
        return found >= {10, 20}

    world.reach(look, "both are found")
    assert 30 not in found


def test_a_split_without_an_end_starts_its_source_and_no_other(world: World) -> None:
    """Its topic may not be read any more: only a start says why, and other sources of the cluster rest on."""
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    world.starts.clear()
    world.cluster.unreadable.add("t10:0")
    looks = len(world.cluster.requests)
    world.start_error["ingest-10"] = StalledError("UNREACHABLE t10: not authorized")
    world.reach(lambda: "ingest-10" in world.started(), "it was started")
    assert len(world.cluster.requests) - looks >= upstream_watcher._UNKNOWN_CHECKS
    world.reach(lambda: world.reason("ingest-10") == "UNREACHABLE t10: not authorized", "its start says why")
    assert set(world.started()) == {"ingest-10"}
    world.cluster.ends["t20:0"] = 1
    world.reach(lambda: "ingest-20" in world.started(), "the other one was started for its record")


def test_a_split_without_an_end_for_a_moment_starts_nothing(world: World) -> None:
    world.source(10)
    world.rest(10)
    for _ in range(3):
        looks = len(world.cluster.requests)
        world.cluster.unreadable.add("t10:0")
        world.reach(lambda before=looks: len(world.cluster.requests) >= before + 3, "it is looked at")  # type: ignore[misc]
        world.cluster.unreadable.clear()
        looks = len(world.cluster.requests)
        world.reach(lambda before=looks: len(world.cluster.requests) >= before + 2, "it is looked at")  # type: ignore[misc]
    assert world.started().count("ingest-10") == 1


def test_topics_that_cannot_be_looked_at_hide_no_records_and_are_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_watcher, "TOPICS_SECONDS", 0.02)
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    world.cluster.topics_error = "not authorized"
    looks = world.cluster.topics_looks
    world.reach(lambda: world.cluster.topics_looks >= looks + 5, "topics are checked")
    assert world.reason("ingest-20").startswith("idle: ")
    world.cluster.ends["t10:0"] = 1
    world.reach(lambda: world.started().count("ingest-10") == 2, "its record was found")
    world.cluster.topics_error = None
    world.reconciler.take_changed()
    world.cluster.ids["t20"] = "another"
    world.reach(lambda: 20 in world.reconciler.take_changed(), "the topic was created again")


def test_a_stall_that_discovery_finds_ends_the_rest(world: World) -> None:
    world.source(10)
    world.rest(10)
    spec = world.starts[0] if world.starts[0].job == "ingest-10" else world.starts[1]
    world.reconciler.stall(spec, StalledError("RECREATED t10:0", is_final=True))
    world.reach(lambda: world.reason("ingest-10") == "RECREATED t10:0", "it is stalled")
    world.cluster.ends["t10:0"] = 1
    for _ in range(10):
        world.reconciler.reconcile()
        world.reconciler.wait_changed(0.01)
    assert world.started().count("ingest-10") == 1


def test_the_next_process_leaves_at_rest_what_rested(world: World) -> None:
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    world.again()
    epoch = world.metastore.snapshot().epoch
    world.reach(lambda: world.reconciler.applied_epoch == epoch, "everything is applied")
    world.rest(10, 20)
    assert not world.starts
    world.cluster.ends["t20:0"] = 4
    world.reach(lambda: len(world.starts) == 2, "what reads the topic was started")
    assert set(world.started()) == {"ingest-20", "mv-21"}


def test_the_notice_of_a_job_is_shown_while_it_rests_and_by_the_next_process(world: World) -> None:
    """A sink's rejected rows do not disappear from SHOW JOBS after a minute without rows."""
    made = world.make

    def with_notice(spec: JobSpec, run: int) -> FakeJob:
        job = made(spec, run)
        job.notice = "2 rows rejected" if spec.job == "mv-11" else None
        return job

    world.make = with_notice
    world.source(10)
    world.rest(10)
    assert (world.reason("ingest-10"), world.reason("mv-11")) == (IDLE, f"{IDLE}; 2 rows rejected")
    world.context.owning.set()
    assert {"ingest-10", "mv-11"} <= jobs_at_rest(world.context)
    world.again()
    world.starts.clear()
    world.rest(10)
    assert world.reason("mv-11") == f"{IDLE}; 2 rows rejected"
    assert not world.starts


def test_after_a_kill_the_next_process_leaves_at_rest_what_was_noted(world: World) -> None:
    world.source(10)
    world.rest(10)
    file = f"{world.context.warehouse.uri}/checkpoints/resting.json"
    world.reach(lambda: world.context.warehouse.exists(file), "it is noted")
    noted = world.context.warehouse.read_text(file)
    world.reach(lambda: "mv-11" in world.context.warehouse.read_text(file), "both are noted")
    assert "ingest-10" in noted
    # Nothing of the killed process runs on: neither its watcher nor its last note.
    world.reconciler._rests.stop()
    world.starts.clear()
    world.reconciler = Reconciler(world.context)
    world.rest(10)
    assert not world.starts


@pytest.mark.parametrize("what", ["definition", "run", "commit", "text"])
def test_what_changed_while_no_process_ran_is_started(world: World, what: str) -> None:
    world.source(10)
    world.rest(10)
    world.again()
    if what == "definition":
        record = world.metastore.snapshot().get(11)
        assert isinstance(record, MaterializedViewRecord)
        world.change(record)
    elif what == "run":
        world.metastore.jobs.claim_run("mv-11", 1, "another process")
    elif what == "commit":
        write_deltalake(world.context.warehouse.data(10, 1), pa.table({"id": [1]}))
    else:
        world.context.warehouse.write_text(f"{world.context.warehouse.uri}/checkpoints/resting.json", "{")
    world.reach(lambda: "mv-11" in world.started(), "the view was started")


def test_the_busiest_of_many_sources_begin_first_and_only_so_many_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "MOST_STARTS", 2)
    ids = range(10, 70, 10)
    for id_ in ids:
        world.source(id_)
    world.rest(*ids)
    world.again()
    world.rest(*ids)
    may_start = held_starts(world)
    world.cluster.ends |= {f"t{id_}:0": id_ for id_ in ids}
    world.reach(lambda: len(world.starts) == 2, "two are being started")
    for _ in range(10):
        world.reconciler.reconcile()
    assert set(world.started()) == {"ingest-60", "mv-61"}
    may_start.set()
    world.reach(lambda: len(world.starts) == 2 * len(ids), "all were started")


def test_a_pass_over_jobs_at_rest_looks_at_none_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source(10)
    world.rest(10)
    world.reach(lambda: all(slot.is_settled for slot in world.reconciler._slots.values()), "all are settled")
    world.reconciler.reconcile()
    looked: list[object] = []

    def look(*of: object) -> int:
        looked.append(of)
        return 0

    monkeypatch.setattr(rest_conditions, "latest_version", look)
    for _ in range(5):
        world.reconciler.reconcile()
    assert not looked


def test_the_lags_of_all_sources_of_a_cluster_take_one_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_looks, "connector", lambda _: world.cluster)
    for id_ in (10, 20):
        world.source(id_)
    world.cluster.ends["t10:0"] = 3
    lags = lag.measure_lags(world.context, world.metastore.snapshot())
    assert (lags["ingest-10"], lags["ingest-20"]) == (3, 0)
    assert world.cluster.requests == [2]
    assert not world.cluster.looks


def test_the_sources_of_a_new_process_begin_before_their_views(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query of a view that has nothing to read polls: it would take CPU time from the starts of the sources."""
    monkeypatch.setattr(reconciler, "MOST_STARTS", 3)
    for id_ in (10, 20, 30):
        world.source(id_)
    may_start = held_starts(world)
    world.reach(lambda: len(world.starts) == 3, "three are being started")
    assert set(world.started()) == {"ingest-10", "ingest-20", "ingest-30"}
    may_start.set()
    world.reach(lambda: len(world.starts) == 6, "all were started")
