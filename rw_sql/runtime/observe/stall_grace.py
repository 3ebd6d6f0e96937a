"""Determines how long FLUSH and WAIT wait for a stalled job before they skip the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.jobs.inputs import WAITING
from rw_sql.runtime.jobs.startable import DISCOVERING
from rw_sql.runtime.jobs.statuses import RETRYING, present_statuses
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from rw_sql.metastore.facts import JobStatus
    from rw_sql.runtime.jobs.context import Context

_GRACE_MS = 5_000
"""The time, in milliseconds, for which a statement waits for a job that has just stalled.

Most jobs recover at the first or second retry.
"""

_RETRIES = 2
"""The number of failed retries after which a statement skips a stalled job.

Retries are counted, because on a busy machine a single start may take longer than ``_GRACE_MS``. The statement does not
wait for a retry that begins later than ``_GRACE_MS`` after the last failure.
"""

_SOUND_MS = 30_000
"""After a run of this duration in milliseconds, a job counts as recovered.

A shorter run may consist of one batch that fails slowly.
"""


class StallGrace:
    """Decides how long one FLUSH or WAIT waits for stalled jobs."""

    def __init__(self) -> None:
        self._stalls: dict[str, _Stall] = {}

    def stalled(self, context: Context, job: str) -> JobStatus | None:
        """If the job is stalled and the statement skips it, returns the job's status. Otherwise returns None."""
        status = present_statuses(context).get(job)
        return status if status is not None and self.is_over(status, now_ms()) else None

    def is_over(self, status: JobStatus, at_ms: int) -> bool:
        """True if the statement skips the job whose status is ``status``.

        The statement skips a job that stalled at least ``_GRACE_MS`` ago, if ``_RETRIES`` retries have failed or if the
        last failure is at least ``_GRACE_MS`` old. The statement does not skip a job while a retry is in progress, or
        while the job waits for its input or for the list of its splits.
        """
        if status.state != "STALLED":
            if at_ms - status.updated_ms >= _SOUND_MS:
                self._stalls.pop(status.job, None)
            return False
        reason = status.reason or ""
        if reason.startswith((WAITING, DISCOVERING)):
            self._stalls.pop(status.job, None)
            return False
        stall = self._stalls.setdefault(status.job, _Stall(since_ms=status.updated_ms))
        if reason.endswith(RETRYING):
            return False
        stall.failed_at.add(status.updated_ms)
        is_retried = at_ms - status.updated_ms < _GRACE_MS
        return at_ms - stall.since_ms >= _GRACE_MS and (len(stall.failed_at) > _RETRIES or not is_retried)


@dataclass(slots=True, kw_only=True)
class _Stall:
    """The time when a job stalled, and the times of the failures seen since then, in milliseconds since 1970."""

    since_ms: int
    failed_at: set[int] = field(default_factory=set)
