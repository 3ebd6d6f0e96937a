"""What is left of a source's reader that was stopped, for the next run of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.runtime.background import prepare
from rw_sql.runtime.ingest import Ingest

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rw_sql.plan.desired import IngestSpec
    from rw_sql.runtime.context import Context
    from rw_sql.runtime.ingest import Prepared


@dataclass(slots=True)
class Ending:
    """What is left of a reader that was stopped: its query until that has ended, and the reader, for the next to go on
    with what it has, where it ended in order a short while ago. ``prepared`` is that next one's beginning."""

    query: Future[None]
    reader: Ingest | None
    since: float
    prepared: Future[Prepared] | None = None

    def prepare(self, context: Context, spec: IngestSpec) -> None:
        """Begins to prepare the next run, unless that was begun."""
        if self.reader is not None and self.prepared is None:
            self.prepared = prepare(partial(Ingest.prepare, context, spec, self.reader), "preparing")

    def take_prepared(self) -> Prepared | None:
        """What was prepared, where it came to something."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.exception() is not None:
            return None  # what went wrong goes wrong again, or does not any more
        return prepared.result()

    def abandon(self) -> None:
        """Lets go of what was prepared."""
        prepared = self.take_prepared()
        if prepared is not None:
            prepared.abandon()

    def close(self) -> None:
        """As :meth:`abandon`, where no run goes on with what is left: where the last one stood is written down."""
        self.abandon()
        if self.reader is not None:
            self.reader.note()
