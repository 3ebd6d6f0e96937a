"""Where the rows of objects lie, and what Spark knows of tables that are the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import DeltaTableRecord
from rw_sql.plan.delta_inputs import feed_property
from rw_sql.plan.table_requests import TableLook
from rw_sql.runtime.job import Failure
from rw_sql.runtime.output import CHANGE_FEED
from rw_sql.runtime.spark_sessions import plain_sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.view_inputs import ViewInput
    from rw_sql.runtime.context import Context
    from rw_sql.runtime.spark_sessions import SparkSessions
    from rw_sql.runtime.storage import Warehouse


def table_path(warehouse: Warehouse, snapshot: Snapshot, object_id: int) -> str:
    """The Delta table of an object of the catalog: a log, the rows of a table or view, or one of the user's own."""
    record = snapshot.get(object_id)
    if isinstance(record, DeltaTableRecord):
        return record.path
    return warehouse.data(object_id, getattr(record, "generation", 1))


def look_at_table(sessions: SparkSessions, name: str) -> TableLook:
    """A look at a table by its name in Spark's SQL; empty where there is none, or it is no Delta table."""
    from pyspark.errors import PySparkException

    try:
        described = plain_sql(sessions.spark, f"DESCRIBE DETAIL {name}")
        (detail,) = described.select("format", "location", "properties").collect()
        if detail.format != "delta":
            return TableLook()
        frame = sessions.new().read.format("delta").load(detail.location)
    except PySparkException:
        return TableLook()
    return TableLook(
        path=detail.location.removeprefix("file:"),
        schema=frame.schema.json(),
        has_change_feed=detail.properties.get(CHANGE_FEED) == "true",
    )


_CHANGED = (
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_SOURCE_IGNORE_DELETE",
    "Detected deleted data",
    "Detected a data",
)
"""What Delta says where a stream of appended rows meets a commit that updates or deletes some."""


def with_way_out(context: Context, inputs: Iterable[ViewInput], failure: Failure | None, again: str) -> Failure | None:
    """A failure with what to type, where a table of the user's own changed whose readers only know of appended rows.

    ``again`` are the statements that make the reader anew.
    """
    if failure is None or not any(mark in failure.reason for mark in _CHANGED):
        return failure
    snapshot = context.metastore.snapshot()
    tables = (snapshot.get(given.id) for given in inputs if not given.has_feed)
    written = next((table.written for table in tables if isinstance(table, DeltaTableRecord)), None)
    if written is None:
        return failure
    return Failure(
        reason=f"CHANGED {written}: rows of it were updated or deleted, which only its change data feed tells: "
        f"{feed_property(written)}; {again}",
        is_final=True,
    )
