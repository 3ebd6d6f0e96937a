"""Forms the batches of a change data capture source. A batch consists of changes that were taken from the source's
reader.

A thread takes changes from the reader and announces a numbered entry for each batch. While a batch is being written, at
most one further batch is prepared. Therefore, a stop discards at most two batches of changes, which must then be read
again.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.jobs.batch_thread import INTERVAL_FACTOR, MOST_INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.connectors.changes import ChangeReader, TableProgress, Taken

logger = logging.getLogger(__name__)

WAIT_SECONDS = 0.05
"""The time in seconds for which one request waits for changes. A batch contains the changes that arrive during this
time."""

FEW_ROWS = 5_000
"""After a batch of at most this number of rows, the feed waits before it takes further changes (see
:class:`ChangeFeed`)."""

QUIET_SECONDS = 10.0
"""The interval in seconds at which the position is committed while no change arrives. After each of these commits, the
server can discard its log up to the committed position."""

ASKED_SECONDS = 0.5
"""While no change arrives, the feed checks at this interval (in seconds) whether a FLUSH waits for a position."""

MOST_ROWS = 200_000
"""The approximate maximum number of rows in a batch. The rows are held in this process's memory."""


@dataclass(slots=True)
class ChangeFeed:
    """Distributes the changes taken from a reader over numbered entries, one entry per batch.

    ``position`` and ``progress`` are the values of the last commit. If ``is_new`` is true, the first batch is added at
    once, even without a change, because the position must be recorded. ``wanted`` returns the position for which a
    FLUSH waits. ``batch_seconds`` is the duration of the last batch. After a batch of at most FEW_ROWS rows, the feed
    waits before it takes further changes. This wait lasts INTERVAL_FACTOR times ``batch_seconds``, but at most
    MOST_INTERVAL_SECONDS.
    """

    reader: ChangeReader
    position: int
    progress: Mapping[str, TableProgress]
    most_rows: int
    is_new: bool = False
    wanted: Callable[[], int] = lambda: 0
    batch_seconds: float = 0.0
    _add: Callable[[], None] | None = None
    _batches: dict[int, Taken] = field(default_factory=dict)
    _added: int = -1
    _taken: int = -1
    _error: Exception | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_closed: threading.Event = field(default_factory=threading.Event)

    def begin(self, add: Callable[[], None]) -> None:
        """Starts the thread, which takes changes and calls ``add`` for each entry."""
        self._add = add
        threading.Thread(target=self._run, name="rw_sql-changes", daemon=True).start()

    def take(self, last_entry: str) -> tuple[Taken, ...]:
        """Returns the changes of a batch: those of all entries that were not taken yet, up to ``last_entry``.

        If there is no change because the reader has failed, raises the reader's error.
        """
        upto = int(last_entry)
        with self._changed:
            taken = tuple(
                self._batches.pop(entry) for entry in range(self._taken + 1, upto + 1) if entry in self._batches
            )
            self._taken = max(self._taken, upto)
            self._changed.notify_all()
            if self._error is not None and not taken:
                raise self._error
            return taken

    def close(self) -> None:
        """Ends the thread and the reader. Afterwards, another process can use the slot."""
        self._is_closed.set()
        with self._changed:
            self._changed.notify_all()
        self.reader.close()

    def _run(self) -> None:
        position, progress, last = self.position, dict(self.progress), time.monotonic()
        asked_at, next_at = last, last
        while not self._is_closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._taken >= self._added or self._is_closed.is_set())
            if self._is_closed.wait(max(0.0, next_at - time.monotonic())):
                return
            try:
                taken = self.reader.take(self.most_rows, WAIT_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised again in the batch that is added for it
                if not self._is_closed.is_set():
                    self._error = error
                    self._offer(None)
                return
            is_news = taken.records.num_rows > 0 or bool(taken.changes or taken.notices)
            is_news = is_news or dict(taken.progress) != progress
            now = time.monotonic()
            is_due = taken.position > position and now - last > QUIET_SECONDS
            if not is_news and not is_due and taken.position > position and now - asked_at > ASKED_SECONDS:
                asked_at = now
                is_due = position < self.wanted() <= taken.position
            if is_news or is_due or self.is_new:
                self.is_new = False
                position, progress, last = taken.position, dict(taken.progress), time.monotonic()
                apart = min(INTERVAL_FACTOR * self.batch_seconds, MOST_INTERVAL_SECONDS)
                next_at = last + (apart if 0 < taken.records.num_rows <= FEW_ROWS else 0.0)
                self._offer(taken)

    def _offer(self, taken: Taken | None) -> None:
        with self._changed:
            self._added += 1
            if taken is not None:
                self._batches[self._added] = taken
        try:
            if self._add is not None:
                self._add()
        except Exception:
            # Spark and its stream have ended. The code that runs the batches reports this.
            logger.debug("an entry could not be added", exc_info=True)
            self._is_closed.set()
