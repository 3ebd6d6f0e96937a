"""Reads the rows of an input's commits with Arrow. Depending on the input, these are added rows, the changes of one
upstream table in the log of a change data capture source, or rows of a change feed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from rw_sql.connectors.delta.plain_files import is_plain
from rw_sql.runtime.decoding.cdc_rows import NUMBER, numbered
from rw_sql.runtime.delta.delta_log import rows_of_table
from rw_sql.runtime.delta.row_counts import Expected, RowCount, exactly
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.jobs.inputs import CHANGE, VERSION, feed_columns, selected_rows, signed_rows
from rw_sql.runtime.positions.planned_rows import changes_of_commits, rows_of_commits
from rw_sql.runtime.views.streamed import upstream_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.positions.planned_rows import Planned
    from rw_sql.runtime.views.strategy import ViewRun

Actions = list[dict[str, Any]]
"""The actions of one commit, in the form of Delta's log."""

_KNOWN = frozenset({"add", "remove", "commitInfo", "txn", "cdc", "metaData", "protocol"})
"""The kinds of actions that this module can interpret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRows:
    """A reader of the rows of an input's commits.

    ``table`` is the input's table, ``schema`` are its columns, and ``delta_schema`` is the schema in the form of
    Delta's log. ``upstream`` is the name of the upstream table if a table reads a change data capture source; None for
    any other input. If ``given.is_changing`` is true, the rows come from the change feed and have the columns CHANGE
    and VERSION. VERSION increases from commit to commit. ``is_signed`` is true if the view's query reads rows with a
    sign: 1 for an added row, -1 for a removed row.
    """

    given: ViewInput
    table: str
    schema: pa.Schema
    delta_schema: Any
    upstream: str | None = None
    is_signed: bool = False

    @staticmethod
    def of(run: ViewRun, given: ViewInput) -> CommitRows:
        """Returns the reader for an input of a view."""
        table = run.table_of(given)
        known = DeltaTable(table).schema()
        return CommitRows(
            given=given,
            table=table,
            schema=pa.schema(known.to_arrow()),
            delta_schema=json.loads(known.to_json()),
            upstream=upstream_table(given),
            is_signed=run.spec.is_signed,
        )

    @property
    def empty(self) -> pa.Table:
        """A table without rows that has the columns of the result of :meth:`rows`."""
        return self._decodable(self._columns.empty_table())

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns in the input's files. A row of the input replaces an earlier row with the same
        values in these columns."""
        stored = dict(self.given.aliases)
        return tuple(stored.get(key, key) for key in self.given.keys)

    @property
    def _columns(self) -> pa.Schema:
        is_changing = self.given.is_changing
        return self._stored.append(pa.field(VERSION, pa.int64())) if is_changing else self._stored

    @property
    def _stored(self) -> pa.Schema:
        """The columns that are read from files."""
        return self.schema.append(pa.field(CHANGE, pa.string())) if self.given.is_changing else self.schema

    def selected(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Converts the result of :meth:`rows` to the frame that the view's query reads."""
        if self.is_signed:
            return signed_rows(self.given, rows.selectExpr(*self.given.selected, CHANGE))
        if self.given.is_changing:
            return rows.selectExpr(*feed_columns(self.given))
        return selected_rows(spark, self.given, rows, is_live=bool(self.given.history), is_numbered=True)

    def has_rows(self, actions: Actions) -> bool:
        """True if a commit has rows that a reader of the input's table must read. The result is also True if all of
        these rows belong to upstream tables other than ``upstream``."""
        return any(map(_is_new, actions)) or (self.given.is_changing and any("cdc" in action for action in actions))

    def has_only_others(self, actions: Actions) -> bool:
        """True if all rows of a commit are rows of upstream tables other than ``upstream``."""
        return self.upstream is not None and rows_of_table(actions, self.upstream) == 0

    def require_plain(self, version: int, actions: Actions) -> None:
        """Raises LeftToSparkError if this module cannot interpret a commit. The module can interpret a commit that adds
        rows, removes old rows, rewrites files, or changes settings that do not affect readers. If the input's change
        feed is read, the module can also interpret any changes to rows in the feed."""
        has_feed = self.given.is_changing and any("cdc" in action for action in actions)
        adds = any(map(_is_new, actions))
        for action in actions:
            changed, protocol = action.get("metaData"), action.get("protocol")
            is_changed = changed is not None and json.loads(changed["schemaString"]) != self.delta_schema
            is_newer = protocol is not None and not is_plain(
                protocol["minReaderVersion"], protocol.get("readerFeatures") or ()
            )
            if is_changed or is_newer or not _KNOWN.issuperset(action):
                raise LeftToSparkError(f"version {version} changes the table")
            if "add" in action and action["add"].get("deletionVector"):
                raise LeftToSparkError(f"version {version} has deletion vectors")
            is_removed = "remove" in action and action["remove"].get("dataChange", True)
            if is_removed and not has_feed and (adds or self.given.is_changing):
                raise LeftToSparkError(f"version {version} replaces rows")

    def planned(self, commits: Sequence[Actions]) -> Planned:
        """The number of rows that a batch of ``commits`` reads."""
        if self.given.is_changing:
            return changes_of_commits(commits)
        return rows_of_commits(
            commits,
            is_log=self.given.kind == "source",
            is_exact=not self.given.history,
            upstream=self.upstream,
        )

    def rows(self, commits: Sequence[Actions]) -> pa.Table:
        """The rows of ``commits``. Raises MiscountError if the number of rows read contradicts the counts that the
        commits record."""
        parts = [self._rows_of(file, number) for number, actions in enumerate(commits) for file in self._files(actions)]
        rows = self._decodable(pa.concat_tables(parts) if parts else self._columns.empty_table())
        counted = self.planned(commits).most
        if counted is not None and self.given.is_changing:
            Expected(most=counted, limits_of="the commit of its input").require(RowCount(written=rows.num_rows))
        elif counted is not None and self.upstream is not None:
            # A commit of an earlier version counts the rows of all upstream tables together.
            is_exact = all(rows_of_table(actions, self.upstream) is not None for actions in commits)
            expected = exactly(counted) if is_exact else Expected(most=counted, limits_of="the commit of its input")
            expected.require(RowCount(written=pc.sum(pc.equal(rows[NUMBER], 0)).as_py() or 0))
        return rows

    def _decodable(self, rows: pa.Table) -> pa.Table:
        return rows if self.upstream is None else numbered(rows, self.upstream)

    def _files(self, actions: Actions) -> list[dict[str, Any]]:
        """The actions of those files that contain the rows of a commit to read."""
        feed = [action["cdc"] for action in actions if "cdc" in action] if self.given.is_changing else []
        return feed or [action["add"] for action in actions if _is_new(action)]

    def _rows_of(self, file: dict[str, Any], number: int) -> pa.Table:
        """The rows of a data file, with the values of the table's partition columns. ``number`` is the commit's
        position in the batch, which becomes the value of VERSION."""
        root = self.table.removeprefix("file://")
        stored = pq.ParquetFile(f"{root}/{unquote(file['path'])}").read()
        values = file.get("partitionValues") or {}
        columns = []
        for column in self._stored:
            if column.name in values:
                value = pa.scalar(values[column.name], pa.string()).cast(column.type)
                columns.append(pa.repeat(value, stored.num_rows))
            elif column.name in stored.column_names:
                columns.append(stored[column.name].cast(column.type))
            elif column.name == CHANGE:  # A commit without files of its changes only adds rows.
                columns.append(pa.repeat(pa.scalar("insert"), stored.num_rows))
            else:
                columns.append(pa.nulls(stored.num_rows, column.type))
        if self.given.is_changing:
            columns.append(pa.repeat(pa.scalar(number, pa.int64()), stored.num_rows))
        return pa.table(columns, schema=self._columns)


def _is_new(action: dict[str, Any]) -> bool:
    return "add" in action and bool(action["add"].get("dataChange", True))
