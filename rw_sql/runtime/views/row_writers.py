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
        """Must be called before :meth:`take`. ``session`` is the session of the view's query. ``kinds`` maps the
        columns of the query's result to Spark's names of their types.

        Returns False if the rows of this query cannot be written without Spark.
        """
        ...

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """Computes the changes that the rows of a batch make to the view's table. Before the call, the caller must call
        ``require_turn`` of the run's output.

        Returns a function that commits these changes under the batch's number, which is its argument. Returns None if a
        query must write the batch.
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
    """A writer that appends all rows to the view's table."""

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
    """A writer for rows with the column KEEP. Each row replaces the view's row with the same key or, if KEEP is false,
    deletes it."""

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
    """A writer for a table with a primary key. The last record of each key replaces or deletes the table's row."""

    run: ViewRun
    keys: tuple[str, ...]

    def prepare(self, _session: SparkSession, kinds: dict[str, str]) -> bool:
        """See :class:`RowWriter`."""
        return are_exact(kinds, self.keys)

    def take(self, rows: pa.Table) -> Callable[[int], None] | None:
        """See :class:`RowWriter`. Returns None if a record omits values or empties the table. The changes then depend
        on the table's existing rows, which only a query reads."""
        more = [OP] if OP in rows.column_names else []
        last = rows_alone(last_of_rows(rows, self.keys, more) if rows.num_rows else rows)
        if last is None:
            return None
        changed = self.run.fitted(last)

        def commit(batch: int) -> None:
            if changed.num_rows:
                self.run.output.upsert_rows(changed, self.keys, batch)

        return commit
