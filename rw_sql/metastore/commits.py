"""Defines the results of a commit to the metastore: the new epoch, or a conflict with a statement that was committed
first."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import CONCURRENT_CHANGE, SqlError

if TYPE_CHECKING:
    from rw_sql.metastore.snapshot import Snapshot


class ConcurrentCommit(SqlError):  # noqa: N818 - it is an event that callers plan for
    """Raised if another statement was committed after the snapshot on which an operation was planned. Nothing was
    written.

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
    """Raised if the store failed during a commit and did not respond afterwards. It is therefore unknown whether the
    commit became the epoch ``epoch``."""

    def __init__(self, epoch: int, error: Exception) -> None:
        super().__init__(str(error))
        self.epoch = epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The result of a commit, with the epoch of the commit, and the catalog right after the commit."""

    epoch: int
    snapshot: Snapshot


def user_name() -> str:
    """The name of the operating system's user that runs this process. The name is stored as the actor of the process's
    operations."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container, the user may have no name.
        return f"uid {os.getuid()}"
