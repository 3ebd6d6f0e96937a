"""Provides the path of a source's log to statements that read the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import STORE_UNREACHABLE, SqlError
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.lost_logs import log_remedy
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context


def readable_log(context: Context, source: SourceRecord) -> str:
    """The path of a source's log. If the source has never had a log, creates the log. Raises SqlError STORE_UNREACHABLE
    if the log existed and no longer exists, or if it is older than the source's positions."""
    try:
        context.ensure_log(source)
    except StalledError as error:
        path = context.log_path(source)
        newest = latest_version(context.warehouse, path)
        fault = f"is lost: {path} no longer exists" if newest < 0 else f"is too old: {path} ends at version {newest}"
        message = f'the log of source "{source.name}" {fault}'
        raise SqlError(STORE_UNREACHABLE, message, hint=log_remedy(context.metastore.snapshot(), source)) from error
    return context.log_path(source)
