"""One job in the process that runs it: what is wanted of it, what runs, when it is tried again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rw_sql.metastore.facts import JobStatus
    from rw_sql.plan.desired import JobSpec
    from rw_sql.runtime.job import Job
    from rw_sql.runtime.resting import Rest

FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0
_PASSING_SECONDS = 0.3
_SOUND_AFTER_SECONDS = 10.0
"""A job that has run for so long has recovered: its next failure is tried again soon, as a first one is."""


@dataclass(slots=True)
class JobSlot:
    """One job: what is wanted of it, what runs, and when to try again.

    ``awaiting`` is what it takes up once the batch under way has ended.
    """

    job_id: str
    object_id: int
    wanted: JobSpec | None = None
    running: Job | None = None
    work: Future[None] | None = None
    retry_at: float = 0.0
    delay: float = FIRST_RETRY_SECONDS
    sound_since: float | None = None
    is_final: bool = False
    restarts: int = 0
    reason: str | None = None
    last_error: str | None = None
    rest: Rest | None = None
    awaiting: JobSpec | None = None
    quiet_since: float | None = None
    passing_since: float | None = None

    @property
    def is_working(self) -> bool:
        """Whether it is being stopped or started."""
        return self.work is not None and not self.work.done()

    @property
    def is_over(self) -> bool:
        """Whether it is not wanted and nothing of it runs."""
        return self.wanted is None and self.running is None and not self.is_working

    def needs_work(self, now: float) -> bool:
        """Whether what runs differs from what is wanted and it may be acted on now."""
        if self.is_working:
            return False
        if self.running is not None:
            return self.wanted != self.running.spec or self.running.failure() is not None
        if self.rest is not None:
            return self.wanted != self.rest.spec
        return self.wanted is not None and not self.is_final and now >= self.retry_at

    def back_off(self, reason: str, *, is_lasting: bool = False) -> None:
        """Lets it be tried again later, each time a while longer; as late as any job where the reason lasts."""
        self.reason = reason
        self.sound_since = None
        if is_lasting:
            self.delay = _LAST_RETRY_SECONDS
        self.retry_at = time.monotonic() + self.delay
        self.delay = min(self.delay * 2, _LAST_RETRY_SECONDS)

    def ease(self, now: float) -> None:
        """Forgets the failures before of a job that runs, once it has for a while."""
        if self.sound_since is None:
            self.sound_since = now
        elif now - self.sound_since >= _SOUND_AFTER_SECONDS:
            self.delay = FIRST_RETRY_SECONDS

    def is_passing(self, status: JobStatus) -> bool:
        """Whether a job is just being stopped or started: that is written down only where it takes a while."""
        if status.state not in ("STARTING", "STOPPING") or status.reason is not None:
            self.passing_since = None
            return False
        now = time.monotonic()
        if self.passing_since is None:
            self.passing_since = now
        return now - self.passing_since < _PASSING_SECONDS
