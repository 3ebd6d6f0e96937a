"""What is left of a source's reader that was stopped, for the next run of it."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.support.background import prepare

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.ingest.job import Ingest
    from rw_sql.runtime.jobs.context import Context


@dataclass(slots=True)
class StoppedReader:
    """What is left of a reader that was stopped: its query until that has ended, and the reader, for the next to go on
    with what it has, where it ended in order a short while ago. ``prepared`` is that next one's beginning."""

    query: Future[None]
    reader: Ingest | None
    since: float
    prepared: Future[WarmStart] | None = None
    _taking: Lock = field(default_factory=Lock)

    def prepare(self, context: Context, spec: IngestSpec) -> None:
        """Begins to prepare the next run, its query included, unless that was begun."""
        if self.reader is not None and self.prepared is None:
            self.prepared = prepare(partial(self._prepare, context, spec, self.reader), "preparing")

    def _prepare(self, context: Context, spec: IngestSpec, reader: Ingest) -> WarmStart:
        prepared = WarmStart.of(context, spec, reader.session)
        wait([self.query])  # two queries of one name cannot be
        try:
            if self.query.exception() is None:
                prepared.start_early(reader.run + 1)
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def take_prepared(self) -> WarmStart | None:
        """What was prepared, where it came to something; it is the caller's then."""
        with self._taking:
            return self._take()

    def abandon(self) -> None:
        """Lets go of what was prepared. Who takes it meanwhile waits: two queries of one name cannot be."""
        with self._taking:
            prepared = self._take()
            if prepared is not None:
                prepared.abandon()

    def _take(self) -> WarmStart | None:
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.exception() is not None:
            return None  # what went wrong goes wrong again, or does not any more
        return prepared.result()

    def close(self) -> None:
        """As :meth:`abandon`, where no run goes on with what is left: where the last one stood is written down."""
        self.abandon()
        if self.reader is not None:
            self.reader.note()
