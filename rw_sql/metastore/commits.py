"""Defines the results of a commit to the metastore: a new epoch, a conflict with another statement that was committed
first, or an unknown result."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import CONCURRENT_CHANGE, SqlError

if TYPE_CHECKING:
    from rw_sql.metastore.snapshot import Snapshot


class ConcurrentCommit(SqlError):  # noqa: N818 - it is an event that callers plan for
    """Raised if another statement was committed after the snapshot on which the operation was planned. The operation
    has written nothing.

    The caller takes a new snapshot, plans again and commits again.
    """

    def __init__(
        self, epoch: int, based_on: int, *, message: str | None = None, hint: str = "run the statement again"
    ) -> None:
        super().__init__(
            CONCURRENT_CHANGE,
            message or f"the statement was planned on epoch {based_on}, and epoch {epoch} was committed meanwhile",
            hint=hint,
        )
        self.epoch = epoch
        self.based_on = based_on


class CommitUnknown(OSError):  # noqa: N818 - it is an event that callers distinguish from other errors of a store
    """Raised if the store failed during a commit and did not respond afterwards. It is unknown whether the operation
    was committed as epoch ``epoch``."""

    def __init__(self, epoch: int, error: Exception) -> None:
        super().__init__(str(error))
        self.epoch = epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The result of a successful commit: its epoch, and the catalog directly after it."""

    epoch: int
    snapshot: Snapshot


def user_name() -> str:
    """The operating system's name for the user who runs this process. Operations that name no actor store this name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container, the user may have no name.
        return f"uid {os.getuid()}"
