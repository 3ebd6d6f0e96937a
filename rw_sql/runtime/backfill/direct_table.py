"""A direct backfill, which writes chunks to the view's own table instead of a staging table.

A direct backfill is used only for a view without keys and with one input, if the view's query processes each row
independently of other rows.

Such a query returns the same rows whether it reads the records as chunks or as a stream. Therefore, no staging table is
needed. The commit of a chunk has generation 0. When the view's streaming query looks for its own commits, it ignores
commits of generation 0. After the last chunk, the streaming query gets a checkpoint with which it begins in the
source's log.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.model.offset_ranges import with_span
from rw_sql.runtime.backfill.staging_table import held_spans, is_there
from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.delta.held_rows import small_rows
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.delta.row_counts import ANY, Expected, RowCount, at_most, of_rows_read
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.jobs.inputs import as_in_files, input_frame
from rw_sql.runtime.positions.checkpoint_handover import begin_at
from rw_sql.runtime.spark.row_by_row import chosen_columns, is_by_row, makes_more
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from rw_sql.model.backfill_ranges import BackfillChunk
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.jobs.context import Context

HISTORY_GENERATION = 0
"""The generation of the backfill's commits in a view's table."""


def is_direct(context: Context, spec: ViewSpec) -> bool:
    """True if the backfill of a view writes directly to the view's table.

    The result is False if the view has a staging table, because the view's unfinished backfill continues with this
    table.
    """
    if spec.keys or len(spec.inputs) != 1:
        return False
    (given,) = spec.inputs
    if is_there(context.warehouse, context.warehouse.history(spec.view_id, spec.generation, given.id)):
        return False
    with context.sessions.lent() as spark:
        register_view(input_frame(context, spark, given), given.name)
        return is_by_row(spark.sql(spec.query))


@dataclass(slots=True)
class DirectTable:
    """The view's table during one run of a direct backfill.

    Has the same interface as :class:`rw_sql.runtime.backfill.staging_table.BackfillStaging`.
    """

    context: Context
    spec: ViewSpec
    given: ViewInput
    output: JobOutput
    checkpoint: str
    turn: Callable[[], AbstractContextManager[None]]
    batch: int
    held: dict[str, Spans] = field(default_factory=dict)

    @staticmethod
    def of(
        context: Context,
        spec: ViewSpec,
        output: JobOutput,
        checkpoint: str,
        turn: Callable[[], AbstractContextManager[None]],
    ) -> DirectTable:
        """Creates the object for ``output``, the view's table, which must be opened with generation 0. ``turn`` returns
        a context in which a commit to the table may be made."""
        return DirectTable(
            context=context,
            spec=spec,
            given=spec.inputs[0],
            output=output,
            checkpoint=checkpoint,
            turn=turn,
            batch=output.done + 1,
            held=held_spans(context.warehouse, output.path),
        )

    def result(self, rows: DataFrame) -> DataFrame:
        """The rows that the view's query returns for rows of the log. These rows are written to the view's table."""
        return self._result(rows.where(f"{ERROR} IS NULL"))

    def _result(self, rows: DataFrame) -> DataFrame:
        register_view(rows.selectExpr(*self.given.selected), self.given.name)
        return as_in_files(rows.sparkSession.sql(self.spec.query), self.spec)

    def columns_in_log(self, log: DataFrame) -> Mapping[str, str] | None:
        """Maps each column of the view's table to the column of the log from which it is copied. None if the view's
        query computes columns or filters rows. ``log`` is an empty local frame with the log's columns."""
        chosen = chosen_columns(self._result(log))
        stored = {column.name for column in self.output.table.schema().fields}
        if chosen is None or len(dict(chosen)) < len(chosen) or not stored.issuperset(dict(chosen)):
            return None
        return dict(chosen)

    def append(
        self,
        rows: DataFrame,
        chunk: tuple[BackfillChunk, ...],
        lives: Mapping[str, SplitIdentity],
        *,
        is_small: bool = True,
        expected: Expected = ANY,
        save: SaveFiles | None = None,
    ) -> None:
        """Writes the result of the view's query for a chunk. If ``save`` is given, ``save`` writes the files of the
        result, and ``rows`` are not decoded rows but the undecoded records.

        ``expected`` is the number of rows to expect from the chunk. Without ``save``, this number is only an upper
        limit for the rows of the result, because the query may filter rows. With ``save``, this number is compared with
        the number of rows that ``save`` reads.
        """
        ranges = {portion.split: (portion.start, portion.end) for portion in chunk}
        if save is not None:
            found, due = rows, of_rows_read(expected)
        else:
            found = self.result(rows)
            due = ANY if makes_more(found) else at_most(expected)
        small: pa.Table | None = None
        fault("history.before_append")
        is_few = save is None and is_small and sum(end - start for start, end in ranges.values()) <= SMALL_ROWS
        held = small_rows(found) if is_few else None
        if held is not None:
            small = as_stored(held, pa.schema(self.output.table.schema().to_arrow()))
            due.require(RowCount(written=small.num_rows))
            self.output.prove()
        with self.turn():
            self.output.lives = lives
            if small is not None:
                self.output.append_rows(small, self.batch, ranges)
            else:
                self.output.append_frame(found, self.batch, ranges, expected=due, save=save)
        fault("history.after_append")
        self.batch += 1
        for split, (start, end) in ranges.items():
            self.held[split] = with_span(self.held.get(split, ()), start, end)

    def finish(self, live_version: int) -> None:
        """Writes the checkpoint with which the view's streaming query begins at the version ``live_version`` of the
        source's log."""
        warehouse = self.context.warehouse
        log = table_id(warehouse, warehouse.data(self.given.id, self.given.generation))
        fault("history.before_finish")
        begin_at(warehouse, self.checkpoint, log, live_version, self.spec.parallelism)
        fault("history.after_finish")
