"""Maintains views whose query groups rows and whose aggregates can be combined (such as counts and sums). The view's
table is the only state: the groups of each batch are combined with the table's rows.

The job's query returns each input row as a group that consists of this row only
(:mod:`rw_sql.syntax.query.combined_groups`). Therefore, the query is computed row by row and has no state in the
checkpoint. Arrow combines the groups if a batch has few rows; otherwise, Spark combines them.
"""

from __future__ import annotations

import logging
import operator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import QueryBuilder, Schema
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.connectors.delta.plain_files import is_plain, rows_now
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.runtime.delta.held_rows import in_any_order, may_hold
from rw_sql.runtime.delta.job_output import SMALL_FILE_BYTES, SMALL_ROWS
from rw_sql.runtime.delta.row_counts import RowCount
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.jobs.inputs import valid_rows
from rw_sql.runtime.spark.row_query import RowQuery
from rw_sql.runtime.spark.sessions import plain_sql, register_view
from rw_sql.runtime.views.group_rows import combine
from rw_sql.runtime.views.recomputed import same_values
from rw_sql.runtime.views.streamed import Streamed, expected_rows
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.combined_groups import COUNT, DERIVED, FUNCTIONS, GROUPS_RELATION, KEY, ROWS
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.delta.row_counts import Expected
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.positions.planned_rows import Planned
    from rw_sql.runtime.views.group_rows import Combination
    from rw_sql.runtime.views.strategy import ViewRun

logger = logging.getLogger(__name__)

_MOST_HELD_BYTES = 8 * 2**20
"""The rows of a table are kept in memory only if the table's files have at most this many bytes in total. Rows take
several times as much space in memory as in files."""

_READ = "_rw_read"
"""The name of a column that exists while Spark combines a batch. The column contains the number of input rows of each
group."""


@dataclass(slots=True)
class GroupTable:
    """The groups in a view's table, with which the groups of each batch are combined. Not thread-safe."""

    run: ViewRun
    functions: dict[str, str]
    """The function with which each column is combined, by the column's name (see
    :func:`rw_sql.runtime.views.group_rows.combine`)."""
    _held: tuple[int, pa.Table] | None = field(default=None, init=False)
    """A version of the table, and all rows of this version. None if the rows are not kept in memory."""
    _deriving: RowQuery | None = field(default=None, init=False)
    """The query that computes the derived columns, prepared for batches of a few rows. None if there are no derived
    columns, or if the query cannot be prepared."""
    _session: SparkSession | None = field(default=None, init=False)

    @staticmethod
    def of(run: ViewRun) -> GroupTable:
        """The groups of a view whose strategy is COMBINED."""
        functions = zip(run.schema.names, run.spec.maintenance.combine, strict=True)
        return GroupTable(run, {name: function for name, function in functions if function != DERIVED})

    @property
    def keys(self) -> list[str]:
        """The columns that identify a group."""
        return [name for name, function in self.functions.items() if function == KEY]

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without the derived columns."""
        return pa.schema([self.run.schema.field(name) for name in self.functions])

    def prepare(self, session: SparkSession, _kinds: Mapping[str, str]) -> bool:
        """See :class:`rw_sql.runtime.views.row_writers.RowWriter`."""
        self.prepare_derived(session)
        return True

    def prepare_derived(self, session: SparkSession) -> None:
        """Sets the session that computes derived columns, and prepares their query."""
        self._session, self._deriving = session, None
        if self.run.spec.maintenance.derived:
            # Other versions of Spark may lack a method that a prepared query needs.
            with suppress(PySparkException, Py4JError, pa.ArrowException):
                self._deriving = RowQuery.of(session, self.schema, self.derived)

    def derived(self, groups: DataFrame) -> DataFrame:
        """Returns the groups with their derived columns. Spark computes these columns."""
        return _derived(groups, self.run.spec)

    def combined(self, rows: pa.Table) -> Combination | None:
        """Combines rows with the table's groups. Before the call, the caller must update the output's ``table`` object
        to the table's newest version.

        Returns None if only Spark can combine the rows.
        """
        try:
            known, rows = self._known(rows), rows.select(list(self.functions))
            found = None if known is None else combine(known, rows, self.functions)
            return found and replace(found, changed=self._with_derived(found.changed))
        except (pa.ArrowException, PySparkException, Py4JError, OSError):
            logger.debug("%s leaves groups to Spark", self.run.spec.job, exc_info=True)
            return None

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """Combines rows with the table's groups, as :meth:`combined` does. Returns a function that commits the changed
        groups under the batch's number; None if only Spark can combine the rows."""
        combination = self.combined(self.run.fitted(rows))
        return None if combination is None else partial(self.commit, combination)

    def commit(self, combination: Combination, batch: int) -> None:
        """Commits the changed groups of a combination under the batch's number. Makes no commit if no group has
        changed."""
        output, groups, is_whole = self.run.output, combination.groups, self._held is not None
        self._held = None
        if combination.changed.num_rows:
            output.upsert_rows(combination.changed, self.run.spec.keys, batch)
        if is_whole and groups.num_rows <= SMALL_ROWS and groups.nbytes <= SMALL_FILE_BYTES:
            self._held = (output.table.version(), groups)

    def _with_derived(self, groups: pa.Table) -> pa.Table:
        if not self.run.spec.maintenance.derived or not groups.num_rows:
            return self.run.fitted(groups)
        combined = groups.select(self.schema.names)
        found = None if self._deriving is None else self._deriving.rows(combined)
        if found is None:
            if self._session is None:
                raise ValueError("no session was set")
            found = self.derived(local_frame(self._session, combined)).toArrow()
        if KEEP in groups.column_names:
            found = found.append_column(groups.field(KEEP), groups[KEEP])
        return self.run.fitted(found)

    @property
    def number_of_rows(self) -> str | None:
        """The name of the column that contains the number of rows of each group; None if groups are never removed."""
        return next((name for name, function in self.functions.items() if function == ROWS), None)

    def _known(self, rows: pa.Table) -> pa.Table | None:
        """All rows of the table, or at least those with the keys of ``rows``. None if only Spark can read these rows
        efficiently."""
        table = self.run.output.table
        if self._held is not None and self._held[0] == table.version():
            return self._held[1]
        self._held = None
        protocol = table.protocol()
        if not is_plain(protocol.min_reader_version, protocol.reader_features or ()):
            return None
        if _is_small(table):
            found = self._all(table)
            self._held = (table.version(), found)
            return found
        if not self.run.context.warehouse.is_local:
            return None
        conditions = [pc.field(name).isin(pc.unique(rows[name])) for name in self.keys]
        return self._files(table).to_table(filter=reduce(operator.and_, conditions))

    def _all(self, table: DeltaTable) -> pa.Table:
        if not table.file_uris():
            return self.schema.empty_table()
        if self.run.context.warehouse.is_local:
            return self._files(table).to_table()
        rows = QueryBuilder().register("groups", table).execute("SELECT * FROM groups").read_all()
        return as_stored(pa.table(rows), self.schema)

    def _files(self, table: DeltaTable) -> ds.Dataset:
        files = [unquote(uri.removeprefix("file://")) for uri in table.file_uris()]
        return ds.dataset(files, schema=self.schema, format="parquet")


def _is_small(table: DeltaTable) -> bool:
    """True if a table has so few rows and bytes that this process may keep all rows in memory."""
    actions = pa.table(table.get_add_actions(flatten=True))
    rows, size = actions["num_records"], actions["size_bytes"]
    is_counted = rows.null_count == 0
    return is_counted and (pc.sum(rows).as_py() or 0) <= SMALL_ROWS and (pc.sum(size).as_py() or 0) <= _MOST_HELD_BYTES


def group_of_nothing(context: Context, spec: ViewSpec) -> pa.Table:
    """The single row of an aggregation without GROUP BY before there is any input: counts are 0, and other aggregates
    are NULL."""
    schema = pa.schema(Schema.from_json(spec.schema).to_arrow())
    functions = dict(zip(schema.names, spec.maintenance.combine, strict=True))
    combined = pa.schema([column for column in schema if functions[column.name] != DERIVED])
    row = {name: 0 if functions[name] in (KEY, COUNT) else None for name in combined.names}
    group = pa.Table.from_pylist([row], schema=combined)
    if spec.maintenance.derived:
        with context.sessions.lent() as spark:
            group = _derived(local_frame(spark, group), spec).toArrow()
    return as_stored(group, schema)


def _derived(groups: DataFrame, spec: ViewSpec) -> DataFrame:
    register_view(groups, GROUPS_RELATION)
    return valid_rows(plain_sql(groups.sparkSession, spec.maintenance.derived), spec)


@dataclass(slots=True)
class Combined:
    """The strategy for a view whose rows are groups that can be combined."""

    run: ViewRun
    groups: GroupTable
    lifted: Streamed
    """The strategy of the query that converts each input row to a group that consists of this row only."""
    _were_few: bool = field(default=False, init=False)
    """True if the groups of the latest batch that Spark grouped were few enough for this process to combine them."""

    @staticmethod
    def of(run: ViewRun) -> Combined:
        """Returns the strategy for one run of a view's job."""
        return Combined(run, GroupTable.of(run), Streamed(run))

    @property
    def last(self) -> Planned:
        """The number of rows that the latest batch reads."""
        return self.lifted.last

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The stream of the input's rows, each converted to a group, and Spark's output mode for the stream."""
        self.groups.prepare_derived(spark)
        return self.lifted.stream(spark)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Combines a batch with the table's rows. Makes no commit if no group changes."""
        planned = self.lifted.last = self.lifted.planned(batch)
        if planned.most == 0:
            return
        expected = expected_rows(self.run, planned, self.lifted.steps)
        if planned.is_small:
            rows = frame.toArrow()
            expected.require(RowCount(written=rows.num_rows))
            if self.write_rows(rows, batch):
                return
        grouped = self._grouped(frame, counts_rows=True)
        if not (self._were_few and self._write_few(grouped, batch, expected)):
            self._write_measured(grouped, batch, expected)

    def _write_few(self, grouped: DataFrame, batch: int, expected: Expected) -> bool:
        """Writes a batch that probably has few groups, with a single Spark job that computes the groups. Returns False
        if the batch must be written in another way."""
        try:
            rows = grouped.toArrow()
        except (PySparkException, Py4JError):
            # Perhaps the groups exceed Spark's limit for a result. If there is another error, it occurs again and is
            # reported when the batch is written by the other method.
            return False
        expected.require(RowCount(written=pc.sum(rows[_READ]).as_py() or 0))
        self._were_few = rows.num_rows <= SMALL_ROWS and rows.nbytes <= SMALL_FILE_BYTES
        return not rows.num_rows or self.write_rows(rows, batch)

    def _write_measured(self, grouped: DataFrame, batch: int, expected: Expected) -> None:
        """Computes and counts the groups of a batch. Then combines the groups with the table's rows and writes them: in
        this process or, if there are too many groups, with Spark."""
        held = in_any_order(grouped).persist()
        try:
            count, read = held.selectExpr("count(*)", f"coalesce(sum({_READ}), 0)").collect()[0]
            expected.require(RowCount(written=read))
            self._were_few = count <= SMALL_ROWS and may_hold(held, count)
            added = held.drop(_READ)
            if count and not (may_hold(added, count) and self.write_rows(added.toArrow(), batch)):
                self._merge(added, batch)
        finally:
            held.unpersist()

    def write_rows(self, rows: pa.Table, batch: int) -> bool:
        """Combines rows in this process's memory and writes the changed groups; returns False if only Spark can combine
        the rows."""
        with self.run.turn():
            self.run.output.require_turn(batch)
            commit = self.groups.take(rows)
            if commit is not None:
                commit(batch)
            return commit is not None

    def _grouped(self, frame: DataFrame, *, counts_rows: bool = False) -> DataFrame:
        """Combines all rows with the same key into one row. Each row is a group already, so the columns are combined
        with the functions for groups."""
        from pyspark.sql import functions as f

        of_name = {"sum": f.sum, "min": f.min, "max": f.max}
        kinds = {column.name: column.dataType for column in frame.schema.fields}
        values = [
            of_name[FUNCTIONS[function]](quoted_for_spark(name)).cast(kinds[name]).alias(name)
            for name, function in self.groups.functions.items()
            if function != KEY
        ]
        count = [f.count(f.lit(1)).alias(_READ)] if counts_rows or not values else []
        return frame.groupBy(*map(quoted_for_spark, self.groups.keys)).agg(*values, *count)

    def _merge(self, added: DataFrame, batch: int) -> None:
        """Combines groups with the table's rows and writes the result, both with Spark."""
        columns, keys = list(self.groups.functions), self.groups.keys
        own = rows_now(added.sparkSession, self.run.output.path)
        before = own.alias("t").join(added.alias("s"), same_values("t", "s", keys), "left_semi")
        both = before.select(*map(quoted_for_spark, columns)).unionByName(added.select(*map(quoted_for_spark, columns)))
        grouped = self._grouped(both).select(*map(quoted_for_spark, columns))
        rows = self.groups.derived(grouped) if self.run.spec.maintenance.derived else grouped
        number = self.groups.number_of_rows
        if number is not None:
            rows = rows.withColumn(KEEP, rows[number] > 0)
        held = in_any_order(rows).persist()
        try:
            count = held.count()
            with self.run.turn():
                self.run.output.upsert_frame(held, keys, batch, rows=count)
        finally:
            held.unpersist()
