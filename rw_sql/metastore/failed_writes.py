"""Logs failed writes to the metastore. The callers of these writes get no error, because a later write repeats each
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

    ``is_explained(error)`` returns True if the cause of the error is logged elsewhere. By default, it returns False for
    every error. The process that runs the jobs replaces this default.
    """

    def __init__(self) -> None:
        self.is_explained: Callable[[Exception], bool] = _never

    def warn(self, what: str, error: Exception) -> None:
        """Logs that a write has failed, unless the cause is logged elsewhere."""
        if not self.is_explained(error):
            _log.warning("%s: %s", what, error)

    def forget(self) -> None:
        """Resets ``is_explained``, so that :meth:`warn` logs every failure."""
        self.is_explained = _never
