"""Determines when a failed or STALLED job starts again. The module computes the delay before the next retry, and counts
the failures of the job since its last recovery."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rw_sql.runtime.jobs.statuses import FLAPPING
from rw_sql.runtime.support.stall_timeout import spoken_seconds

FIRST_RETRY_SECONDS = 1.0
"""The delay in seconds before the first retry of a job that has failed or cannot start. Each further failure doubles
the delay, up to ``LAST_RETRY_SECONDS``."""

LAST_RETRY_SECONDS = 30.0
"""The maximum delay in seconds before a retry."""

_SOUND_AFTER_SECONDS = 10.0
"""The minimum number of seconds that a run must last before the job counts as recovered.

The run must also last longer than ``_LONGER_THAN_FAILED`` times the longest of the failed runs before it.
"""

_LONGER_THAN_FAILED = 2.0
_MOST_SOUND_FACTOR = 60.0
"""If a run has lasted for this multiple of ``_SOUND_AFTER_SECONDS``, the job counts as recovered, regardless of the
duration of the failed runs."""

_RESTARTS_OF_FLAPPING = 3
"""A job counts as flapping if more than this number of its runs have failed since its last recovery."""


@dataclass(slots=True)
class Trouble:
    """The failed runs of a job since its last recovery.

    A job counts as recovered only after a run that lasts twice as long as each failed run. A fixed duration would not
    be sufficient: on a slow machine, a job that fails after a few batches might exceed this duration in each run.
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
        """True if more than ``_RESTARTS_OF_FLAPPING`` runs have failed. A short interruption causes fewer failures."""
        return self.failures > _RESTARTS_OF_FLAPPING

    @property
    def seconds_to_recover(self) -> float:
        """The number of seconds that a run must last before the job counts as recovered."""
        longer = self.longest_seconds * _LONGER_THAN_FAILED
        return min(max(longer, _SOUND_AFTER_SECONDS), _SOUND_AFTER_SECONDS * _MOST_SOUND_FACTOR)

    @property
    def told(self) -> str:
        """The text about the failed runs for SHOW JOBS. This text changes only when another run fails."""
        period = spoken_seconds(self.newest_at - self.began_at)
        return f"{FLAPPING}: restarted {self.failures} times in {period}; last failure: {self.reason}"

    def delay_before_retry(self, delay: float, *, is_lasting: bool = False) -> float:
        """The delay in seconds before the next retry. ``delay`` is the present value of the slot's delay, which is
        reset when the job's spec changes.

        Each failed run since the last recovery doubles the result, up to the maximum delay. If ``is_lasting`` is True,
        the result is the maximum delay, because a retry alone cannot remove a lasting reason.
        """
        if is_lasting:
            return LAST_RETRY_SECONDS
        if not self.failures:
            return delay
        doubled = FIRST_RETRY_SECONDS * 2.0 ** min(self.failures - 1, 10)
        return min(max(delay, doubled), LAST_RETRY_SECONDS)
