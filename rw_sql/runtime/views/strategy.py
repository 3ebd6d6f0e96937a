"""Defines the interface of a strategy, and the object that gives a strategy access to its run."""

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
    """The members of one run of a view's job that the view's strategy uses.

    ``turn`` returns a context manager inside which the run may write to the view's table. A stop of the run waits for
    the end of the ``with`` block. After a stop, the context manager raises FencedError. ``readers`` is None if the view
    reads no upstream directly. During a backfill, ``tables`` are the staging tables, by input id, that are read to
    their end instead of the inputs.
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
        """The maximum number of bytes of the next batch for an input with a watermark. For the first batch of a view,
        the number is so large that it is no limit. For later batches, the result is None, which means the usual limit.

        The first batch thus reads all existing rows. Spark treats no row of the first batch as late, regardless of the
        order of the rows.
        """
        is_first = not self.context.warehouse.list_names(f"{self.checkpoint}/commits")
        return UNLIMITED if is_first else None

    def table_of(self, given: ViewInput) -> str:
        """The path of the table to read for an input: a staging table of the backfill, or the input's own table."""
        return self.tables.get(given.id) or path_of(self.context.warehouse, given)

    def input(self, spark: SparkSession, given: ViewInput) -> DataFrame:
        """Returns the stream of one input. The stream reads the upstream if the input has a direct reader, and
        otherwise the input's log or table."""
        own = self.readers.frame(spark, given) if self.readers is not None else None
        if own is not None:
            return own
        most_bytes = None if given.watermark is None else self._first_bytes
        return input_frame(self.context, spark, given, most_bytes, table=self.tables.get(given.id))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view's table, including the hidden columns that queries do not return."""
        return pa.schema(self.output.table.schema().to_arrow())

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Converts rows to the table's columns and types. If ``rows`` has the column KEEP, the result has it too."""
        schema = self.schema
        if KEEP in rows.column_names:
            schema = schema.append(pa.field(KEEP, pa.bool_()))
        return as_stored(rows, schema)


class Strategy(Protocol):
    """A strategy defines the streaming query of a view, and how a batch of this query changes the view's table."""

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The frame of the streaming query, and Spark's output mode for the query."""
        ...

    def write(self, frame: DataFrame, batch: int) -> None:
        """Writes one batch in one commit that records the batch's number. Makes no commit if no row of the table
        changes.

        If the process ends before the commit, the method is called again with the same batch.
        """
        ...
