"""Makes the errors that a statement or command raises if the store of the warehouse fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import STORE_UNREACHABLE, SqlError
from rw_sql.metastore.commits import CommitUnknown
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.write_obstacles import obstacle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTHING_CHANGED = "nothing was changed"

_AGAIN = "try again once the store answers; rw-sql doctor examines the warehouse"


def store_error(error: Exception, done: str = NOTHING_CHANGED) -> SqlError:
    """The error for a statement during which the store failed. ``done`` is a text that states which effects the
    statement had before; if it is empty, the message does not mention effects.

    If the store failed during the commit, the message states that it is not known whether the statement is committed.
    """
    told = cause_line(str(error)) or type(error).__name__
    if isinstance(error, CommitUnknown):
        return SqlError(
            STORE_UNREACHABLE,
            f"the warehouse's store failed during the commit and does not answer ({told}), so it is not known whether "
            f"the statement is committed as epoch {error.epoch}",
            hint="do not run it again before SELECT epoch, actor, statement FROM rw_catalog.rw_operations "
            f"WHERE epoch >= {error.epoch} shows that it is not committed",
        )
    obstacle = obstacle_of(error, "")
    hint = _AGAIN if obstacle is None else f"{obstacle}, then try again"
    told = f"{told}; {done}" if done else told
    return SqlError(STORE_UNREACHABLE, f"the warehouse cannot be read or written: {told}", hint=hint)


@contextmanager
def store_errors(require_alive: Callable[[str], object], done: str = NOTHING_CHANGED) -> Iterator[None]:
    """A context manager that converts errors of the store to SqlError.

    ``require_alive`` is called first, with ``done``. If Spark has ended, ``require_alive`` raises an SqlError about
    Spark, because the end of Spark causes errors that look like errors of the store.
    """
    try:
        yield
    except (OSError, DeltaError) as error:
        require_alive(done)
        if isinstance(error, BrokenPipeError):
            raise  # The program that reads this command's output has ended.
        raise store_error(error, done) from error
