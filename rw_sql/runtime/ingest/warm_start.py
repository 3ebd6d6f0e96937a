"""Prepares the start of a source's reader before the run is claimed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.base import look_anew
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import connector_of, source_definition
from rw_sql.model.job_specs import ingest_spec
from rw_sql.model.split_status import OK, split_status
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.ingest.followed import may_follow
from rw_sql.runtime.ingest.query import ReaderQuery, SpeculativeQuery
from rw_sql.runtime.ingest.source_stream import SourceStream
from rw_sql.runtime.jobs.rate_limit import pace_of
from rw_sql.runtime.jobs.startable import require_splits
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from rw_sql.connectors.base import SplitState, Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.rate_limit import BatchLimits

_GOOD_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class WarmStart:
    """Everything that a run needs before it writes: the catalog, the state of the upstream, the expected positions, and
    the stream from these positions. ``early`` is the run's speculative query; None if none was started."""

    context: Context
    spec: IngestSpec
    snapshot: Snapshot
    source: SourceRecord
    opening: SourceStream
    pace: BatchLimits
    upstream: Upstream
    begins: dict[str, SplitState]
    at: float
    early: SpeculativeQuery | None = None

    @staticmethod
    def of(
        context: Context, spec: IngestSpec, session: SparkSession | None = None, *, is_warm: bool = False
    ) -> WarmStart:
        """Requests the splits and their ends from the upstream, and starts to open the stream.

        ``is_warm`` is true if this process's last run of the reader ended cleanly a short while ago. ``session`` is the
        session of that run, if the run had one. Raises StalledError if the run cannot begin.
        """
        snapshot = context.metastore.snapshot()
        source = snapshot.get(spec.source_id)
        if not isinstance(source, SourceRecord) or ingest_spec(snapshot, source) != spec:
            raise StalledError("the catalog has changed")
        statement = source_definition(spec.definition)
        kind = connector(connector_of(statement) or "")
        options = context.resolve(spec.options, snapshot)
        pace = pace_of(options, context.sessions.cores)
        opening = SourceStream(context, statement, kind, options, max_records=pace.batch_records, session=session)
        opening.may_follow = may_follow(kind, opening.fetcher, len(spec.splits), pace)
        try:
            states = read_positions(context.warehouse, context.metastore, snapshot, source).states
            begins = {split: states[split] for split in spec.splits if split in states}
            if is_warm:  # A job that is retried while the upstream is unavailable opens nothing.
                opening.begin(begins)
            # This check precedes all writes, because each retry would otherwise add a run and a fence while the
            # upstream is unavailable.
            upstream = look_anew(kind, options)
            require_splits(spec.splits, upstream)
            if not is_warm:
                opening.begin(begins)
        except BaseException:
            opening.abandon()
            raise
        return WarmStart(
            context=context,
            spec=spec,
            snapshot=snapshot,
            source=source,
            opening=opening,
            pace=pace,
            upstream=upstream,
            begins=begins,
            at=time.monotonic(),
        )

    def is_current(self, spec: IngestSpec) -> bool:
        """True if the preparation is still valid: the catalog has not changed, and the upstream's state was read less
        than a second ago."""
        is_recent = time.monotonic() - self.at < _GOOD_SECONDS
        return is_recent and self.spec == spec and self.context.metastore.snapshot().epoch == self.snapshot.epoch

    def query(self, run: int) -> ReaderQuery:
        """The :class:`ReaderQuery` of the run with the number ``run``."""
        return ReaderQuery(context=self.context, spec=self.spec, kind=self.opening.kind, pace=self.pace, run=run)

    def may_begin_small(self, states: Mapping[str, SplitState]) -> bool:
        """True if the run can begin without a query, because at most :data:`SMALL_ROWS` records follow the positions
        ``states``."""
        known = self.upstream.splits
        left = sum(known[split].end - state.offset for split, state in states.items() if split in known)
        return self.opening.may_follow and left <= SMALL_ROWS

    def start_early(self, run: int) -> None:
        """Starts the speculative query of the expected next run, which has the number ``run``. Starts no query if the
        run can begin without one, if the connector has no fetcher, or if the upstream lacks the records at an expected
        position."""
        known = self.upstream.splits
        if (
            self.opening.fetcher is None
            or len(self.begins) < len(self.spec.splits)
            or self.may_begin_small(self.begins)
        ):
            return
        if all(split_status(state, known.get(split)) == OK for split, state in self.begins.items()):
            self.early = SpeculativeQuery.start(self.query(run), self.opening.stream(self.begins), self.begins)

    def abandon(self) -> None:
        """Ends the speculative query, closes the stream and its connections, and releases a session that was created
        for the run."""
        try:
            if self.early is not None:
                self.early.abandon()
        finally:
            self.opening.abandon()
