"""Stores the last epoch for which the owner in this process has started to change the jobs, and the jobs that do not
match this epoch yet."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Applied:
    """The last epoch for which the owner has started to change the jobs, and the jobs that do not match this epoch yet.
    Thread-safe.

    The lease's ``applied_epoch`` is for other processes, and advances only when *all* jobs match. Because of this
    class, a statement on one source in the owner's process need not wait for the jobs of another source.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._epoch = -1
        self._pending: frozenset[str] = frozenset()

    def tell(self, epoch: int, pending: Collection[str]) -> None:
        """Records that the owner has started to change the jobs for ``epoch``. The jobs in ``pending`` do not match
        this epoch yet."""
        with self._changed:
            if epoch != self._epoch or self._pending != pending:
                self._epoch, self._pending = epoch, frozenset(pending)
                self._changed.notify_all()

    def forget(self) -> None:
        """Resets the epoch when this process loses ownership. Callers that wait for jobs then use the epoch in the
        lease."""
        with self._changed:
            self._epoch, self._pending = -1, frozenset()
            self._changed.notify_all()

    def left(self, jobs: Collection[str]) -> tuple[int, frozenset[str]]:
        """Returns the last recorded epoch, and those of ``jobs`` that do not match this epoch yet."""
        with self._changed:
            return self._epoch, self._pending.intersection(jobs)

    def has_applied(self, epoch: int, jobs: Collection[str] | None = None) -> bool:
        """True if ``jobs`` (None: all jobs) match ``epoch`` or a later epoch."""
        with self._changed:
            return self._has_applied(epoch, jobs)

    def wait(
        self, epoch: int, seconds: float, *, jobs: Collection[str] | None = None, is_over: Callable[[], bool]
    ) -> bool:
        """Waits until ``jobs`` (None: all jobs) match ``epoch``, until ``is_over`` returns true, or for at most
        ``seconds``. ``is_over`` is called at the beginning, and whenever :meth:`tell` or :meth:`forget` changes the
        state. Returns True if the jobs match the epoch."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_applied(epoch, jobs) or is_over(), seconds)
            return self._has_applied(epoch, jobs)

    def _has_applied(self, epoch: int, jobs: Collection[str] | None) -> bool:
        if self._epoch < epoch:
            return False
        return not self._pending if jobs is None else self._pending.isdisjoint(jobs)
