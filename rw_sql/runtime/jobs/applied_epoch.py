"""What the owner in this process has brought into the world so far, job by job."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Applied:
    """Up to which epoch the owner has acted, and which jobs are not there yet. Any thread may ask.

    The lease's ``applied_epoch`` tells other processes, and only once *all* jobs are there; in the owner's process a
    statement on one source need not wait for the jobs of another.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._epoch = -1
        self._unsettled: frozenset[str] = frozenset()

    def tell(self, epoch: int, unsettled: Collection[str]) -> None:
        """The owner has acted on this epoch; these jobs are not as it wants them yet."""
        with self._changed:
            if epoch != self._epoch or self._unsettled != unsettled:
                self._epoch, self._unsettled = epoch, frozenset(unsettled)
                self._changed.notify_all()

    def forget(self) -> None:
        """This process does not own the jobs any more; whoever waits looks elsewhere."""
        with self._changed:
            self._epoch, self._unsettled = -1, frozenset()
            self._changed.notify_all()

    def left(self, jobs: Collection[str]) -> tuple[int, frozenset[str]]:
        """The newest epoch that was acted on, and which of these jobs are not there yet."""
        with self._changed:
            return self._epoch, self._unsettled.intersection(jobs)

    def holds(self, epoch: int, jobs: Collection[str] | None = None) -> bool:
        """Whether these jobs (all where None) are as the epoch wants them."""
        with self._changed:
            return self._holds(epoch, jobs)

    def wait(
        self, epoch: int, seconds: float, *, jobs: Collection[str] | None = None, is_over: Callable[[], bool]
    ) -> bool:
        """Waits until they are, or it ``is_over``: asked whenever something changes."""
        with self._changed:
            self._changed.wait_for(lambda: self._holds(epoch, jobs) or is_over(), seconds)
            return self._holds(epoch, jobs)

    def _holds(self, epoch: int, jobs: Collection[str] | None) -> bool:
        if self._epoch < epoch:
            return False
        return not self._unsettled if jobs is None else self._unsettled.isdisjoint(jobs)
