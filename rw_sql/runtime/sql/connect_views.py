"""Makes the catalog's objects readable by name in a session of Spark Connect.

The server is shared with sessions that do not use the warehouse, so all of the warehouse's views are temporary views of
this session. If the name of an object has several parts, such as ``raw.orders`` or ``rw_catalog.rw_jobs``, the name of
the temporary view is the whole name, quoted as one word.

The server's process may run the jobs of the warehouse, or may have an attached session of its own. In both cases, the
server also has views of the warehouse's objects that all its sessions share. These shared views may show the tables of
an earlier epoch.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from rw_sql.errors import CONNECT_SESSION, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.object_lookup import RELATION_KINDS, SCHEMA_ALIAS, find_relation
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH
from rw_sql.runtime.spark.databases import SPARK_CATALOG, warehouse_of_view
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.runtime.sql.catalog_views import CATALOG_DATABASE, SparkViews
from rw_sql.runtime.sql.failed_records import FailedRecordViews
from rw_sql.runtime.sql.spark_names import find_folded
from rw_sql.runtime.sql.view_columns import written_columns
from rw_sql.runtime.support.failures import cause_line
from rw_sql.syntax.dialect.markers import without_fields
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted_for_spark, spark_name
from rw_sql.syntax.query.qualify import written_relations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

_CATALOGS: tuple[list[str], ...] = ([], [SPARK_CATALOG])
"""The parts that may precede the name of a database in Spark's own catalog: no part, or the name of Spark's own
catalog."""


def is_forgotten(error: PySparkException) -> bool:
    """True if the error states that the server no longer has the session."""
    return "INVALID_HANDLE.SESSION" in (error.getCondition() or str(error))


class ConnectViews(SparkViews):
    """The temporary views of one attached warehouse in one session of Spark Connect."""

    def __init__(self, context: Context, spark: SparkSession) -> None:
        # Does not call the base class, which creates a database.
        self._context = context
        self._spark = spark
        self.database = spark.catalog.currentDatabase()
        self._epoch = -1
        self._known: dict[str, MaterializedViewRecord] = {}
        self._failed = FailedRecordViews(context, spark)
        self._schemas: dict[str, bool] = {}
        self._covered: set[str] = set()
        self._problems: dict[str, str] = {}
        self._of_catalog: set[str] = set()
        self._is_tidy = False
        self._changing = threading.RLock()
        """The lock that a thread of this session holds while it creates or drops views."""

    def before(self, text: str) -> None:
        """Creates the missing views that ``text`` mentions: ``rw_catalog`` views, views ``<source>$errors`` and
        ``<sink>$rejected``, and views that an object of the user has hidden until now."""
        folded = text.casefold().replace("``", "`")  # A backtick within a name is doubled.
        with self._changing:
            self._before(folded)

    def _before(self, folded: str) -> None:
        if any(name.rpartition(".")[2].casefold() in folded for name in self._covered):
            self._epoch = -1  # The user may have renamed the object that hid the view.
            self.refresh()
        self._failed.show(folded)
        if CATALOG_DATABASE not in folded:
            return
        for name, select in self._context.metastore.view_definitions():
            if name in folded and name not in self._of_catalog:
                self._make(f"{CATALOG_DATABASE}.{name}", select)
                self._of_catalog.add(name)

    def refresh(self) -> None:
        """Creates, replaces and drops views to match the latest epoch."""
        with self._changing:
            self._refresh_views()

    def _refresh_views(self) -> None:
        snapshot = self._context.metastore.snapshot()
        if self.is_current(snapshot.epoch):
            return
        wanted = self._wanted(snapshot)
        for name in [name for name in self._known if name not in wanted]:
            self._drop(name)
        self._schemas = {record.name: True for record in snapshot.all("schema")}
        if not self._is_tidy:
            self._is_tidy = True
            self._drop_stale(wanted)
        is_complete = True
        for name, view in wanted.items():
            if self._known.get(name) == view:
                continue
            if not self._can(name, self._is_ready, view):
                is_complete = False  # The view's job will create the table.
                continue
            if name not in self._known and self._is_users(name):
                if name not in self._covered:
                    logger.warning("a table or view of your own hides %s; to read it, rename yours", name)
                self._covered.add(name)
                continue
            self._covered.discard(name)
            path = self._context.warehouse.data(view.id, view.generation)
            if self._can(name, self._make, name, f"SELECT {written_columns(view)} FROM delta.{quoted_for_spark(path)}"):
                self._known[name] = view
            else:
                is_complete = False
        if is_complete:
            self._epoch = snapshot.epoch

    def _is_users(self, name: str) -> bool:
        """True if a table or view of the user has this name."""
        try:
            return warehouse_of_view(self._spark, quoted_for_spark(name)) == ""
        except PySparkException as error:  # Every view of rw_sql has properties that can be read.
            if is_forgotten(error):
                raise
            return True

    def _is_of_server(self, name: str) -> bool:
        """True if another session has created a view with this name for this warehouse, and all sessions of the server
        share this view."""
        return warehouse_of_view(self._spark, self._qualified(name)) == self._context.warehouse.uri

    def _is_of_others(self, name: str) -> bool:
        """True if the server has a table or view with this name that does not belong to this warehouse. A server has
        databases for the warehouse's schemas only if a session of the server's own process was attached."""
        return warehouse_of_view(self._spark, self._qualified(name)) not in (None, self._context.warehouse.uri)

    def _make(self, name: str, select: str) -> None:
        plain_sql(self._spark, f"CREATE OR REPLACE TEMPORARY VIEW {quoted_for_spark(name)} AS {select}")

    def _drop(self, name: str) -> None:
        del self._known[name]
        self._spark.catalog.dropTempView(name)
        self._drop_of_server(name)

    def _drop_of_server(self, name: str) -> None:
        """Drops the shared view of an object that the catalog no longer has. If the view remained, the name would refer
        to it, and a query would return rows of the dropped object."""
        try:
            if self._is_of_server(name):
                plain_sql(self._spark, f"DROP VIEW IF EXISTS {self._qualified(name)}")
        except PySparkException as error:
            logger.warning("the server's view of %s is not dropped: %s", name, cause_line(str(error)))

    def _drop_stale(self, wanted: Mapping[str, MaterializedViewRecord]) -> None:
        """Drops the shared views of objects that were dropped before this session was attached."""
        database = f"{SPARK_CATALOG}.{quoted_for_spark(self.database)}"
        try:
            # A server without this database has shown no warehouse. Each of its views would cost two requests.
            if not self._spark.catalog.databaseExists(f"{SPARK_CATALOG}.{CATALOG_DATABASE}"):
                return
            shown = plain_sql(self._spark, f"SHOW VIEWS IN {database}").collect()
        except PySparkException as error:
            logger.warning("the server's views cannot be listed: %s", cause_line(str(error)))
            return
        known = {name.lower() for name in wanted}
        for name in (row["viewName"] for row in shown if not row["isTemporary"]):
            if name.lower() not in known:
                self._drop_of_server(name)

    def close(self) -> None:
        """Does nothing, because no background thread creates views for this session."""

    def remove(self, others: Sequence[SparkViews] = ()) -> None:
        """Drops the views of this warehouse; :meth:`refresh` creates them again. The user's own objects are kept."""
        with self._changing:
            self._remove()

    def _remove(self) -> None:
        self._epoch = -1
        try:
            self._failed.drop()
            for name in self._known:
                self._spark.catalog.dropTempView(name)
            for name in self._of_catalog:
                self._spark.catalog.dropTempView(f"{CATALOG_DATABASE}.{name}")
        except PySparkException as error:  # The server has ended, so the views no longer exist.
            logger.info("the views of a session of Spark Connect are not dropped: %s", error)
        self._known.clear()
        self._of_catalog.clear()

    def for_spark(self, snapshot: Snapshot, text: str, path: tuple[str, ...]) -> str:
        """Replaces names of rw_sql objects in a statement with the names of temporary views. Replaces only qualified
        names, and unqualified names that the search path resolves to another name.

        Raises SqlError CONNECT_SESSION if the statement reads a source that has no table. A session of Spark Connect
        cannot read a source's upstream.
        """
        for parts, start, end, has_alias in reversed(written_relations(without_fields(text))):
            bare = parts[1:] if len(parts) == 3 and parts[0].lower() == SPARK_CATALOG else parts
            if len(bare) == 2 and bare[0].lower() == CATALOG_DATABASE:
                key = ".".join(bare).lower()
            else:
                found = self._found(snapshot, parts, path)
                if found is None:
                    continue
                key = found
                record = find_relation(snapshot, key)
                if isinstance(record, SourceRecord) and snapshot.table_of(record.id) is None:
                    raise SqlError(
                        CONNECT_SESSION,
                        f'source "{record.name}" cannot be read in a session of Spark Connect, whose server has no '
                        "reader of its upstream",
                        hint=f"CREATE MATERIALIZED VIEW a_view AS SELECT * FROM {spark_name(record.name)}; then read "
                        "it",
                    )
            if len(parts) > 1 or key != parts[0]:
                alias = "" if has_alias else f" AS {quoted_for_spark(parts[-1])}"
                text = f"{text[:start]}{quoted_for_spark(key)}{alias}{text[end:]}"
        return text

    def _found(self, snapshot: Snapshot, parts: tuple[str, ...], path: tuple[str, ...]) -> str | None:
        """Converts the parts of a name in a statement to a name in the catalog. None if the name refers to no object of
        the catalog, or if Spark resolves the name without a replacement."""
        if len(parts) == 3 and parts[0].lower() == SPARK_CATALOG:
            parts = parts[1:]
            schema = parts[0].lower()
            if schema in self._schemas and self._is_of_others(f"{schema}.{parts[1]}"):
                return None  # The user has a database with the name of the schema.
        if len(parts) == 2:
            schema = parts[0].lower()
            if schema == self.database.lower():
                known = find_folded(snapshot, parts[1])
                return known.name if known is not None and self._is_of_server(parts[1]) else None
            is_alias = schema == SCHEMA_ALIAS and not self.has_users_database(SCHEMA_ALIAS)
            if not is_alias and snapshot.find("schema", schema) is None:
                return None
            key = parts[1] if is_alias else f"{schema}.{parts[1]}"
            known = find_folded(snapshot, key)
            return key if known is None else known.name
        if len(parts) > 2 or parts[0] in self._covered:
            return None
        for schema in path if path != DEFAULT_PATH else (PUBLIC,):
            key = parts[0] if schema == PUBLIC else f"{schema}.{parts[0]}"
            if any(snapshot.find(kind, key) is not None for kind in RELATION_KINDS):
                return key
        return None

    def use(self, schema: str) -> None:
        """Does nothing. The search path alone determines the current schema, because the server has no databases for
        schemas."""

    def is_hidden(self, name: str) -> bool:
        """True if an unqualified name refers to a user's own object in Spark even though an rw_sql object has the same
        name."""
        return name in self._covered

    def is_temporary(self, name: str) -> bool:
        """True if a user's own object in Spark hides the rw_sql object with this name. In a session of Spark Connect,
        the user's object may also be a table."""
        return name in self._covered

    def has_users_database(self, name: str) -> bool:
        """True if the server has a database of this name."""
        return bool(self._spark.catalog.databaseExists(name))

    def _schema(self, front: Sequence[str], name: str) -> str | None:
        *catalog, database = (part.lower() for part in front or ("",))
        return database if catalog in _CATALOGS and database in self._schemas else None

    def _is_ours(self, front: Sequence[str], name: str) -> bool:
        if not front:
            return name not in self._covered
        schema = self._schema(front, name)
        if schema is not None:
            return len(front) == 1 or self._is_of_server(f"{schema}.{name}")
        *catalog, database = (part.lower() for part in front)
        return catalog in _CATALOGS and database == self.database.lower() and self._is_of_server(name)

    def _is_in(self, database: str) -> bool:
        return database == self.database and self._spark.catalog.currentDatabase() == database
