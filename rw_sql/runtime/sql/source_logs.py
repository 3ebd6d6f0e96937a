"""Provides the path of a source's log to statements that read the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import STORE_UNREACHABLE, SqlError
from rw_sql.runtime.delta.lost_logs import log_remedy
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context


def readable_log(context: Context, source: SourceRecord) -> str:
    """The path of a source's log. If the source has never had a log, creates the log. Raises SqlError STORE_UNREACHABLE
    if the log existed and no longer exists."""
    try:
        context.ensure_log(source)
    except StalledError as error:
        path = context.log_path(source)
        message = f'the log of source "{source.name}" is lost: {path} no longer exists'
        raise SqlError(STORE_UNREACHABLE, message, hint=log_remedy(context.metastore.snapshot(), source)) from error
    return context.log_path(source)
