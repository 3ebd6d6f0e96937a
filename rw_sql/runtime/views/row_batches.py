"""Computes the small batches of a row-by-row view without a streaming query.

For each batch, a streaming query plans the query again, and Delta's source lists and filters files with Spark jobs. For
a few rows, this planning and listing takes several times as long as reading, computing and writing the rows. This
module reads the files of new commits with Arrow, and computes the rows with
:class:`rw_sql.runtime.spark.row_query.RowQuery`. The module stores its progress in the checkpoint of the view's
streaming query. A streaming query can therefore continue after any batch of this module.
"""

from __future__ import annotations

import errno
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from rw_sql.metastore.records import CHANGES, COMBINED
from rw_sql.runtime.delta.delta_log import has_new_data, latest_version, read_actions, table_id
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.delta.row_counts import Expected, RowCount
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.jobs.inputs import CHANGE, as_in_files
from rw_sql.runtime.positions.checkpoint_batches import CheckpointBatches
from rw_sql.runtime.positions.checkpoint_handover import begin_at
from rw_sql.runtime.positions.progress import newest_planned
from rw_sql.runtime.spark.row_query import RowQuery
from rw_sql.runtime.spark.sessions import plain_sql, register_view
from rw_sql.runtime.views.changed_rows import DELETED, last_changes, with_removed
from rw_sql.runtime.views.commit_rows import CommitRows
from rw_sql.runtime.views.own_rows import ASKED_SECONDS, MOST_SECONDS
from rw_sql.runtime.views.streamed import expected_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.positions.planned_rows import Planned
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.runtime.views.commit_rows import Actions
    from rw_sql.runtime.views.strategy import ViewRun

_MOST_COMMITS = 200
"""The maximum number of commits that a batch of this module reads."""


def may_have_row_batches(warehouse: Warehouse, spec: ViewSpec) -> bool:
    """True if, according to the specification, this module may compute batches of a view or table. The query must read
    appended or changed rows of a single table of a warehouse on a local path, without a direct reader or a watermark.
    This function does not check that the query is row-by-row."""
    if not warehouse.is_local or len(spec.inputs) != 1 or spec.readers:
        return False
    (given,) = spec.inputs
    strategy = spec.maintenance.strategy
    may_read = not given.is_changing or strategy == CHANGES or (strategy == COMBINED and spec.is_signed)
    return may_read and not given.path and given.watermark is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """A view's query that is prepared for batches of a few rows, and the reader for commits of the view's input."""

    query: RowQuery
    commits: CommitRows

    @staticmethod
    def of(run: ViewRun, spark: SparkSession) -> PreparedRows | None:
        """Prepares the query of a view for which :func:`may_have_row_batches` is true. Returns None if the query is not
        row-by-row, or if this version of Spark does not support the preparation of a query."""
        (given,) = run.spec.inputs
        commits = CommitRows.of(run, given)

        def result(rows: DataFrame) -> DataFrame:
            register_view(commits.selected(spark, rows), given.name)
            return as_in_files(plain_sql(spark, run.spec.query), run.spec)

        try:
            query = RowQuery.of(spark, commits.empty.schema, result, is_stepwise=commits.upstream is not None)
            # Other versions of Spark may lack the rule, or a method that is used to apply it.
            if query is None or query.rows(commits.empty) is None:
                return None
        except (PySparkException, Py4JError, pa.ArrowException):
            return None
        columns = StructType.fromJson(json.loads(run.spec.schema)).fields
        kinds = {column.name: column.dataType.simpleString() for column in columns}
        if any(kinds.get(name, kind) != kind for name, kind in query.kinds):
            return None
        return PreparedRows(query=query, commits=commits)


@dataclass(slots=True)
class RowBatches:
    """The batches of one run of a view that are computed without a streaming query. Not thread-safe. The view's
    streaming query must not run at the same time."""

    run: ViewRun
    prepared: PreparedRows
    batches: CheckpointBatches
    _read: int
    """The first version of the input's table whose commit was not read yet."""
    _pending: list[Actions] = field(default_factory=list)
    """The commits that have rows for the next batch, from version ``batches.begin`` up to, but not including,
    ``_read``."""
    _skipped_at: float | None = None
    """The time (``time.monotonic()``) at which this process read the first commit since ``batches.begin`` that has only
    rows of other upstream tables; None if there is no such commit."""

    @staticmethod
    def may_begin(run: ViewRun) -> bool:
        """True if :meth:`of` can probably continue at the checkpoint's position, or begin without a checkpoint.

        A process that was killed in :meth:`of` may have left an incomplete checkpoint, with which Spark cannot start.
        This method removes the files of an incomplete checkpoint.
        """
        warehouse = run.context.warehouse
        if newest_planned(warehouse, run.checkpoint) >= 0:
            return bool(warehouse.list_names(f"{run.checkpoint}/commits"))
        warehouse.remove(f"{run.checkpoint}/commits")
        return _first_version(run) is not None

    @staticmethod
    def of(run: ViewRun, prepared: PreparedRows) -> RowBatches | None:
        """Returns the batches after the position in the view's checkpoint. If the view has no batch in its checkpoint
        and all commits of the input still exist, the batches begin with the input's first version.

        Returns None if only Spark can continue at this position.
        """
        warehouse, table = run.context.warehouse, table_id(run.context.warehouse, prepared.commits.table)
        if newest_planned(warehouse, run.checkpoint) < 0:
            first = _first_version(run)
            if first is None:
                return None
            begin_at(warehouse, run.checkpoint, table, first, run.spec.parallelism)
        batches = CheckpointBatches.of(warehouse, run.checkpoint, table)
        return None if batches is None else RowBatches(run, prepared, batches, batches.begin)

    @property
    def number(self) -> int:
        """The number of the next batch."""
        return self.batches.done + 1

    def has_next(self) -> bool:
        """True if a batch must be written: there are rows to read, a planned batch is not complete, or the position
        must advance past rows of other upstream tables.

        Raises LeftToSparkError if only a query can run the batch: the batch is not small or has too many commits, one
        of its commits was cleaned up, or :meth:`CommitRows.require_plain` refuses a commit.
        """
        warehouse, commits = self.run.context.warehouse, self.prepared.commits
        newest = latest_version(warehouse, commits.table) if self.batches.planned is None else self.batches.planned - 1
        if newest - self._read > _MOST_COMMITS:
            raise LeftToSparkError("there are many commits")
        while self._read <= newest:
            try:
                actions = read_actions(warehouse, commits.table, self._read)
            except FileNotFoundError as error:
                raise LeftToSparkError(f"version {self._read} was cleaned up") from error
            commits.require_plain(self._read, actions)
            if commits.has_rows(actions):
                self._note(actions)
            self._read += 1
        if not self._planned_rows().is_small:
            raise LeftToSparkError("the batch is not small")
        return self.batches.planned is not None or bool(self._pending) or self._must_advance()

    def _note(self, actions: Actions) -> None:
        """Adds a commit that has rows to the next batch, unless all its rows belong to other upstream tables."""
        if self.prepared.commits.has_only_others(actions):
            self._skipped_at = self._skipped_at or time.monotonic()
        else:
            self._pending.append(actions)

    def _must_advance(self) -> bool:
        """True if a batch without rows must be planned, to record in the checkpoint that commits with only rows of
        other upstream tables were read. Such a batch is due at once if a statement waits for the table, and otherwise a
        second after the first of these commits was read."""
        if self._skipped_at is None:
            return False
        is_due = time.monotonic() - self._skipped_at >= MOST_SECONDS
        return is_due or self.run.context.wakes.is_asked(self.run.spec.job, ASKED_SECONDS)

    def compute(self) -> pa.Table:
        """Computes the rows that the view's query returns for the next batch. Raises LeftToSparkError, StalledError."""
        try:
            given = self.prepared.commits.rows(self._pending)
            is_replaced = self.run.spec.maintenance.strategy == CHANGES
            last = last_changes(given, self.prepared.commits.keys) if is_replaced else None
            read = given if last is None else last.filter(pc.not_equal(last[CHANGE], DELETED))
            rows = self.prepared.query.rows(read)
            if rows is None:
                raise LeftToSparkError("Spark does not compute the rows in its memory")
            if last is not None:
                changed = last.select(self.prepared.commits.keys).rename_columns(self.run.spec.keys)
                rows = with_removed(rows, changed, self.run.schema)
        except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
            raise LeftToSparkError(f"the rows cannot be computed here: {error}") from error
        expected = expected_rows(self.run, self._planned_rows(), self.prepared.query.steps)
        if self.prepared.commits.upstream is not None or self.prepared.commits.given.is_changing:
            # For these inputs, the counts in the commits are not exact. The number of rows read is only an upper limit,
            # because a row of a captured table may represent no change.
            expected = Expected(most=given.num_rows, limits_of="its input")
        expected.require(RowCount(written=rows.num_rows))
        return rows

    def plan(self) -> None:
        """Records the batch as planned in the checkpoint, unless it is already planned. Must be called before the rows
        of the batch are committed.

        Raises FencedError if another process has planned the batch, and LeftToSparkError if this process cannot write
        the plan, for example because the file system has no hard links.
        """
        if self.batches.planned is not None:
            return
        try:
            self.batches.plan(self._read)
        except FileExistsError as error:
            raise FencedError(f"another process has planned batch {self.number} of {self.run.spec.name}") from error
        except OSError as error:
            raise LeftToSparkError(
                f"the batch cannot be planned here: {error}", is_final=_has_no_links(error)
            ) from error

    def complete(self) -> None:
        """Records the batch as complete in the checkpoint. Must be called after its rows were committed to the view's
        table."""
        self.batches.complete()
        self._pending.clear()
        self._skipped_at = None

    def _planned_rows(self) -> Planned:
        """The number of rows that the next batch reads."""
        return self.prepared.commits.planned(self._pending)


def _first_version(run: ViewRun) -> int | None:
    """The version at which a view without a checkpoint may begin to read the commits of its input. None if Spark must
    first read the rows that the input's table already has."""
    (given,) = run.spec.inputs
    warehouse, table = run.context.warehouse, run.table_of(given)
    young = YoungTable.of(warehouse, table)
    if young is None:
        return None
    if not given.is_changing:
        return 0
    # To continue there, Spark reads the change feed of the previous version, so the feed must already exist at that
    # version.
    begin = young.feed_begin
    return begin + 1 if begin is not None and not has_new_data(read_actions(warehouse, table, begin)) else None


def _has_no_links(error: OSError) -> bool:
    """True if the error shows that the file system has no hard links. rw_sql uses a hard link to create a file only if
    no file with this name exists."""
    return error.errno in (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
