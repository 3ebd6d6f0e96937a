"""Determines the paths of objects' tables, and facts about external Delta tables."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltalake.exceptions import DeltaError, TableNotFoundError

from rw_sql.errors import UPSTREAM_UNREACHABLE, SqlError
from rw_sql.metastore.records import DeltaTableRecord
from rw_sql.object_stores import one_line
from rw_sql.plan.ports.tables import TableLook
from rw_sql.plan.queries.delta_inputs import feed_property
from rw_sql.runtime.delta.delta_log import commits, latest_version, table_id
from rw_sql.runtime.delta.table_settings import CHANGE_FEED
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.runtime.support.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.spark.sessions import SparkSessions
    from rw_sql.runtime.support.warehouse import Warehouse


def table_path(warehouse: Warehouse, snapshot: Snapshot, object_id: int) -> str:
    """The path of an object's Delta table: a log, the rows of a table or view, or an external table."""
    record = snapshot.get(object_id)
    if isinstance(record, DeltaTableRecord):
        return record.path
    return warehouse.data(object_id, getattr(record, "generation", 1))


def look_at_table(warehouse: Warehouse, sessions: SparkSessions, name: str) -> TableLook:
    """Looks up a table by the table's name in Spark SQL. The result has no path if the table does not exist or is not a
    Delta table."""
    from pyspark.errors import PySparkException

    try:
        described = plain_sql(sessions.spark, f"DESCRIBE DETAIL {name}")
        (detail,) = described.select("format", "id", "location", "properties").collect()
        if detail.format != "delta":
            return TableLook()
        with sessions.lent() as own:
            schema = own.read.format("delta").load(detail.location).schema
    except PySparkException as error:
        return TableLook(is_missing="NOT_FOUND" in (error.getCondition() or ""))
    path = detail.location.removeprefix("file:").rstrip("/")
    return TableLook(
        path=path,
        schema=schema.json(),
        has_change_feed=detail.properties.get(CHANGE_FEED) == "true",
        unreadable=why_unreadable(warehouse, path, detail.id),
    )


def why_unreadable(warehouse: Warehouse, path: str, known: str) -> str:
    """The reason why this process cannot read a table of the user without Spark; empty if this process can read the
    table.

    ``known`` is the Delta id of the table that Spark finds at ``path``. Jobs, FLUSH and SHOW JOBS read the table's log
    through the file system of its URI, and open the table with delta-rs. The file system and delta-rs take their keys
    from the environment, but Spark takes its keys from its own settings. Therefore, jobs, FLUSH and SHOW JOBS may find
    a table other than the table that Spark finds, or no table.
    """
    try:
        if latest_version(warehouse, path) < 0:
            return f"rw_sql finds no Delta table at {path}"
        found = table_id(warehouse, path)
    except (OSError, DeltaError) as error:
        return one_line(error)
    return "" if found == known else f"rw_sql finds another Delta table at {path} than Spark does"


def require_table(warehouse: Warehouse, record: ObjectRecord | None) -> None:
    """Raises TableNotFoundError if ``record`` is a table of the user that this process does not find. Raises OSError if
    the table's store does not respond.

    When a view or sink is created, its input tables exist. Later, another program may delete an input table, or a
    process with a different environment may look for the table in a different store. A missing table must not be
    treated as a table without rows. The tables of sources, tables and views of rw_sql are not checked, because their
    jobs may not have created them yet.
    """
    if isinstance(record, DeltaTableRecord) and latest_version(warehouse, record.path) < 0:
        raise TableNotFoundError(f"there is no Delta table at {record.path}")


@contextmanager
def users_table(record: ObjectRecord | None) -> Iterator[None]:
    """A context manager that converts errors if ``record`` is a table of the user. An error of the table's store, or
    the error for a missing table, becomes SqlError UPSTREAM_UNREACHABLE, because the table's store may differ from the
    warehouse's store. The warehouse itself may be reachable."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if not isinstance(record, DeltaTableRecord):
            raise
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"the table {record.written} cannot be read: {one_line(error)}",
            hint="run the statement again once rw_sql can read the table",
        ) from error


_CHANGED = (
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_SOURCE_IGNORE_DELETE",
    "Detected deleted data",
    "Detected a data",
)
"""Parts of the error messages that Delta reports if a stream that expects only appended rows reads a commit with
updates or deletes."""


_REPLACED = ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", "unexpected Delta table")
"""Parts of the error message that Delta reports if a query's checkpoint refers to a table other than the table at the
query's path."""

_GONE = re.compile(r"([^/\s]+\.parquet)['\"]?(?: does not exist|$|[.:\s])")
"""Matches the name of a missing data file in the error messages of all file systems."""

_MOST_COMMITS = 1_000
"""The maximum number of versions to search back for the commit that added a missing data file."""


def with_remedy(
    context: Context,
    inputs: Sequence[ViewInput],
    failure: Failure | None,
    again: str,
    *,
    name: str,
    rebuild: str = "",
) -> Failure | None:
    """Adds a remedy to the failure of the view or sink ``name`` if a change to an input caused the failure.

    If the input is an external table, the change may be an update or a delete, which a reader of appended rows cannot
    follow, or a VACUUM. The change may also be the replacement of an input by another table, for example of a source's
    log by an empty log.

    ``again`` are the statements that re-create the view or sink. ``rebuild`` are the statements that re-create the view
    or sink from the existing rows; if ``rebuild`` is empty, the remedy is ``again``.
    """
    if failure is None:
        return failure
    snapshot = context.metastore.snapshot()
    if any(mark in failure.reason for mark in _REPLACED):
        reason = f"INPUT replaced: {name} has read another log or table, which no longer exists"
        return Failure(reason=f"{reason}: {rebuild or again}", is_final=True)
    if "NotFound" in failure.reason or "NOT_FOUND" in failure.reason or "does not exist" in failure.reason:
        own = [record for given in inputs if isinstance(record := snapshot.get(given.id), DeltaTableRecord)]
        vacuumed = _vacuumed(context, own, failure.reason)
        if vacuumed is None:
            return failure
        table, version = vacuumed
        reason = f"EXPIRED {table}: VACUUM removed rows of version {version} that {name} has not read yet"
        return Failure(reason=f"{reason}: {rebuild or again}", is_final=True)
    if not any(mark in failure.reason for mark in _CHANGED):
        return failure
    tables = (snapshot.get(given.id) for given in inputs if not given.has_feed)
    written = next((table.written for table in tables if isinstance(table, DeltaTableRecord)), None)
    if written is None:
        return failure
    return Failure(
        reason=f"CHANGED {written}: its rows were updated or deleted, and only a change data feed shows which: "
        f"{feed_property(written)}; {again}",
        is_final=True,
    )


def _vacuumed(context: Context, tables: Iterable[DeltaTableRecord], reason: str) -> tuple[str, int] | None:
    """If a failure reports a missing file of an external table, returns the name that statements use for the table, and
    the version that added the file. Returns None for any other failure.

    If the commit of that version was cleaned up too, returns the oldest existing version instead.
    """
    files = {unquote(name) for name in _GONE.findall(reason)}
    for table in tables if files else ():
        oldest = -1
        try:
            for version, actions in islice(commits(context.warehouse, table.path), _MOST_COMMITS):
                oldest = version
                for action in actions:
                    wrote = action.get("add") or action.get("cdc")
                    if wrote is not None and unquote(wrote["path"]).rpartition("/")[2] in files:
                        return table.written, version
        except OSError:  # The table's store does not respond.
            continue
        if oldest >= 0 and table.path.rstrip("/") in reason:
            return table.written, oldest
    return None
