"""Opens the stream of a source's reader, or the connection of its fetcher. The stream or the connection is opened in
the background, while the run is claimed, earlier runs are fenced, and the positions are determined."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.fetching import FetchingConnector, FollowingFetcher
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.runtime.decoding.upstream_records import packages_of
from rw_sql.runtime.support.background import prepare
from rw_sql.syntax import canonical_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.connectors.fetching import RecordFetcher
    from rw_sql.connectors.support.records.range_stream import RangeFeed
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.syntax.statements import CreateSource


@dataclass(slots=True)
class SourceStream:
    """The stream of one run of a reader, and the fetcher of its small batches. Not thread-safe.

    At first, ``session`` is the session of the reader's last run in this process, or None. Later, it is the session of
    this run. A run without a query opens a session only when a batch needs Spark. If the connector reads ranges,
    ``feed`` contains the ranges of each batch as soon as the stream is open. If ``may_follow`` is true, the run may
    begin without a query.
    """

    context: Context
    statement: CreateSource
    kind: Connector
    options: Mapping[str, str]
    max_records: int
    session: SparkSession | None = None
    may_follow: bool = False
    fetcher: RecordFetcher | None = field(init=False)
    feed: RangeFeed | None = field(init=False, default=None)
    _begun: tuple[Mapping[str, SplitState], Future[DataFrame]] | None = None
    _last_session: SparkSession | None = field(init=False)
    """The session of the reader's last run. :meth:`abandon` does not release this session."""

    def __post_init__(self) -> None:
        self._last_session = self.session
        self.fetcher = (
            self.kind.fetcher(self.options, with_headers=self._has_headers)
            if isinstance(self.kind, FetchingConnector)
            else None
        )

    def begin(self, states: Mapping[str, SplitState]) -> None:
        """In the background, starts to open the stream, or to receive records, at the expected positions."""
        if self.may_follow and isinstance(self.fetcher, FollowingFetcher):
            prepare(partial(self.fetcher.follow, {split: each.offset for split, each in states.items()}), "connecting")
        elif states and self.fetcher is not None:
            self._begun = (states, prepare(lambda: self._open(states), "opening"))
            prepare(partial(self.fetcher.connect, tuple(states)), "connecting")

    def stream(self, states: Mapping[str, SplitState]) -> DataFrame:
        """Returns a stream that begins at the positions ``states``: the open stream if it begins at these positions,
        and otherwise a new stream."""
        if self._begun is not None and self._begun[0] == states:
            # Another thread has opened the stream. This call makes the connector's classes visible to this thread too.
            self.context.sessions.load(packages_of(self.kind, self.statement))
            return self._begun[1].result()
        return self._open(states)

    def open_session(self) -> SparkSession:
        """Opens the session of this run, or prepares an open session for another query. Loads the jars that the
        source's records need."""
        sessions, packages = self.context.sessions, packages_of(self.kind, self.statement)
        self.session = sessions.new(packages) if self.session is None else sessions.again(self.session, packages)
        return self.session

    def end(self) -> None:
        """Waits until the stream is open, or until opening the stream has failed."""
        if self._begun is not None:
            wait([self._begun[1]])

    def abandon(self) -> None:
        """Closes the connections of the stream and of the fetcher. Releases a session that was created for this run,
        but not the session of the last run."""
        try:
            self.end()
            self.close()
        finally:
            if self.session is not self._last_session:
                self.release_session()

    def close(self) -> None:
        """Closes the connections of the stream, if it was opened, and of the fetcher."""
        if self.fetcher is not None:
            self.fetcher.close()
        if self.feed is not None:
            self.feed.close()

    def release_session(self) -> None:
        """Releases the session for use by another query. Must be called only after the queries of this run have ended.
        Afterwards, no later run can reuse the session."""
        session, self.session = self.session, None
        if session is not None:
            self.context.sessions.release_if_alive(session)

    @property
    def _has_headers(self) -> bool:
        return any(column.kind == "header" for column in self.statement.include)

    def _open(self, states: Mapping[str, SplitState]) -> DataFrame:
        session = self.open_session()
        if isinstance(self.kind, RangedConnector):
            if self.feed is not None:
                self.feed.close()
            self.feed = self.kind.range_feed(self.options, states, max_records=self.max_records)
            return self.feed.open(session)
        return self.kind.read_stream(
            session,
            self.options,
            states,
            max_records=self.max_records,
            with_headers=self._has_headers,
            columns={column.name: canonical_type(column.data_type) for column in self.statement.columns},
        )
