"""Logs failed writes of the metastore. The caller of such a write gets no error, because a later write repeats the
failed write."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


def _never(_error: Exception) -> bool:
    return False


class FailedWrites:
    """Logs the failed writes of one metastore.

    ``is_explained`` is a function that returns True for an error whose cause is logged elsewhere. The process that runs
    the jobs sets this function.
    """

    def __init__(self) -> None:
        self.is_explained: Callable[[Exception], bool] = _never

    def warn(self, what: str, error: Exception) -> None:
        """Logs that a write has failed, unless the cause is logged elsewhere."""
        if not self.is_explained(error):
            _log.warning("%s: %s", what, error)

    def forget(self) -> None:
        """Makes :meth:`warn` log every failure again, even if the cause is logged elsewhere."""
        self.is_explained = _never
