"""The Spark query of a source's reader: its checkpoint, its start, and one that is started before its run is there."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rw_sql.connectors.ranged import RangedConnector
from rw_sql.runtime.jobs.job import BrokenOffError
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.rate_limit import BatchLimits

Write: TypeAlias = "Callable[[DataFrame, int], None]"
"""What writes a batch, for ``foreachBatch``."""

_RANGED_INTERVAL_MS = 200
_LOOK_SECONDS = 0.005
_FOLDERS = ("offsets", "commits", "sources/0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderQuery:
    """What the query of one run of a reader is started with."""

    context: Context
    spec: IngestSpec
    kind: Connector
    pace: BatchLimits
    run: int

    @property
    def checkpoint(self) -> str:
        """The folder of its checkpoint."""
        return f"{self._checkpoints}/{self.run}"

    @property
    def _checkpoints(self) -> str:
        return self.context.warehouse.ingest_checkpoints(self.spec.source_id)

    def start(self, records: DataFrame, positions: Mapping[str, int], write: Write) -> StreamingQuery:
        """Starts it on a stream that begins at the positions."""
        warehouse, interval_ms = self.context.warehouse, self.pace.interval_ms
        if isinstance(self.kind, RangedConnector):
            # Whether there is anything new is asked of another process, which takes longer than asking Spark's own.
            interval_ms = max(interval_ms, _RANGED_INTERVAL_MS)
        # One that was started before its run, and whose process was killed before that was claimed.
        warehouse.remove(self.checkpoint)
        # Hadoop runs a process for each folder that it makes, without its native library.
        warehouse.make_folders(*(f"{self.checkpoint}/{name}" for name in _FOLDERS))
        # As Spark writes it where there is none, which takes a process more.
        warehouse.write_text(f"{self.checkpoint}/metadata", f'{{"id":"{uuid.uuid4()}"}}')
        beginning = self.kind.beginning(positions)
        if beginning is not None:
            warehouse.write_text(f"{self.checkpoint}/sources/0/0", beginning)
        fault("ingest.before_query")
        query = (
            records.writeStream.queryName(self.spec.job)
            .option("checkpointLocation", self.checkpoint)
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .foreachBatch(write)
            .start()
        )
        fault("ingest.after_query")
        return query

    def remove_others(self) -> None:
        """Removes the checkpoints of all other runs."""
        for name in self.context.warehouse.list_names(self._checkpoints):
            if name != str(self.run):
                self.context.warehouse.remove(f"{self._checkpoints}/{name}")


@dataclass(frozen=True, slots=True)
class SpeculativeQuery:
    """A query that is started for the run that will probably come next, while that may not be claimed yet.

    It asks upstream how far there is something to read, and plans its first batch, which then waits for the run: until
    :meth:`go_on` no record is read and nothing of the source written but the checkpoint of that run, which is
    worthless without it.
    """

    run: int
    states: Mapping[str, SplitState]
    query: StreamingQuery
    _write: Future[Write | None]

    @staticmethod
    def start(of: ReaderQuery, records: DataFrame, states: Mapping[str, SplitState]) -> SpeculativeQuery:
        """Starts it on a stream that begins at these positions."""
        told: Future[Write | None] = Future()

        def write(frame: DataFrame, batch: int) -> None:
            found = told.result()
            if found is None:
                raise BrokenOffError
            found(frame, batch)

        positions = {split: state.offset for split, state in states.items()}
        return SpeculativeQuery(of.run, states, of.start(records, positions, write), told)

    def fits(self, run: int, states: Mapping[str, SplitState]) -> bool:
        """Whether it is what a run that begins at these positions would start."""
        return (self.run, self.states) == (run, states)

    def go_on(self, write: Write) -> StreamingQuery:
        """Lets it write its batches; the query, which is the run's from now on."""
        self._write.set_result(write)
        return self.query

    def abandon(self) -> None:
        """Ends it, unless it is a run's; nothing of it was written."""
        if self._write.done():
            return
        try:
            ended = prepare(self.query.stop, "stopping")
            # What its batch dies of is not told as an error once it is being stopped.
            while self.query.isActive and not ended.done():
                time.sleep(_LOOK_SECONDS)
        finally:
            self._write.set_result(None)
        wait([ended])
