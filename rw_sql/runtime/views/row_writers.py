"""Writes the small batches that a thread computes, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rw_sql.metastore.records import CHANGES, COMBINED
from rw_sql.runtime.views.combined import GroupTable
from rw_sql.runtime.views.key_records import OP
from rw_sql.runtime.views.last_records import are_exact, last_of_rows, rows_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rw_sql.runtime.views.strategy import ViewRun


class RowWriter(Protocol):
    """Writes the rows that a view's query returns for a small batch. Not thread-safe."""

    def prepare(self, session: SparkSession, kinds: dict[str, str]) -> bool:
        """Sets the session of the query, and the columns of its result with Spark's names of their types.

        Returns False if the rows of this query cannot be written without Spark.
        """
        ...

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """Computes the changes that a batch makes to the view's table. The caller must have called ``require_turn`` of
        the output before.

        Returns a function that commits these changes under the batch's number; None if a query must write the batch.
        """
        ...


def writer_of(run: ViewRun) -> RowWriter | None:
    """Returns the writer that writes a view's small batches without Spark; None if only a query can write these
    batches."""
    keyed = run.spec.keyed
    if run.spec.maintenance.strategy == COMBINED:
        return GroupTable.of(run)
    if keyed is not None:
        is_replaced = keyed.is_overwritten or any(given.live_from is not None for given in run.spec.inputs)
        return LastRows(run, keyed.primary_key) if is_replaced and not keyed.is_append_only else None
    if run.spec.maintenance.strategy == CHANGES:
        return ReplacedRows(run)
    return None if run.spec.keys else AppendedRows(run)


@dataclass(slots=True)
class AppendedRows:
    """Appends all rows."""

    run: ViewRun

    def prepare(self, _session: SparkSession, _kinds: dict[str, str]) -> bool:
        """See :class:`RowWriter`."""
        return True

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """See :class:`RowWriter`."""
        fitted = self.run.fitted(rows)

        def commit(batch: int) -> None:
            if fitted.num_rows:
                self.run.output.append_rows(fitted, batch)

        return commit


@dataclass(slots=True)
class ReplacedRows:
    """Replaces the rows of a view with rows that have the column KEEP."""

    run: ViewRun

    def prepare(self, _session: SparkSession, kinds: dict[str, str]) -> bool:
        """See :class:`RowWriter`."""
        return are_exact(kinds, self.run.spec.keys)

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """See :class:`RowWriter`."""
        changed = self.run.fitted(rows)
        return lambda batch: self.run.output.upsert_rows(changed, self.run.spec.keys, batch)


@dataclass(slots=True)
class LastRows:
    """Replaces the rows of a table with the last record of each key."""

    run: ViewRun
    keys: tuple[str, ...]

    def prepare(self, _session: SparkSession, kinds: dict[str, str]) -> bool:
        """See :class:`RowWriter`."""
        return are_exact(kinds, self.keys)

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """See :class:`RowWriter`. If a record omits values or empties the table, the table's rows are needed, and only
        a query reads these rows."""
        more = [OP] if OP in rows.column_names else []
        last = rows_alone(last_of_rows(rows, self.keys, more) if rows.num_rows else rows)
        if last is None:
            return None
        changed = self.run.fitted(last)

        def commit(batch: int) -> None:
            if changed.num_rows:
                self.run.output.upsert_rows(changed, self.keys, batch)

        return commit
