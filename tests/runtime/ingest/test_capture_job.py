"""The job of a captured database on a real PostgreSQL: a thread writes its batches, and no Spark exists."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import TableRecord
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.ingest import change_feed
from rw_sql.runtime.ingest import job as job_module
from rw_sql.runtime.ingest import warm_start as warm_start_module
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.jobs import context as context_module
from rw_sql.runtime.jobs.batch_thread import BatchThread
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.shared import read_positions
from tests.runtime.ingest.test_capture import Log, confirmed, made_log, schema_of, table_of
from tests.support.postgres import PASSWORD
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.plan.ports.positions import Positions
    from rw_sql.runtime.spark.sessions import SparkSessions
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres


@pytest.fixture
def log(postgres: PostgresInfo, tmp_path: Path) -> Iterator[Log]:
    with made_log(postgres, tmp_path) as made:
        yield made


@pytest.fixture
def context(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A warehouse without Spark: its catalog is that of the log, its other tables are real."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    for module in (job_module, context_module):
        monkeypatch.setattr(module, "log_schema", lambda _: SimpleNamespace(json=lambda: schema_of(log.source)))
    for module in (job_module, warm_start_module):
        monkeypatch.setattr(module, "read_positions", _of_any_server)
    stored = Metastore.open(str(tmp_path))
    metastore: Any = SimpleNamespace(jobs=stored.jobs, snapshot=lambda: log.world.snapshot)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    made = Context(
        warehouse=log.warehouse,
        metastore=metastore,
        sessions=cast("SparkSessions", SimpleNamespace(cores=2, spark=spark)),
        owner="test",
    )
    made.owning.set()
    return made


def _of_any_server(*given: Any) -> Positions:
    """The positions without the identity of the server, because the catalog was made for another one."""
    found = read_positions(*given)
    states = {split: replace(state, cluster=None, incarnation=None) for split, state in found.states.items()}
    return replace(found, states=states)


@contextmanager
def running(log: Log, context: Context, before: Ingest | None = None) -> Iterator[Ingest]:
    """A run of the job."""
    (spec,) = [found for found in desired_jobs(log.world.snapshot).values() if isinstance(found, IngestSpec)]
    job = Ingest.start(context, spec, before)
    try:
        yield job
    finally:
        job.stop()


def words(log: Log) -> list[str]:
    """The words of the rows in the log, in order."""
    return [row.split('"word":"')[1].split('"')[0] for _, _, row in log.changes() if row]


def test_each_change_is_in_the_log_once_over_several_runs(log: Log, context: Context) -> None:
    table = table_of(log)
    log.postgres.run(f"INSERT INTO {table} VALUES (1, 'a')")
    with running(log, context) as job:
        assert isinstance(job.streaming.thread, BatchThread)
        assert job.streaming.query is None
        wait_until(lambda: words(log) == ["a"], "the row that existed before")
        for number, word in ((2, "b"), (3, "c")):
            log.postgres.run(f"INSERT INTO {table} VALUES ({number}, '{word}')")
            wait_until(lambda: len(words(log)) == number, f"row {number}")  # noqa: B023 - called at once
        assert job.failure() is None
        assert context.figures.last_batch(job.spec.job) is not None
    assert confirmed(log) <= job.positions[job.spec.splits[0]]
    log.postgres.run(f"INSERT INTO {table} VALUES (4, 'd')")
    with running(log, context, job) as job:
        wait_until(lambda: len(words(log)) == 4, "the row that was written meanwhile")
    log.postgres.run(f"INSERT INTO {table} VALUES (5, 'e')")
    with running(log, context):
        wait_until(lambda: len(words(log)) == 5, "the last row")
    assert words(log) == ["a", "b", "c", "d", "e"]


def test_the_slot_goes_on_after_the_last_table_is_dropped(
    log: Log, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "QUIET_SECONDS", 0.1)
    table, created = table_of(log), log.world.snapshot.find("table", "t")
    assert isinstance(created, TableRecord)
    log.postgres.run(f"INSERT INTO {table} VALUES (1, 'a')")
    with running(log, context) as job:
        wait_until(lambda: words(log) == ["a"], "the row that existed before")
    log.world.run("DROP TABLE t")
    log.postgres.run(f"INSERT INTO {table} VALUES (2, 'b')")
    with running(log, context, job) as job:
        for number in (3, 4):
            log.postgres.run(f"INSERT INTO {table} VALUES ({number}, 'c')")
            (seen,) = connector("postgres-cdc").look(log.options).splits.values()
            wait_until(lambda: confirmed(log) >= seen.end, "the slot moves")  # noqa: B023 - called at once
        assert job.failure() is None
    assert words(log) == ["a"]
    log.world.run(created.definition)
    context.applied.tell(log.world.snapshot.epoch, [])
    with running(log, context, job):
        wait_until(lambda: sorted(words(log)) == ["a", "a", "b", "c", "c"], "the rows of the new table")


def test_a_reader_that_loses_its_connection_ends_with_the_reason(log: Log, context: Context) -> None:
    with running(log, context) as job:
        wait_until(lambda: log.warehouse.exists(f"{log.warehouse.data(log.source.id, 1)}/_delta_log"), "the log")
        named = f"slot_name = '{log.options['slot.name']}'"
        wait_until(
            lambda: log.postgres.run(f"SELECT active FROM pg_replication_slots WHERE {named}") == [(True,)], "the slot"
        )
        log.postgres.run(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE {named}")
        wait_until(lambda: job.failure() is not None, "the end of the job")
        failure = job.failure()
        assert failure is not None
        assert failure.reason.startswith("UNREACHABLE")
    log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a')")
    with running(log, context):
        wait_until(lambda: words(log) == ["a"], "the row")


def test_after_another_run_has_taken_over_the_reader_commits_nothing(log: Log, context: Context) -> None:
    with running(log, context) as job:
        wait_until(lambda: job.positions[job.spec.splits[0]] > 0, "a position")
        other = job.output.reopen(log.warehouse, job.output.path, job=job.spec.job, run=job.run + 1, epoch=job.epoch)
        log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a')")
        wait_until(lambda: job.failure() is not None, "the end of the job")
        failure = job.failure()
        assert failure is not None
        assert failure.reason.startswith("FencedError: ")
        assert words(log) == []
    # The reader's own table may be older, if its last commit was refused.
    assert latest_version(log.warehouse, job.output.path) == other.table.version()
