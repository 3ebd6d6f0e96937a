"""Makes what the catalog holds readable by name in plain Spark SQL.

That is the ``rw_catalog`` views, every view's rows, and of each source the records that did not decode.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from deltalake import DeltaTable

from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.plan.relations import schema_columns, stored_columns
from rw_sql.runtime.decode import ERROR, OFFSET, RAW, SPLIT
from rw_sql.runtime.spark_sessions import plain_sql
from rw_sql.syntax.names import quoted_for_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.runtime.context import Context

logger = logging.getLogger(__name__)

CATALOG_DATABASE = "rw_catalog"

ERRORS = "$errors"
"""What the name of a source's view of its records that did not decode ends in."""

_MARK = "rw_sql.warehouse"
"""The property that tells our views from the user's own, and of which warehouse they are."""

_shown: WeakKeyDictionary[SparkContext, str] = WeakKeyDictionary()
"""Which warehouse's catalog the views in ``rw_catalog`` show: the sessions of one Spark share them."""


class SparkViews:
    """The Spark views of one attached warehouse in one session's current database. Follows the catalog's epochs."""

    def __init__(self, context: Context, spark: SparkSession) -> None:
        self._context = context
        self._spark = spark
        self.database = spark.catalog.currentDatabase()
        self._epoch = -1
        self._known: dict[str, MaterializedViewRecord] = {}
        self._errors: dict[str, tuple[int, int]] = {}
        plain_sql(spark, f"CREATE DATABASE IF NOT EXISTS {CATALOG_DATABASE}")

    def before(self, text: str) -> None:
        """Makes the ``rw_catalog`` views where a statement or table name speaks of them, as those of this warehouse.

        The same for ``<source>$errors``. Spark analyses each when it is made, which takes seconds: most sessions never
        need them.
        """
        folded = text.casefold()
        if ERRORS in folded:
            self._show_errors(folded)
        if CATALOG_DATABASE not in folded:
            return
        context, uri = self._spark.sparkContext, self._context.warehouse.uri
        if _shown.get(context) == uri:
            return
        for name, select in self._context.metastore.view_definitions():
            plain_sql(self._spark, f"CREATE OR REPLACE VIEW {CATALOG_DATABASE}.{name} AS {select}")
        _shown[context] = uri

    def _show_errors(self, text: str) -> None:
        """Makes the views of decode errors that a text names.

        They are temporary: Spark takes no other with such a name. One of the user's own stays.
        """
        for source in self._context.metastore.snapshot().all("source"):
            name, log = f"{source.name}{ERRORS}", (source.id, getattr(source, "generation", 1))
            if name.casefold() not in text or not isinstance(source, SourceRecord) or self._errors.get(name) == log:
                continue
            if not source.is_shared:  # it has no log
                continue
            if name not in self._errors and self._spark.catalog.tableExists(f"`{name}`"):
                continue
            self._context.ensure_log(source)
            plain_sql(
                self._spark,
                f"CREATE OR REPLACE TEMPORARY VIEW `{name}` (bytes, split, offset, reason) AS "
                f"SELECT {RAW}, {SPLIT}, {OFFSET}, {ERROR} FROM delta.`{self._context.log_path(source)}` "
                f"WHERE {ERROR} IS NOT NULL",
            )
            self._errors[name] = log

    def is_current(self, epoch: int) -> bool:
        """Whether the views are those of this epoch."""
        return epoch == self._epoch

    def refresh(self) -> None:
        """Adds, replaces and drops views until they are those of the newest epoch. Cheap where nothing changed.

        A view whose table its job has not made yet comes with a later refresh.
        """
        snapshot = self._context.metastore.snapshot()
        if self.is_current(snapshot.epoch):
            return
        logs = {f"{source.name}{ERRORS}": source.id for source in snapshot.all("source")} if self._errors else {}
        for name in [name for name, (source_id, _) in self._errors.items() if logs.get(name) != source_id]:
            self._drop_errors(name)
        wanted = {view.name: view for view in snapshot.kept}
        for name in [name for name in self._known if name not in wanted]:
            self._drop(name)
        is_complete = True
        for name, view in wanted.items():
            if self._known.get(name) == view:
                continue
            path = self._context.warehouse.data(view.id, view.generation)
            if not self._context.warehouse.list_names(f"{path}/_delta_log"):
                is_complete = False
                continue
            if isinstance(view, TableRecord) and not _has_columns(path, view):
                is_complete = False  # its job is about to add one
                continue
            if self._warehouse_of(name) == "":
                logger.warning(
                    "a table or view of your own hides materialized view %s; rename it to read the view", name
                )
            else:
                plain_sql(
                    self._spark,
                    f"CREATE OR REPLACE VIEW {self._qualified(name)} "
                    f"TBLPROPERTIES ('{_MARK}' = '{_quoted(self._context.warehouse.uri)}') "
                    f"AS SELECT {_columns(view)} FROM delta.`{path}`",
                )
            self._known[name] = view
        if is_complete:
            self._epoch = snapshot.epoch

    def remove(self) -> None:
        """Takes the views of this warehouse away again; ``rw_catalog`` and what is the user's own stay."""
        for name in list(self._known):
            self._drop(name)
        for name in list(self._errors):
            self._drop_errors(name)

    def _drop_errors(self, name: str) -> None:
        del self._errors[name]
        self._spark.catalog.dropTempView(name)

    def _drop(self, name: str) -> None:
        del self._known[name]
        if self._warehouse_of(name) == self._context.warehouse.uri:
            plain_sql(self._spark, f"DROP VIEW IF EXISTS {self._qualified(name)}")

    def _warehouse_of(self, name: str) -> str | None:
        """The warehouse that a view was made for, empty where it (or a table) is the user's; None where there is none.

        Asked each time: a user may have put another in the place of ours.
        """
        if not self._spark.catalog.tableExists(self._qualified(name)):
            return None
        properties = plain_sql(self._spark, f"SHOW TBLPROPERTIES {self._qualified(name)}").collect()
        return str(next((row[1] for row in properties if row[0] == _MARK), ""))

    def _qualified(self, name: str) -> str:
        return f"`{self.database}`.`{name}`"


def _has_columns(path: str, table: TableRecord) -> bool:
    known = {column.name for column in DeltaTable(path).schema().fields}
    return known.issuperset(stored for _, stored in stored_columns(table))


def _columns(view: MaterializedViewRecord) -> str:
    # A column that was added to a table lies behind those of INCLUDE there; one that was renamed has its old name.
    if isinstance(view, TableRecord):
        return ", ".join(
            f"{quoted_for_spark(stored)} AS {quoted_for_spark(name)}" for name, stored in stored_columns(view)
        )
    if not view.maintenance.hidden:
        return "*"
    return ", ".join(f"`{name}`" for name, _ in schema_columns(view.schema))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
