"""The staging table of a backfill. Each commit adds the rows of one chunk, and records the offsets of the chunk.

The table belongs to one input of one view, and is deleted after the view's query has read it. The last row contains no
record. It marks the table as complete, and ensures that the streaming query has at least one row to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.model.offset_ranges import with_span
from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import commit_versions, job_commits
from rw_sql.runtime.delta.held_rows import small_rows
from rw_sql.runtime.delta.job_output import SMALL_ROWS, JobOutput
from rw_sql.runtime.delta.row_counts import ANY, Expected, RowCount
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from rw_sql.model.backfill_ranges import BackfillChunk
    from rw_sql.model.offset_ranges import Spans
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.support.warehouse import Warehouse

_WHOLE = "the end of the history"
"""The text that marks the last commit of a staging table. It is the name of the split in the commit's ranges, and the
error text of the commit's only row. Views skip rows with an error."""


def is_there(warehouse: Warehouse, path: str) -> bool:
    """True if the table exists.

    A table without its first commit counts as deleted. Upkeep never deletes the first commit of a staging table.
    Therefore, this commit is missing only if a process was killed while it deleted the table.
    """
    return 0 in commit_versions(warehouse, path)


def is_whole(warehouse: Warehouse, path: str) -> bool:
    """True if the table is complete, which means that the backfill has written its last chunk."""
    return any(_WHOLE in commit.ranges for _, commit in job_commits(warehouse, path))


def held_spans(warehouse: Warehouse, path: str) -> dict[str, Spans]:
    """Returns, for each split, the offsets whose records the table's commits contain."""
    spans: dict[str, Spans] = {}
    for _, commit in job_commits(warehouse, path):
        for split, (start, end) in commit.ranges.items():
            if split != _WHOLE:
                spans[split] = with_span(spans.get(split, ()), start, end)
    return spans


@dataclass(slots=True)
class BackfillStaging:
    """The staging table during one run of the view's job. After the table is opened, earlier runs can no longer commit
    to it."""

    path: str
    output: JobOutput
    schema: pa.Schema
    batch: int
    held: dict[str, Spans] = field(default_factory=dict)

    @staticmethod
    def open(
        warehouse: Warehouse, path: str, log_schema: str, *, job: str, run: int, epoch: int, generation: int
    ) -> BackfillStaging:
        """Opens the table, or creates it with the log's schema. Raises FencedError if a later run has opened
        the table."""
        output = JobOutput.open(warehouse, path, log_schema, job=job, run=run, epoch=epoch, generation=generation)
        return BackfillStaging(
            path=path,
            output=output,
            schema=pa.schema(output.table.schema().to_arrow()),
            batch=output.done + 1,
            held=held_spans(warehouse, path),
        )

    def result(self, rows: DataFrame) -> DataFrame:
        """Returns ``rows``, which are rows of the log, unchanged. This table has the columns of the log. (A
        :class:`rw_sql.runtime.backfill.direct_table.DirectTable` converts the rows.)"""
        return rows

    def columns_in_log(self, log: DataFrame) -> Mapping[str, str] | None:
        """Maps each column of this table to the column of the log from which it is copied. Both have the same name."""
        del log
        return {name: name for name in self.schema.names}

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
        """Adds the rows of a chunk. ``lives`` maps each split to its identity if the chunk was read from upstream. It
        is empty for a chunk from the log. If ``save`` is given, ``save`` writes the files of the rows, and ``rows`` are
        the undecoded records. If ``is_small`` is False, the number of offsets does not limit the number of rows."""
        ranges = {portion.split: (portion.start, portion.end) for portion in chunk}
        self.output.lives = lives
        fault("history.before_append")
        is_few = save is None and is_small and sum(end - start for start, end in ranges.values()) <= SMALL_ROWS
        found = small_rows(rows) if is_few else None
        if found is not None:
            small = as_stored(found, self.schema)
            expected.require(RowCount(written=small.num_rows))
            self.output.prove()
            self.output.append_rows(small, self.batch, ranges)
        else:
            self.output.append_frame(rows, self.batch, ranges, expected=expected, save=save)
        fault("history.after_append")
        self.batch += 1
        for split, (start, end) in ranges.items():
            self.held[split] = with_span(self.held.get(split, ()), start, end)

    def finish(self, live_version: int) -> None:
        """Marks the table as complete. Ignores ``live_version``, which only a :class:`DirectTable` needs."""
        empty: dict[str, list[object]] = {name: [None] for name in self.schema.names}
        row = pa.Table.from_pydict({**empty, ERROR: [_WHOLE]}, schema=self.schema)
        self.output.lives = {}
        fault("history.before_finish")
        self.output.append_rows(row, self.batch, {_WHOLE: (0, 1)})
        fault("history.after_finish")
