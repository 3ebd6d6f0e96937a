"""A running job: one start of a streaming query, from its run number to its stop."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.plan.desired import JobSpec

GRACE_SECONDS = 1.0
"""How long a stop waits for the running batch before it cancels it; a cancelled batch leaves nothing."""


class StalledError(Exception):
    """A job cannot run now, for a reason that an operator can read and act on.

    ``is_final`` says that trying again changes nothing until a statement does.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job ended by itself. ``is_final``: it is not tried again until a statement changes something."""

    reason: str
    is_final: bool = False


class Job(Protocol):
    """One start of a job."""

    @property
    def spec(self) -> JobSpec:
        """What it was started for."""
        ...

    @property
    def run(self) -> int:
        """Its run number."""
        ...

    def failure(self) -> Failure | None:
        """Why it ended by itself; None while it runs."""
        ...

    def stop(self) -> None:
        """Ends it; returns when nothing of it runs any more in this process."""
        ...


class BatchGate:
    """Knows whether a batch is being written, so that a stop can wait for it a moment."""

    def __init__(self) -> None:
        self._idle = threading.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._idle.set()

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no batch is being written; False if one still is."""
        return self._idle.wait(seconds)


def stop_query(query: StreamingQuery, gate: BatchGate) -> None:
    """Stops a query: the running batch has GRACE_SECONDS to end, then it is cancelled."""
    gate.wait_idle(GRACE_SECONDS)
    query.stop()


def failure_of(query: StreamingQuery | None, stall: StalledError | None) -> Failure | None:
    """Why a query ended; None while it is active. ``stall`` is what its batch said, if it said anything."""
    if query is None:
        return Failure(reason="it was never started")
    if query.isActive:
        return None
    if stall is not None:
        return Failure(reason=stall.reason, is_final=stall.is_final)
    error = query.exception()
    return Failure(reason="the query ended without an error" if error is None else first_line(str(error)))


def first_line(text: str) -> str:
    """The first line of a long JVM message that says something."""
    for line in text.splitlines():
        words = line.strip()
        if words and not words.startswith(("at ", "===", "Traceback")):
            return words[:500]
    return text[:500]
