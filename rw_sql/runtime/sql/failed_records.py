"""Creates the temporary views of records that a source could not decode, and of rows that a sink's target refused.

The views are created when a statement mentions them: ``<source>$errors``, ``<sink>$rejected``. These views are
temporary, because Spark accepts names with ``$`` only for temporary views. A view that the user has created is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import has_wide_offsets
from rw_sql.connectors.support.wide_offsets import plain_offset
from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.model.definitions import cdc_rows, definition_of, has_unchanged, table_definition
from rw_sql.model.object_lookup import ERRORS, REJECTED
from rw_sql.plan.statements.common import shape_in_catalog
from rw_sql.runtime.decoding.cdc_rows import cdc_frame
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, RAW, SPLIT
from rw_sql.runtime.delta.rejected_rows import make_rejected
from rw_sql.runtime.spark.databases import delta_table
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.runtime.sql.source_logs import readable_log
from rw_sql.runtime.sql.view_columns import unknown_values
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context


class FailedRecordViews:
    """The views ``<source>$errors`` and ``<sink>$rejected`` that one session has created."""

    def __init__(self, context: Context, spark: SparkSession) -> None:
        self._context = context
        self._spark = spark
        self._errors: dict[str, tuple[int, int, str]] = {}
        self._rejected: dict[str, tuple[int, int]] = {}

    def show(self, text: str) -> None:
        """Creates the views that a statement mentions. ``text`` is the statement's text after ``str.casefold``."""
        if ERRORS in text:
            self._show_errors(text)
        if REJECTED in text:
            self._show_rejected(text)

    def restore(self, folded: str) -> bool:
        """Creates a dropped view again. Returns False if this session has not created a view with the name ``folded``,
        which is in lower case."""
        if not self.has(folded):
            return False
        self._errors = {name: log for name, log in self._errors.items() if name.lower() != folded}
        self._rejected = {name: table for name, table in self._rejected.items() if name.lower() != folded}
        self.show(folded)
        return True

    def has(self, folded: str) -> bool:
        """True if this session has created a view of failed records with the name ``folded``, which is in lower
        case."""
        return folded in {name.lower() for name in (*self._errors, *self._rejected)}

    def refresh(self, snapshot: Snapshot) -> None:
        """Drops the views of sources, tables and sinks that no longer exist."""
        logs = {f"{source.name}{ERRORS}": source.id for source in snapshot.all("source")} if self._errors else {}
        for name in [name for name, (source_id, *_) in self._errors.items() if logs.get(name) != source_id]:
            self._drop_errors(name)
        tables = {f"{sink.name}{REJECTED}": sink.id for sink in snapshot.all("sink")} if self._rejected else {}
        for name in [name for name, (sink_id, _) in self._rejected.items() if tables.get(name) != sink_id]:
            self._drop_rejected(name)

    def drop(self) -> None:
        """Drops all views that this object has created."""
        for name in list(self._errors):
            self._drop_errors(name)
        for name in list(self._rejected):
            self._drop_rejected(name)

    def _show_errors(self, text: str) -> None:
        """Creates the views of decode errors that ``text`` mentions.

        The views are temporary, because Spark accepts names with ``$`` only for temporary views. A view that the user
        has created is kept.
        """
        snapshot = self._context.metastore.snapshot()
        for table in snapshot.all("table"):
            if table.live_from is not None and f"{table.name}{ERRORS}".casefold() in text:
                self._show_captured_errors(snapshot, table)
        for source in snapshot.all("source"):
            name = f"{source.name}{ERRORS}"
            if name.casefold() not in text or not isinstance(source, SourceRecord):
                continue
            unknown = self._unknown_values(snapshot, source)
            log = (source.id, source.generation, unknown)
            offset = plain_offset(OFFSET) if has_wide_offsets(source.connector) else OFFSET
            if self._errors.get(name) == log:
                continue
            if not source.is_shared:  # A source that is not shared has no log.
                continue
            if name not in self._errors and self._spark.catalog.tableExists(quoted_for_spark(name)):
                continue
            path = readable_log(self._context, source)
            plain_sql(
                self._spark,
                f"CREATE OR REPLACE TEMPORARY VIEW {quoted_for_spark(name)} (bytes, split, offset, reason) AS "
                f"SELECT {RAW}, {SPLIT}, {offset}, {ERROR} FROM "
                f"{delta_table(self._spark, path)} WHERE {ERROR} IS NOT NULL{unknown}",
            )
            self._errors[name] = log

    def _show_captured_errors(self, snapshot: Snapshot, table: TableRecord) -> None:
        """Creates the view of decode errors of a table that reads a change data capture source. The source's log
        contains undecoded changes, and the table decodes those that belong to its upstream table."""
        name = f"{table.name}{ERRORS}"
        source = snapshot.get(table.inputs[0]) if table.inputs else None
        if not isinstance(source, SourceRecord) or table.live_from is None:
            return
        if name not in self._errors and self._spark.catalog.tableExists(quoted_for_spark(name)):
            return
        log = self._spark.read.format("delta").load(readable_log(self._context, source))
        rows = cdc_frame(log, cdc_rows(table_definition(table.definition)), table.live_from)
        bad = rows.where(f"{ERROR} IS NOT NULL").selectExpr(
            f"{RAW} AS bytes", f"{SPLIT} AS split", f"{OFFSET} AS offset", f"{ERROR} AS reason"
        )
        unknown = unknown_values(self._context.warehouse, table).removeprefix(" UNION ALL ")
        if unknown:
            bad = bad.union(self._spark.sql(unknown))
        bad.createOrReplaceTempView(quoted_for_spark(name))
        self._errors[name] = (table.id, table.generation, table.definition)

    def _show_rejected(self, text: str) -> None:
        """Creates each temporary view ``SINK$rejected`` whose name occurs in ``text``. A view that the user has created
        is kept."""
        for sink in self._context.metastore.snapshot().all("sink"):
            name, table = f"{sink.name}{REJECTED}", (sink.id, sink.generation)
            if name.casefold() not in text or self._rejected.get(name) == table:
                continue
            if name not in self._rejected and self._spark.catalog.tableExists(quoted_for_spark(name)):
                continue
            path = self._context.warehouse.rejected(*table)
            make_rejected(path, shape_in_catalog(sink))
            select = f"SELECT * FROM {delta_table(self._spark, path)}"
            plain_sql(self._spark, f"CREATE OR REPLACE TEMPORARY VIEW {quoted_for_spark(name)} AS {select}")
            self._rejected[name] = table

    def _unknown_values(self, snapshot: Snapshot, source: SourceRecord) -> str:
        """The clause ``UNION ALL …`` that extends the query for decode errors with a row for each unknown value in a
        source's table. In such a row, the column ``bytes`` contains the table row's key as JSON. The clause is empty if
        the table cannot have unknown values."""
        table = next((t for t in snapshot.kept if isinstance(t, TableRecord) and t.source_id == source.id), None)
        if table is None or not has_unchanged(definition_of(source)):
            return ""
        return unknown_values(self._context.warehouse, table)

    def _drop_rejected(self, name: str) -> None:
        del self._rejected[name]
        self._spark.catalog.dropTempView(name)

    def _drop_errors(self, name: str) -> None:
        del self._errors[name]
        self._spark.catalog.dropTempView(name)
