"""Determines whether a commit is in the log although its write has failed.

A call can fail before or after the commit, and the client of an object store may repeat a write that has succeeded.
Only the log shows whether the commit has arrived.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from rw_sql.metastore.commits import CommitUnknown

if TYPE_CHECKING:
    from rw_sql.metastore.table import StoredTable

SETTLING_SECONDS = 10.0
"""The maximum time, in seconds, for which the log is read repeatedly until the log shows whether a commit has
arrived."""

_LOOK_SECONDS = 0.2


def has_arrived(log: StoredTable, row: dict[str, Any], error: Exception, seconds: float) -> bool:
    """Returns True if the log contains a row although the call that appends this row has failed. Waits up to
    ``seconds`` until the store responds. Raises CommitUnknown if the store does not respond in this time."""
    ends_at = time.monotonic() + seconds
    while True:
        try:
            return is_in_log(log, row, log.latest_version(is_exact=True))
        except (DeltaError, OSError):
            if time.monotonic() >= ends_at:
                raise CommitUnknown(row["epoch"], error) from error
            time.sleep(_LOOK_SECONDS)


def is_in_log(log: StoredTable, row: dict[str, Any], version: int) -> bool:
    """True if the log at ``version``, or at a newer version that ``log`` has read, contains a row with the same commit
    id as ``row``."""
    log.advance(version)
    rows = log.read(["epoch", "commit_id"], above=("epoch", row["epoch"] - 1))
    return row["commit_id"] in rows["commit_id"].to_pylist()
