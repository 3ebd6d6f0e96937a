"""Determines when a failed or STALLED job starts again: computes the delay before the next retry, and counts the
failures that the job has had since its last recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rw_sql.runtime.jobs.statuses import FLAPPING
from rw_sql.runtime.support.stall_timeout import spoken_seconds

FIRST_RETRY_SECONDS = 1.0
"""The delay in seconds before the first retry of a job that has failed or cannot start. Each further failure doubles
the delay."""

LAST_RETRY_SECONDS = 30.0
"""The maximum delay in seconds between two retries."""

_SOUND_AFTER_SECONDS = 10.0
"""The minimum duration of a run, in seconds, before the job counts as recovered.

The run must also last longer than the failed runs before it.
"""

_LONGER_THAN_FAILED = 2.0
_MOST_SOUND_FACTOR = 60.0
"""After this multiple of ``_SOUND_AFTER_SECONDS``, a job counts as recovered regardless of how long the failed runs
lasted."""

_RESTARTS_OF_FLAPPING = 3
"""A job counts as flapping if more than this number of its runs have failed since the job last recovered."""


@dataclass(slots=True)
class Trouble:
    """The failed runs of a job since its last recovery.

    A job has recovered only when a run lasts clearly longer than the failed runs. A fixed duration is not sufficient:
    on a slow machine, a job that repeatedly fails after a few batches might run longer than this duration each time.
    """

    failures: int = 0
    began_at: float = 0.0
    newest_at: float = 0.0
    longest_seconds: float = 0.0
    reason: str = ""

    def note_end(self, reason: str, started_at: float) -> None:
        """Records a failed run that started at ``started_at`` (``time.monotonic()``)."""
        now = time.monotonic()
        lasted = now - started_at
        if self.failures == 0:
            self.began_at = now
        self.failures += 1
        self.newest_at = now
        self.longest_seconds = max(self.longest_seconds, lasted)
        self.reason = reason

    @property
    def is_flapping(self) -> bool:
        """True if there were more failures than a short interruption would cause."""
        return self.failures > _RESTARTS_OF_FLAPPING

    @property
    def seconds_to_recover(self) -> float:
        """The number of seconds that a run must last before the job's failures are forgotten."""
        longer = self.longest_seconds * _LONGER_THAN_FAILED
        return min(max(longer, _SOUND_AFTER_SECONDS), _SOUND_AFTER_SECONDS * _MOST_SOUND_FACTOR)

    @property
    def told(self) -> str:
        """The text for SHOW JOBS. The text changes only when another run fails."""
        period = spoken_seconds(self.newest_at - self.began_at)
        return f"{FLAPPING}: restarted {self.failures} times in {period}; last failure: {self.reason}"

    def delay_before_retry(self, delay: float, *, is_lasting: bool = False) -> float:
        """The delay in seconds before the next retry. ``delay`` is the job's present delay, which a change of the job's
        spec resets.

        The result is at least as long as the number of failed runs requires. For a lasting reason, the result is the
        maximum delay, because a retry alone cannot remove such a reason.
        """
        if is_lasting:
            return LAST_RETRY_SECONDS
        if not self.failures:
            return delay
        doubled = FIRST_RETRY_SECONDS * 2.0 ** min(self.failures - 1, 10)
        return min(max(delay, doubled), LAST_RETRY_SECONDS)
