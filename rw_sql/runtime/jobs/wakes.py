"""Requests to wake jobs at rest: by statements that wait for them, by the upstream's watcher, by commits of inputs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Wakes:
    """The jobs that should be woken, each with its number of unread records as far as that is known. Thread-safe.

    ``on_request`` is called after each request; the owner's loop sets it. A job that is not at rest is not affected.
    """

    def __init__(self) -> None:
        self.on_request: Callable[[], None] | None = None
        self._asked: dict[str, int] = {}
        self._inputs: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def ask(self, jobs: Iterable[str]) -> None:
        """Requests that these jobs be woken at once, because a statement waits for them."""
        self.ask_for(dict.fromkeys(jobs, 0))

    def ask_for(self, behind: Mapping[str, int]) -> None:
        """Requests that these jobs be woken; those with the most unread records come first."""
        with self._lock:
            for job, records in behind.items():
                self._asked[job] = max(records, self._asked.get(job, 0))
        self._tell()

    def take(self) -> dict[str, int]:
        """The requests since the last call."""
        with self._lock:
            taken, self._asked = self._asked, {}
        return taken

    def watch_inputs(self, jobs: frozenset[str]) -> None:
        """Names the running jobs whose output a job at rest reads; their next batch is reported at once."""
        self._inputs = jobs

    def note_batch(self, job: str) -> None:
        """Reports that a batch of a job was committed."""
        if job in self._inputs:
            self._tell()

    def _tell(self) -> None:
        tell = self.on_request
        if tell is not None:
            tell()
