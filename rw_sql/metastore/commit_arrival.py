"""Determines whether the log contains a commit although the call that wrote the commit has failed.

The call can fail before or after the commit. The client of an object store may also repeat a write that has succeeded,
and report that the second write was refused. Only the log shows whether it contains the commit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from rw_sql.metastore.commits import CommitUnknown

if TYPE_CHECKING:
    from rw_sql.metastore.table import StoredTable

SETTLING_SECONDS = 10.0
"""The maximum time, in seconds, for which the log is read repeatedly if the store does not respond."""

_LOOK_SECONDS = 0.2


def has_arrived(log: StoredTable, row: dict[str, Any], error: Exception, seconds: float) -> bool:
    """Returns True if the log contains ``row``, although the call that appended ``row`` has failed with ``error``.
    Retries for up to ``seconds`` if the store does not respond, and then raises CommitUnknown."""
    ends_at = time.monotonic() + seconds
    while True:
        try:
            return is_in_log(log, row, log.latest_version(is_exact=True))
        except (DeltaError, OSError):
            if time.monotonic() >= ends_at:
                raise CommitUnknown(row["epoch"], error) from error
            time.sleep(_LOOK_SECONDS)


def is_in_log(log: StoredTable, row: dict[str, Any], version: int) -> bool:
    """True if the log contains a row with the commit id of ``row``. The log is read at ``version``, or at the version
    of the handle ``log`` if that is newer."""
    log.advance(version)
    rows = log.read(["epoch", "commit_id"], above=("epoch", row["epoch"] - 1))
    return row["commit_id"] in rows["commit_id"].to_pylist()
