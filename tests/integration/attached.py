"""A Spark session that is attached to a new warehouse, with helpers for tests. Also has a function that waits for a
condition."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.cli.servers.kafka_topics import Record, produce
from rw_sql.runtime.ingest import batch_reader, followed, warm_start
from rw_sql.runtime.spark.jvm import java_session
from rw_sql.runtime.sql.source_scan import SourceScan
from tests.support import waits
from tests.support.ageing import grow_old

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pytest
    from pyspark.sql import DataFrame, Row, SparkSession

    from rw_sql.session.attach import Attached, Question

_LOOK_SECONDS = 0.1

READER = (batch_reader, followed, warm_start)
"""The modules of a source's reader that use the limit ``SMALL_ROWS``."""


def wait_until(is_met: Callable[[], bool], what: str) -> None:
    """Returns once the condition holds. The condition is checked at long intervals, because each check may run a
    statement."""
    waits.wait_until(is_met, what, look_seconds=_LOOK_SECONDS)


def produce_json(bootstrap: str, topic: str, rows: Iterable[Mapping[str, object]], partition: int | None = None) -> int:
    """Writes rows as JSON objects to a topic. If ``partition`` is given, all rows are written to this partition."""
    return produce(bootstrap, topic, [Record(value=json.dumps(row).encode(), partition=partition) for row in rows])


def noted_ranges(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, tuple[int, int]]]:
    """A list to which each later scan of a source adds the offset ranges, by partition, that it reads."""
    read: list[dict[str, tuple[int, int]]] = []
    frame_of = SourceScan.frame

    def noted(scan: SourceScan, spark: SparkSession) -> DataFrame:
        read.append({split.rpartition(":")[2]: bounds for split, bounds in scan.ranges.items()})
        return frame_of(scan, spark)

    monkeypatch.setattr(SourceScan, "frame", noted)
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of SHOW JOBS."""

    job: str
    state: str
    reason: str
    lag: int | None
    run: int | None
    restarts: int


class AttachedSession:
    """Runs statements on one attached session, and returns plain Python values."""

    def __init__(self, spark: SparkSession, warehouse: str, *, run_jobs: bool = True) -> None:
        self.spark = spark
        self.warehouse = warehouse
        self.attached: Attached = rw_sql.attach(spark, warehouse, run_jobs=run_jobs)
        self.attached.ask = None
        self.questions: list[Question] = []

    def detach(self) -> None:
        """Detaches the session, which stops the warehouse's jobs in this process."""
        rw_sql.detach(self.spark)

    def sql(self, text: str) -> list[Row]:
        """The rows of one statement."""
        return self.spark.sql(text).collect()

    def run(self, *statements: str) -> None:
        """Runs statements one by one."""
        for statement in statements:
            self.sql(statement)

    def answer(self, yes: bool) -> None:
        """Sets the answer to the questions of all following unsafe statements."""

        def say(question: Question) -> bool:
            self.questions.append(question)
            return yes

        self.attached.ask = say

    def let_no_job_rest(self) -> None:
        """Keeps jobs running even if they have nothing to read, for tests that compare numbers of runs.

        On a busy machine, a job may otherwise rest and start again between two comparisons.
        """
        self.sql("ALTER SYSTEM SET idle_job_timeout = '-1'")

    def allow_unsafe(self) -> None:
        """Enables unsafe statements in the warehouse, and confirms each of these statements."""
        self.sql("ALTER SYSTEM SET enable_unsafe_ops = true")
        self.answer(True)

    def rows_of(self, view: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """A view's rows, sorted."""
        rows = [tuple(row) for row in self.sql(f"SELECT {columns} FROM {view}")]
        return sorted(rows, key=lambda row: [(value is not None, value) for value in row])

    def flushed_rows_of(self, view: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """A view's sorted rows after a FLUSH. After the FLUSH, the view contains all records that were produced."""
        self.sql("FLUSH")
        return self.rows_of(view, columns)

    def jobs(self) -> dict[str, Job]:
        """The rows of SHOW JOBS, by the names of the jobs' objects."""
        return {
            row.object: Job(
                job=row.job, state=row.state, reason=row.reason, lag=row.lag, run=row.run, restarts=row.restarts
            )
            for row in self.sql("SHOW JOBS")
        }

    def job(self, name: str) -> Job:
        """The job of the object with this name."""
        return self.jobs()[name]

    def positions(self, source: str) -> dict[str, int | None]:
        """The position of each split, from SHOW SOURCE SPLITS."""
        return {row.split: row.next for row in self.sql(f"SHOW SOURCE SPLITS {source}")}

    def split_statuses(self, source: str) -> dict[str, str]:
        """The status of each split, from SHOW SOURCE SPLITS."""
        return {row.split: row.status for row in self.sql(f"SHOW SOURCE SPLITS {source}")}

    def epoch(self) -> int:
        """The newest epoch of the metastore."""
        return int(self.sql("SELECT max(epoch) FROM rw_catalog.rw_operations")[0][0] or 0)


def queries(session: AttachedSession) -> set[str]:
    """The names of the queries that run in Spark."""
    running = java_session(session.spark).sharedState().activeStreamingQueries()
    return {str(query.name()) for query in running.values()}


_BATCHES = "rw_sql-batches-"


def batch_threads() -> set[str]:
    """The ids of the jobs whose batches are written by a thread of this process instead of a query."""
    return {thread.name.removeprefix(_BATCHES) for thread in threading.enumerate() if thread.name.startswith(_BATCHES)}


def has_thread(session: AttachedSession, name: str) -> bool:
    """True if the batches of a source or view are written by a thread, and not by a query."""
    job = session.job(name).job
    return job in batch_threads() and job not in queries(session)


def writers(session: AttachedSession) -> set[str]:
    """The ids of the jobs whose batches are written by a query or by a thread."""
    return queries(session) | batch_threads()


def restarted(session: AttachedSession, pause: float = 0.0) -> AttachedSession:
    """Stops all jobs of the warehouse and starts them again, as if ``pause`` seconds had passed in between."""
    session.detach()
    if pause:
        grow_old(Path(session.warehouse), pause)
    return AttachedSession(session.spark, session.warehouse)
