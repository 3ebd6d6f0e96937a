"""Defines the interface of a strategy, and the objects that a strategy receives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.jobs.inputs import UNLIMITED, input_frame, path_of
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.direct.readers import DirectReaders
    from rw_sql.runtime.jobs.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRun:
    """One run of a view's job, with the members that the view's strategy uses.

    ``turn`` is a context manager for writing a batch. A stop waits for the end of the ``with`` block. After a stop, the
    context manager raises FencedError. ``tables`` are the staging tables (by input id) that are read up to their end in
    place of the inputs.
    """

    context: Context
    spec: ViewSpec
    output: JobOutput
    checkpoint: str
    turn: Callable[[], AbstractContextManager[None]]
    readers: DirectReaders | None = None
    tables: Mapping[int, str] = field(default_factory=dict)

    @property
    def _first_bytes(self) -> str | None:
        """Returns the limit in bytes of a batch for an input with a watermark. The view's first batch has no limit, and
        later batches have the usual limit.

        All existing rows are read in the first batch. In the first batch, no row counts as late, regardless of the
        order of the rows.
        """
        is_first = not self.context.warehouse.list_names(f"{self.checkpoint}/commits")
        return UNLIMITED if is_first else None

    def table_of(self, given: ViewInput) -> str:
        """The table to read for an input."""
        return self.tables.get(given.id) or path_of(self.context.warehouse, given)

    def input(self, spark: SparkSession, given: ViewInput) -> DataFrame:
        """Returns the stream of one input. The stream reads the input's log or table, or reads the upstream with a
        direct reader."""
        own = self.readers.frame(spark, given) if self.readers is not None else None
        if own is not None:
            return own
        most_bytes = None if given.watermark is None else self._first_bytes
        return input_frame(self.context, spark, given, most_bytes, table=self.tables.get(given.id))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view's table, including hidden columns."""
        return pa.schema(self.output.table.schema().to_arrow())

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Returns rows with the table's columns and types, and with the column KEEP if the given rows have this
        column."""
        schema = self.schema
        if KEEP in rows.column_names:
            schema = schema.append(pa.field(KEEP, pa.bool_()))
        return as_stored(rows, schema)


class Strategy(Protocol):
    """A way to write the batches of a view's query to the view's table."""

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The streaming query and its output mode."""
        ...

    def write(self, frame: DataFrame, batch: int) -> None:
        """Writes one batch in one commit with the batch's number. Makes no commit if nothing changes.

        After a crash, the method is called again with the same batch, unless the commit was made.
        """
        ...
