"""Computes the small batches of a row-by-row view without a streaming query.

A streaming query plans each batch again, and Delta's source lists and filters the files of each batch by Spark. This
takes several times as long as reading, computing and writing a few rows. This module reads the files of new commits by
Arrow, computes the rows by :class:`rw_sql.runtime.spark.row_query.RowQuery`, and stores its progress in the query's
checkpoint, where a streaming query can continue at any time.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from rw_sql.connectors.delta.plain_files import is_plain
from rw_sql.runtime.delta.delta_log import latest_version, read_actions, table_id
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.delta.row_counts import RowCount
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.jobs.inputs import as_in_files, selected_rows
from rw_sql.runtime.positions.checkpoint_batches import CheckpointBatches
from rw_sql.runtime.positions.checkpoint_handover import begin_at
from rw_sql.runtime.positions.planned_rows import rows_of_commits
from rw_sql.runtime.positions.progress import newest_planned
from rw_sql.runtime.spark.row_query import RowQuery
from rw_sql.runtime.spark.sessions import plain_sql, register_view
from rw_sql.runtime.views.streamed import expected_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.positions.planned_rows import Planned
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.runtime.views.strategy import ViewRun

_ACTIONS = frozenset({"add", "remove", "commitInfo", "txn", "cdc", "metaData", "protocol"})
"""The actions that this module knows."""

_MOST_COMMITS = 200
"""The maximum number of commits that are read for one batch."""


def may_have_row_batches(warehouse: Warehouse, spec: ViewSpec) -> bool:
    """True if a view's job may be a row-by-row query over the appended rows of one table of the warehouse."""
    if not warehouse.is_local or len(spec.inputs) != 1 or spec.readers:
        return False
    (given,) = spec.inputs
    return not given.is_changing and not given.path and given.watermark is None and given.live_from is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """A view's query, prepared for batches of a few rows. ``schema`` are the columns of the input's table, and
    ``delta_schema`` is the schema in the form of Delta's log."""

    query: RowQuery
    schema: pa.Schema
    delta_schema: Any
    table: str

    @staticmethod
    def of(run: ViewRun, spark: SparkSession) -> PreparedRows | None:
        """Prepares the query of a view for which :func:`may_have_row_batches` is true; None if the query is not
        row-by-row."""
        (given,) = run.spec.inputs
        known = DeltaTable(run.table_of(given)).schema()
        schema = pa.schema(known.to_arrow())

        def result(rows: DataFrame) -> DataFrame:
            register_view(selected_rows(spark, given, rows, is_live=bool(given.history)), given.name)
            return as_in_files(plain_sql(spark, run.spec.query), run.spec)

        try:
            query = RowQuery.of(spark, schema, result)
            # Other versions of Spark may lack the rule, or a method that is used to apply it.
            if query is None or query.rows(schema.empty_table()) is None:
                return None
        except (PySparkException, Py4JError, pa.ArrowException):
            return None
        columns = StructType.fromJson(json.loads(run.spec.schema)).fields
        kinds = {column.name: column.dataType.simpleString() for column in columns}
        if any(kinds.get(name, kind) != kind for name, kind in query.kinds):
            return None
        return PreparedRows(
            query=query, schema=schema, delta_schema=json.loads(known.to_json()), table=run.table_of(given)
        )


@dataclass(slots=True)
class RowBatches:
    """The batches of one run of a view. Not thread-safe; the view's streaming query must not run."""

    run: ViewRun
    given: ViewInput
    prepared: PreparedRows
    batches: CheckpointBatches
    _read: int
    """The first version that was not checked for rows yet."""
    _pending: list[list[dict[str, Any]]] = field(default_factory=list)
    """The commits from ``batches.begin`` to ``_read`` that add rows."""

    @staticmethod
    def may_begin(run: ViewRun) -> bool:
        """True if :meth:`of` probably finds a position in the view's checkpoint, or makes one.

        Removes what a kill in :meth:`of` has left, because Spark could not start on it.
        """
        warehouse = run.context.warehouse
        if newest_planned(warehouse, run.checkpoint) >= 0:
            return bool(warehouse.list_names(f"{run.checkpoint}/commits"))
        warehouse.remove(f"{run.checkpoint}/commits")
        return YoungTable.of(warehouse, run.table_of(run.spec.inputs[0])) is not None

    @staticmethod
    def of(run: ViewRun, prepared: PreparedRows) -> RowBatches | None:
        """Continues at the position in the view's checkpoint. A view without one begins with the first version of its
        input, if all commits of the input exist.

        Returns None if only Spark can continue there.
        """
        warehouse, table = run.context.warehouse, table_id(run.context.warehouse, prepared.table)
        if newest_planned(warehouse, run.checkpoint) < 0:
            begin_at(warehouse, run.checkpoint, table, 0, run.spec.parallelism)
        batches = CheckpointBatches.of(warehouse, run.checkpoint, table)
        return None if batches is None else RowBatches(run, run.spec.inputs[0], prepared, batches, batches.begin)

    @property
    def number(self) -> int:
        """The number of the next batch."""
        return self.batches.done + 1

    def has_next(self) -> bool:
        """True if there are rows to read, or if a batch was planned and not completed.

        Raises LeftToSparkError if the batch is not small, or if a commit does more than add rows or remove old ones.
        """
        warehouse, table = self.run.context.warehouse, self.prepared.table
        newest = latest_version(warehouse, table) if self.batches.planned is None else self.batches.planned - 1
        if newest - self._read > _MOST_COMMITS:
            raise LeftToSparkError("there are many commits")
        while self._read <= newest:
            try:
                actions = read_actions(warehouse, table, self._read)
            except FileNotFoundError as error:
                raise LeftToSparkError(f"version {self._read} was cleaned up") from error
            self._require_plain(actions)
            if any(map(_is_new, actions)):
                self._pending.append(actions)
            self._read += 1
        if not self._planned_rows().is_small:
            raise LeftToSparkError("the batch is not small")
        return self.batches.planned is not None or bool(self._pending)

    def compute(self) -> pa.Table:
        """The rows that the view's query returns for the next batch. Raises LeftToSparkError, StalledError."""
        try:
            rows = self.prepared.query.rows(self._input())
            if rows is None:
                raise LeftToSparkError("Spark does not compute the rows in its memory")
        except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
            raise LeftToSparkError(f"the rows cannot be computed here: {error}") from error
        expected_rows(self.run, self._planned_rows(), self.prepared.query.steps).require(
            RowCount(written=rows.num_rows)
        )
        return rows

    def plan(self) -> None:
        """Plans the batch in the checkpoint, unless it is planned already. Must precede the commit of its rows.

        Raises FencedError if another process has planned it, and LeftToSparkError.
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
        """Completes the batch in the checkpoint, once its rows are in the view's table."""
        self.batches.complete()
        self._pending.clear()

    def _planned_rows(self) -> Planned:
        """The number of rows that the next batch reads."""
        return rows_of_commits(self._pending, is_log=self.given.kind == "source", is_exact=not self.given.history)

    def _require_plain(self, actions: list[dict[str, Any]]) -> None:
        """Raises LeftToSparkError for a commit that does more than add rows, remove old ones, rewrite files, or change
        settings that do not matter to a reader."""
        version, adds = self._read, any(map(_is_new, actions))
        for action in actions:
            changed, protocol = action.get("metaData"), action.get("protocol")
            is_changed = changed is not None and json.loads(changed["schemaString"]) != self.prepared.delta_schema
            is_newer = protocol is not None and not is_plain(
                protocol["minReaderVersion"], protocol.get("readerFeatures") or ()
            )
            if is_changed or is_newer or not _ACTIONS.issuperset(action):
                raise LeftToSparkError(f"version {version} changes the table")
            if "add" in action and action["add"].get("deletionVector"):
                raise LeftToSparkError(f"version {version} has deletion vectors")
            if adds and "remove" in action and action["remove"].get("dataChange", True):
                raise LeftToSparkError(f"version {version} replaces rows")

    def _input(self) -> pa.Table:
        parts = [
            self._rows_of(action["add"])
            for actions in self._pending
            for action in actions
            if "add" in action and action["add"].get("dataChange", True)
        ]
        return pa.concat_tables(parts) if parts else self.prepared.schema.empty_table()

    def _rows_of(self, file: dict[str, Any]) -> pa.Table:
        """The rows of a data file, with the values of the table's partition columns."""
        root = self.prepared.table.removeprefix("file://")
        stored = pq.ParquetFile(f"{root}/{unquote(file['path'])}").read()
        values = file.get("partitionValues") or {}
        columns = []
        for column in self.prepared.schema:
            if column.name in values:
                value = pa.scalar(values[column.name], pa.string()).cast(column.type)
                columns.append(pa.repeat(value, stored.num_rows))
            elif column.name in stored.column_names:
                columns.append(stored[column.name].cast(column.type))
            else:
                columns.append(pa.nulls(stored.num_rows, column.type))
        return pa.table(columns, schema=self.prepared.schema)


def _has_no_links(error: OSError) -> bool:
    """True if a file system has no hard links, with which a file is written without replacing another one."""
    return error.errno in (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


def _is_new(action: dict[str, Any]) -> bool:
    return "add" in action and bool(action["add"].get("dataChange", True))
