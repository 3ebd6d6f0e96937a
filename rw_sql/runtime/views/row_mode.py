"""Decides whether a streaming query or a thread of this process writes the batches of a view whose query is row-by-row.

The thread writes small batches (:mod:`rw_sql.runtime.views.row_batches`). :mod:`rw_sql.runtime.jobs.batch_mode`
describes when the thread and the query replace each other. A run begins with the thread, unless the thread cannot
continue at the checkpoint's position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.jobs.batch_mode import BatchMode, LeftToSparkError
from rw_sql.runtime.positions.checkpoint_batches import end_of_batch
from rw_sql.runtime.positions.log_shares import StoredShares
from rw_sql.runtime.positions.planned_rows import Planned, changes_of_commits, rows_of_commits
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.views.row_batches import PreparedRows, RowBatches, may_have_row_batches
from rw_sql.runtime.views.streamed import upstream_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from rw_sql.runtime.jobs.streaming_run import StreamingRun
    from rw_sql.runtime.views.row_writers import RowWriter
    from rw_sql.runtime.views.strategy import ViewRun


_MOST_LEFT = 20
"""A thread may replace the query only if the input has at most this number of commits after the query's last batch."""


@dataclass(slots=True)
class RowMode:
    """Writes the batches of one run of a view, either with a query or with a thread.

    ``start_query`` is a function that starts a query at the checkpoint's position, and ``end_query`` ends the query.
    ``write`` is a function that writes a batch that the thread has computed. Its arguments are the run's
    :class:`RowBatches` and the rows of the batch. ``writer`` determines how rows are written; None if only a query can
    write rows.
    """

    run: ViewRun
    streaming: StreamingRun
    start_query: Callable[[], None]
    end_query: Callable[[], None]
    write: Callable[[RowBatches, pa.Table], None]
    writer: RowWriter | None
    mode: BatchMode = field(init=False)
    _session: SparkSession | None = field(default=None, init=False)
    _prepared: PreparedRows | None = field(default=None, init=False)
    _rows: RowBatches | None = field(default=None, init=False)
    _rest: dict[int, Planned] = field(default_factory=dict, init=False)
    """Maps the versions of at most ``_MOST_LEFT`` commits after the query's last batch to the number of their rows."""

    def __post_init__(self) -> None:
        self.mode = BatchMode(
            job=self.run.spec.job,
            streaming=self.streaming,
            start_query=self._start_query,
            end_query=self.end_query,
            has_completed=lambda batch: self.run.context.warehouse.exists(f"{self.run.checkpoint}/commits/{batch}"),
            open=self._open,
            has_next=lambda: self._rows is not None and self._rows.has_next(),
            write_next=self._write_next,
            is_possible=self.writer is not None and may_have_row_batches(self.run.context.warehouse, self.run.spec),
        )

    def begin(self) -> bool:
        """Starts the thread. Returns False, and starts nothing, if the run must begin with a query."""
        if self.run.spec.keyed is not None:
            # An earlier run may have ended after it had read all shares of a commit.
            StoredShares(warehouse=self.run.context.warehouse, checkpoint=self.run.checkpoint).forget_read()
        if not self.mode.is_possible or not RowBatches.may_begin(self.run) or not self._prepare() or not self._open():
            return False
        try:
            if self._rows is not None:
                self._rows.has_next()
        except LeftToSparkError:
            return False
        fault("view.before_query")
        self.mode.start_thread()
        fault("view.after_query")
        return True

    def take(self, rows: pa.Table) -> Callable[[int], None]:
        """Does the same as :meth:`rw_sql.runtime.views.row_writers.RowWriter.take`, but raises LeftToSparkError instead
        of returning None."""
        try:
            commit = None if self.writer is None else self.writer.take(rows)
        except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
            raise LeftToSparkError(f"the rows cannot be written here: {error}") from error
        if commit is None:
            raise LeftToSparkError("only Spark can combine the rows with the table's rows")
        return commit

    def after_batch(self, batch: int, planned: Planned) -> None:
        """Must be called after each batch of the query. ``planned`` is the number of rows that the batch has read.
        After several small batches, a thread replaces the query if the remaining commits of the input also form a small
        batch."""
        if not self.mode.is_possible:
            return
        is_small = planned.is_small and self._is_rest_small(batch)
        self.mode.after_batch(batch, is_small=is_small, prepare=self._prepare)

    def stop(self) -> None:
        """Stops the query or the thread, if one is running. The batch in progress has GRACE_SECONDS to finish."""
        thread = self.streaming.thread
        self.mode.stop()
        self._end_announcements()
        session, self._session, self._prepared = self._session, None, None
        # A thread that still computes a batch uses the session. The session is then not kept for other jobs.
        if thread is None or not thread.is_running:
            self.run.context.sessions.release_if_alive(session)

    def _is_rest_small(self, batch: int) -> bool:
        """True if the commits after the query's batch ``batch`` are few and have few rows in total. The batch itself
        may be small although many commits follow it, because commits may arrive faster than the query writes its
        batches."""
        warehouse = self.run.context.warehouse
        end = end_of_batch(warehouse, self.run.checkpoint, batch)
        newest = latest_version(warehouse, self._table)
        if end is None or newest - end >= _MOST_LEFT:
            return False
        for version in [version for version in self._rest if version < end]:
            del self._rest[version]
        total = Planned(most=0)
        for version in range(end, newest + 1):
            try:
                total = total.plus(self._planned_of(version))
            except FileNotFoundError:  # the commit was cleaned up
                return False
            if not total.is_small:
                return False
        return True

    def _planned_of(self, version: int) -> Planned:
        """The number of rows that a batch reads from one commit of the input. Each commit is read only once, although
        it may follow several batches of the query."""
        if version not in self._rest:
            (given, *_) = self.run.spec.inputs
            commits = [read_actions(self.run.context.warehouse, self._table, version)]
            self._rest[version] = (
                changes_of_commits(commits)
                if given.is_changing
                else rows_of_commits(commits, is_log=False, upstream=upstream_table(given))
            )
        return self._rest[version]

    @property
    def _table(self) -> str:
        return self.run.table_of(self.run.spec.inputs[0])

    def _prepare(self) -> bool:
        """Prepares the query, unless it is already prepared. Returns False if the query is not row-by-row, or if its
        rows cannot be written without Spark."""
        if self._prepared is None and self.writer is not None:
            session = self.run.context.sessions.new((), self.run.spec.parallelism)
            try:
                prepared = PreparedRows.of(self.run, session)
                if prepared is not None and self.writer.prepare(session, dict(prepared.query.kinds)):
                    self._prepared, self._session = prepared, session
            finally:
                if self._session is None:
                    self.run.context.sessions.release_if_alive(session)
        return self._prepared is not None

    def _open(self) -> bool:
        self._rows = None if self._prepared is None else RowBatches.of(self.run, self._prepared)
        if self._rows is None:
            return False
        self._end_announcements()
        self.run.context.wakes.follow(self.run.spec.inputs[0].id, self.mode.announce)
        return True

    def _start_query(self) -> None:
        self._rows = None
        self._end_announcements()
        self.start_query()

    def _end_announcements(self) -> None:
        for given in self.run.spec.inputs:
            self.run.context.wakes.unfollow(given.id, self.mode.announce)

    def _write_next(self) -> None:
        if self._rows is not None:
            self.write(self._rows, self._rows.compute())
