"""Manages the Spark query of a source's reader. The module creates the query's checkpoint, starts the query, and can
start a speculative query before its run is claimed."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rw_sql.runtime.jobs.batch_thread import BatchThread
from rw_sql.runtime.jobs.streaming_run import BrokenOffError
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.ingest.change_feed import ChangeFeed
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.rate_limit import BatchLimits

Write: TypeAlias = "Callable[[DataFrame, int], None]"
"""The type of the function that writes a batch, for ``foreachBatch``."""

_LOOK_SECONDS = 0.005
_FOLDERS = ("offsets", "commits", "sources/0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderQuery:
    """The values that are needed to start the query of one run of a source's reader."""

    context: Context
    spec: IngestSpec
    kind: Connector
    pace: BatchLimits
    run: int

    @property
    def checkpoint(self) -> str:
        """The folder of the query's checkpoint."""
        return f"{self._checkpoints}/{self.run}"

    @property
    def _checkpoints(self) -> str:
        return self.context.warehouse.ingest_checkpoints(self.spec.source_id)

    def start(self, records: DataFrame, positions: Mapping[str, int], write: Write) -> StreamingQuery:
        """Starts the query on the stream ``records``, which begins at ``positions``."""
        warehouse = self.context.warehouse
        # The folder may remain from a speculative query whose process was killed before its run was claimed.
        warehouse.remove(self.checkpoint)
        # Hadoop without its native library starts a process for each folder that it creates.
        warehouse.make_folders(*(f"{self.checkpoint}/{name}" for name in _FOLDERS))
        # Writes the file that Spark would write, but without starting a process.
        warehouse.write_text(f"{self.checkpoint}/metadata", f'{{"id":"{uuid.uuid4()}"}}')
        beginning = self.kind.beginning(positions)
        if beginning is not None:
            warehouse.write_text(f"{self.checkpoint}/sources/0/0", beginning)
        fault("ingest.before_query")
        query = (
            records.writeStream.queryName(self.spec.job)
            .option("checkpointLocation", self.checkpoint)
            .trigger(processingTime=f"{self.pace.interval_ms} milliseconds")
            .foreachBatch(write)
            .start()
        )
        fault("ingest.after_query")
        return query

    def end_of(self, batch: int) -> str:
        """The text with the end offsets of a batch, which is the third line of the checkpoint's file ``offsets/N``."""
        return self.context.warehouse.read_text(f"{self.checkpoint}/offsets/{batch}").split("\n")[2]

    def has_completed(self, batch: int) -> bool:
        """True if the query has recorded that a batch is complete. The query makes this record after the batch is
        written."""
        return self.context.warehouse.exists(f"{self.checkpoint}/commits/{batch}")

    def start_thread(self, feed: ChangeFeed, write: Callable[[str, int], None]) -> BatchThread:
        """Starts a thread that writes the batches of a feed. The thread needs neither a Spark query nor a
        checkpoint."""
        fault("ingest.before_query")
        thread = BatchThread(self.spec.job, write, interval_seconds=self.pace.interval_ms / 1000)
        thread.start()
        feed.begin(thread.announce)
        fault("ingest.after_query")
        return thread

    def remove_others(self) -> None:
        """Removes the checkpoints of all runs of the reader other than this run."""
        for name in self.context.warehouse.list_names(self._checkpoints):
            if name != str(self.run):
                self.context.warehouse.remove(f"{self._checkpoints}/{name}")


@dataclass(frozen=True, slots=True)
class SpeculativeQuery:
    """A query for the expected next run. The query is started before the run is claimed.

    The query reads the upstream's end offsets and plans its first batch, which then blocks until :meth:`go_on`. Before
    this call, the query reads no records and writes only the run's checkpoint, which no other process reads.
    """

    run: int
    states: Mapping[str, SplitState]
    query: StreamingQuery
    _write: Future[Write | None]

    @staticmethod
    def start(of: ReaderQuery, records: DataFrame, states: Mapping[str, SplitState]) -> SpeculativeQuery:
        """Starts the query on a stream that begins at the positions ``states``."""
        told: Future[Write | None] = Future()

        def write(frame: DataFrame, batch: int) -> None:
            found = told.result()
            if found is None:
                raise BrokenOffError
            found(frame, batch)

        positions = {split: state.offset for split, state in states.items()}
        return SpeculativeQuery(of.run, states, of.start(records, positions, write), told)

    def fits(self, run: int, states: Mapping[str, SplitState]) -> bool:
        """True if a run with the number ``run`` and the positions ``states`` can use the query."""
        return (self.run, self.states) == (run, states)

    def go_on(self, write: Write) -> StreamingQuery:
        """Makes the query continue and write its batches with ``write``. Returns the query, which the run owns from
        then on."""
        self._write.set_result(write)
        return self.query

    def abandon(self) -> None:
        """Ends the query unless a run uses it. An abandoned query has written nothing."""
        if self._write.done():
            return
        try:
            ended = prepare(self.query.stop, "stopping")
            # The batch stays blocked until the query is being stopped, because Spark does not log errors of the batch
            # from then on.
            while self.query.isActive and not ended.done():
                time.sleep(_LOOK_SECONDS)
        finally:
            self._write.set_result(None)
        wait([ended])
