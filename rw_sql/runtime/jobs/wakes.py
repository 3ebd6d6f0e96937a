"""Collects requests to wake jobs. The requests come from statements that wait for the jobs, from the upstream's
watcher, and from commits of the jobs' inputs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rw_sql.model.job_ids import job_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Wakes:
    """Stores the jobs that should be woken. Thread-safe.

    The owner's loop sets ``on_request``. This function is called after a request of a statement, if any job is at rest,
    and after a batch of a job that :meth:`watch_inputs` has set. A request has no effect on a job that is not at rest.
    """

    def __init__(self) -> None:
        self.on_request: Callable[[], None] | None = None
        self.has_rests = False
        """True while any job is at rest. A request ends the wait of the owner's loop only while a job is at rest,
        because FLUSH makes many requests a second."""
        self._asked: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._inputs: frozenset[str] = frozenset()
        self._followers: dict[int, tuple[Callable[[], None], ...]] = {}
        self._lock = threading.Lock()

    def ask(self, jobs: Iterable[str]) -> None:
        """Requests that ``jobs`` be woken at once, because a statement waits for them."""
        named = tuple(jobs)
        with self._lock:
            self._asked.update(named)
            self._asked_at.update(dict.fromkeys(named, time.monotonic()))
        if self.has_rests:
            self._tell()

    def take(self) -> set[str]:
        """Returns the jobs for which a wake-up was requested since the last call."""
        with self._lock:
            taken, self._asked = self._asked, set()
        return taken

    def is_asked(self, job: str, within_seconds: float) -> bool:
        """True if a statement of this process has requested a wake-up of the job within the last ``within_seconds``
        seconds."""
        at = self._asked_at.get(job)
        return at is not None and time.monotonic() - at <= within_seconds

    def watch_inputs(self, jobs: frozenset[str]) -> None:
        """Sets the running jobs whose output is read by a job at rest. Each batch of these running jobs is reported to
        the owner's loop at once."""
        self._inputs = jobs

    def follow(self, object_id: int, call: Callable[[], None]) -> None:
        """Calls ``call`` after each batch that a job of this process writes for an object. ``call`` must not block."""
        with self._lock:
            self._followers[object_id] = (*self._followers.get(object_id, ()), call)

    def unfollow(self, object_id: int, call: Callable[[], None]) -> None:
        """Undoes :meth:`follow`: ``call`` is not called after later batches for the object."""
        with self._lock:
            left = tuple(other for other in self._followers.pop(object_id, ()) if other != call)
            if left:
                self._followers[object_id] = left

    def note_batch(self, job: str) -> None:
        """Reports that a batch of a job was committed."""
        for call in self._followers.get(job_object(job), ()):
            call()
        if job in self._inputs:
            self._tell()

    def _tell(self) -> None:
        tell = self.on_request
        if tell is not None:
            tell()
