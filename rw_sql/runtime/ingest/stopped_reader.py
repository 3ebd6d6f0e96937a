"""Keeps a stopped reader for a warm start of the source's next run."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.support.background import prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.ingest.job import Ingest
    from rw_sql.runtime.jobs.context import Context


def end_for_good(reader: Ingest, end: Callable[[], None]) -> None:
    """Calls ``end``, which ends the reader's query, and releases the reader's session. Afterwards, no later run can
    reuse the reader's resources."""
    try:
        end()
    finally:
        reader.opening.release_session()


@dataclass(slots=True)
class StoppedReader:
    """A stopped reader. The future ``query`` is done when the reader's query has ended. ``reader`` is the reader
    itself, if it ended cleanly a short while ago; otherwise None. ``prepared`` is the future of the next run's warm
    start; None until :meth:`prepare` starts the preparation."""

    query: Future[None]
    reader: Ingest | None
    since: float
    prepared: Future[WarmStart] | None = None
    _taking: Lock = field(default_factory=Lock)

    def prepare(self, context: Context, spec: IngestSpec) -> None:
        """Starts preparing the next run, including its query, unless the preparation has already started."""
        if self.reader is not None and self.prepared is None:
            self.prepared = prepare(partial(self._prepare, context, spec, self.reader), "preparing")

    def _prepare(self, context: Context, spec: IngestSpec, reader: Ingest) -> WarmStart:
        prepared = WarmStart.of(context, spec, reader.session, is_warm=True)
        wait([self.query])  # Two queries cannot have the same name.
        try:
            if self.query.exception() is None:
                prepared.start_early(reader.run + 1)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def take_prepared(self) -> WarmStart | None:
        """Returns the warm start, which the caller then owns; None if no warm start was prepared, or if its preparation
        failed."""
        with self._taking:
            return self._take()

    def abandon(self) -> None:
        """Discards the warm start.

        A concurrent :meth:`take_prepared` waits until this call ends, because two queries cannot have the same name.
        """
        with self._taking:
            prepared = self._take()
            if prepared is not None:
                prepared.abandon()

    def _take(self) -> WarmStart | None:
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.exception() is not None:
            return None  # If the cause still exists, the next run raises the error again.
        return prepared.result()

    def discard(self) -> None:
        """Does the same as :meth:`abandon`, and also releases the reader's session. Afterwards, no later run can reuse
        the reader's resources."""
        try:
            self.abandon()
        finally:
            if self.reader is not None:
                self.reader.opening.release_session()

    def close(self) -> None:
        """Does the same as :meth:`discard`, and also records the reader's positions. This method is for a reader that
        has no next run."""
        self.discard()
        if self.reader is not None:
            self.reader.note()
