"""Makes the catalog's objects readable by name in plain Spark SQL.

Spark SQL can read the ``rw_catalog`` views, a view of each table and materialized view, a view of each source's
undecodable records, and a view of each sink's rejected rows.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from rw_sql.errors import SqlError
from rw_sql.metastore.records import TableRecord
from rw_sql.model.object_lookup import ERRORS, REJECTED, SCHEMA_ALIAS, schema_of, spoken
from rw_sql.plan.checks.spark_changes import (
    catalog_refusal,
    change_refusal,
    companion_owner,
    companion_refusal,
    found_object,
    schema_refusal,
)
from rw_sql.runtime.spark import databases
from rw_sql.runtime.spark.databases import MARK, SPARK_CATALOG, delta_table
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.runtime.sql.failed_records import FailedRecordViews
from rw_sql.runtime.sql.late_views import LateViews
from rw_sql.runtime.sql.own_views import OwnTemporaryViews, is_plain
from rw_sql.runtime.sql.plain_paths import refuse_own_path
from rw_sql.runtime.sql.view_columns import has_columns, written_columns
from rw_sql.runtime.support.failures import cause_line
from rw_sql.syntax.dialect.spark_changes import DROP_DATABASE, changed_names
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted_for_spark, sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.syntax.dialect.spark_changes import Changed

logger = logging.getLogger(__name__)

CATALOG_DATABASE = "rw_catalog"
CACHE_CALL = "cacheTable"
"""The call of PySpark that caches a table."""

_OF_TABLES = ("DROP TABLE", "ALTER TABLE")
_changing = threading.RLock()
"""The lock that a thread holds while it creates, replaces or drops a view. The lock is needed because all sessions of
one Spark context share the databases in which these views are created."""

_shown: WeakKeyDictionary[SparkContext, str] = WeakKeyDictionary()
"""The URI of the warehouse that the ``rw_catalog`` views show. All sessions of a Spark context share these views."""


class SparkViews:
    """The Spark views of one attached warehouse, as one session creates them. Views of the schema ``public`` are in the
    database that was the session's current database when this object was made. Views of any other schema are in a
    database with the schema's name.

    The views are refreshed after each change to the catalog.
    """

    def __init__(self, context: Context, spark: SparkSession) -> None:
        self._context = context
        self._spark = spark
        self.database = databases.current_database(spark)
        self._epoch = -1
        self._known: dict[str, MaterializedViewRecord] = {}
        self._failed = FailedRecordViews(context, spark)
        self._own = OwnTemporaryViews(spark)
        self._schemas: dict[str, bool] = {}
        """Maps each schema other than ``public`` to True if the Spark database with the schema's name was made for the
        schema, and to False if this database belongs to the user."""
        self._hidden: dict[str, MaterializedViewRecord] = {}
        """The objects of the catalog whose Spark views are missing because a table or view of the user has the same
        name."""
        self._taken: set[str] = set()
        """The names of the objects and schemas of this warehouse that views or databases of another warehouse already
        use in this Spark context. Names of objects are in lower case. Names of schemas end with a dot: ``schema.``."""
        self._problems: dict[str, str] = {}
        self._late = LateViews(self._create)
        plain_sql(spark, f"CREATE DATABASE IF NOT EXISTS {SPARK_CATALOG}.{CATALOG_DATABASE}")

    def before(self, text: str) -> None:
        """Creates the missing views that ``text``, a statement or a table name, mentions. These may be ``rw_catalog``
        views, views ``<source>$errors`` and ``<sink>$rejected``, views that the background thread has not created yet,
        and views that an object of the user has hidden until now.

        ``rw_catalog`` views and views of failed records are created only when needed, because most sessions never use
        them. Creating all of them would take seconds, because Spark analyzes each view at its creation.
        """
        self._late.create_mentioned(text)
        folded = text.casefold().replace("``", "`")  # A backtick within a name is doubled.
        if self._hidden or not all(map(self._shows, self._schemas)):
            self._create_uncovered(folded)
        self._failed.show(folded)
        if CATALOG_DATABASE not in folded:
            return
        context, uri = self._spark.sparkContext, self._context.warehouse.uri
        with _changing:
            if _shown.get(context) == uri:
                return
            _shown.pop(context, None)  # After a failure, ``rw_catalog`` may contain some views of each warehouse.
            prefix = databases.delta_prefix(self._spark)
            for name, text in self._context.metastore.view_definitions():
                select = text.replace("delta.`", f"{prefix}`")
                plain_sql(self._spark, f"CREATE OR REPLACE VIEW {SPARK_CATALOG}.{CATALOG_DATABASE}.{name} AS {select}")
            _shown[context] = uri

    def restore(self, parts: Sequence[str]) -> bool:
        """If this warehouse has a view with this name and the view was dropped, creates the view again. Returns True if
        a view was created."""
        last = parts[-1].casefold()
        if CATALOG_DATABASE in map(str.casefold, parts[:-1]) and last in {
            name for name, _ in self._context.metastore.view_definitions()
        }:
            _shown.pop(self._spark.sparkContext, None)
            self.before(f"{CATALOG_DATABASE}.{last}")
            return True
        with self._late.lock:
            known = [name for name in self._known if last in (name.casefold(), name.rpartition(".")[2].casefold())]
            gone = [name for name in known if self._warehouse_of(name) is None]
            made = [name for name in gone if self._can(name, self._create, name, self._known[name])]
        return self._failed.restore(last) or bool(made)

    def _create_uncovered(self, text: str) -> None:
        """Creates the views and databases that ``text`` mentions and that the user's objects no longer hide."""
        with self._late.lock:
            for name in [name for name in self._hidden if name.rpartition(".")[2].casefold() in text]:
                self._can(name, self._create, name, self._hidden[name])
            hidden = [name for name in self._schemas if not self._shows(name) and name.casefold() in text]
            made = [name for name in hidden if self._make_database(name)]
            if made:
                self._refresh(self._context.metastore.snapshot())

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError, with the statement to use instead, if a Spark statement would change an rw_sql object.

        Changes to the user's own objects are allowed: these are the objects in other databases, and the objects in the
        session's database that hide objects of rw_sql.
        """
        for change in changed_names(text):
            self._refuse(change)

    def refuse_call(self, call: str, name: str) -> None:
        """Raises the errors of :meth:`refuse_changes` if ``call``, a method of PySpark that writes or caches the table
        ``name``, would change an rw_sql object."""
        is_cache = call == CACHE_CALL
        for change in changed_names(f"{'CACHE TABLE' if is_cache else 'INSERT INTO'} {name}"):
            try:
                self._refuse(change if is_cache else replace(change, verb=call))
            except SqlError as error:
                error.span = None  # The name is an argument, and not part of a statement.
                raise

    def _refuse(self, change: Changed) -> None:
        *front, name = change.parts
        database = front[-1].casefold() if front else ""
        if change.is_path:
            refuse_own_path(self._context, change)
        elif change.verb == DROP_DATABASE:
            if name.casefold() == CATALOG_DATABASE:
                raise catalog_refusal(change, CATALOG_DATABASE)
            if self._is_own_database(name.casefold()):
                raise schema_refusal(change, name.casefold())
        elif database == CATALOG_DATABASE or (not front and self._is_in(CATALOG_DATABASE)):
            if name.casefold() in {known for known, _ in self._context.metastore.view_definitions()}:
                raise catalog_refusal(change, f"{CATALOG_DATABASE}.{name.casefold()}")
        elif not front and self._is_companion(name):
            raise companion_refusal(change, name, companion_owner(self._context.metastore.snapshot(), name))
        else:
            record = found_object(self._context.metastore.snapshot(), self._key(front, name))
            refusal = None if record is None else change_refusal(change, record)
            if refusal is not None and self._is_ours(front, name):
                raise refusal

    def refuse_other_kinds(self, text: str) -> None:
        """Raises SqlError if DROP TABLE or ALTER TABLE names an rw_sql object that is not a table. (For its own tables,
        rw_sql runs these statements itself.)"""
        for change in changed_names(text):
            if change.verb in _OF_TABLES and not change.is_path:
                *front, name = change.parts
                record = found_object(self._context.metastore.snapshot(), self._key(front, name))
                if record is None or record.kind == "table":
                    continue
                refusal = change_refusal(change, record)
                if refusal is not None and self._is_ours(front, name):
                    raise refusal

    def _is_companion(self, name: str) -> bool:
        """True if a name is that of a view ``<source>$errors``, ``<table>$errors`` or ``<sink>$rejected`` of rw_sql."""
        folded = name.lower()
        if self._failed.has(folded):
            return True
        snapshot = self._context.metastore.snapshot()
        companions = {f"{source.name}{ERRORS}".lower() for source in snapshot.all("source")}
        companions |= {f"{sink.name}{REJECTED}".lower() for sink in snapshot.all("sink")}
        return folded in companions and not self._spark.catalog.tableExists(quoted_for_spark(name))

    def is_hidden(self, name: str) -> bool:
        """True if an unqualified name refers to a user's own object in Spark even though an rw_sql object has the
        same name.

        The user's object is a temporary view, or a table or view in the session's current database.
        """
        if self.is_temporary(name):
            return True
        if self._own.has(name):
            return False
        return not self._is_in(self.database) and bool(self._spark.catalog.tableExists(quoted_for_spark(name)))

    def _key(self, front: Sequence[str], name: str) -> str:
        """Converts the parts of a name in a Spark statement (``front`` and ``name``) to a name in the catalog."""
        schema = self._schema(front, name)
        return name if schema is None else f"{schema}.{name}"

    def _schema(self, front: Sequence[str], name: str) -> str | None:
        """The schema in whose database Spark looks up a name. None if Spark looks up the name in the database of
        ``public``, or in a database that belongs to no schema of this warehouse."""
        if not self._schemas:
            return None
        if front:
            catalog, database = ([SPARK_CATALOG] + [part.casefold() for part in front])[-2:]
            if len(front) > 2 or catalog != SPARK_CATALOG:
                return None
        else:
            database = self._spark.catalog.currentDatabase()
            if database not in self._schemas or not self._is_in(database) or self.is_temporary(name):
                return None
        return database if self._shows(database) else None

    def _is_own_database(self, name: str) -> bool:
        return self._schemas.get(name, False)

    def _shows(self, schema: str) -> bool:
        """False if this warehouse does not have the schema, or if a database of the user hides the schema."""
        return self._is_own_database(schema) or f"{schema}." in self._taken

    def warehouse_database(self, schema: str) -> str:
        """The Spark database of a schema."""
        return self.database if schema == PUBLIC else schema

    def has_users_database(self, name: str) -> bool:
        """True if Spark has a database of this name that was not made for a schema of this warehouse."""
        return databases.warehouse_of_database(self._spark, name) not in (None, self._context.warehouse.uri)

    def use(self, schema: str) -> None:
        """Makes a schema's database the session's current database."""
        plain_sql(self._spark, f"USE {SPARK_CATALOG}.{quoted_for_spark(self.warehouse_database(schema))}")

    def _is_ours(self, front: Sequence[str], name: str) -> bool:
        """True if a name in a Spark statement refers to an rw_sql object."""
        if self._schema(front, name) is not None:
            return self._warehouse_of(self._key(front, name)) in (None, self._context.warehouse.uri)
        is_alias = [part.casefold() for part in front] == [SCHEMA_ALIAS]
        if is_alias and not self._spark.catalog.databaseExists(f"{SPARK_CATALOG}.{SCHEMA_ALIAS}"):
            return True
        if front:
            catalog, database = ([SPARK_CATALOG] + [part.casefold() for part in front])[-2:]
            if len(front) > 2 or catalog != SPARK_CATALOG or database != self.database.casefold():
                return False
        elif self._own.has(name):
            return True
        elif self.is_temporary(name) or not self._is_in(self.database):
            return False
        return self._warehouse_of(name) in (None, self._context.warehouse.uri)

    def _is_in(self, database: str) -> bool:
        catalog = self._spark.catalog
        return catalog.currentDatabase() == database and catalog.currentCatalog() == SPARK_CATALOG

    def is_temporary(self, name: str) -> bool:
        """True if the user has a temporary view with this name."""
        return self._own.is_users(name)

    @property
    def has_odd(self) -> bool:
        """True if :meth:`is_odd` is true for at least one object."""
        return bool(self._own)

    @property
    def has_taken(self) -> bool:
        """True if :meth:`is_odd` is true for an object because another warehouse uses the object's name."""
        return bool(self._taken)

    def is_odd(self, name: str) -> bool:
        """True if this object of the catalog is a temporary view in Spark. The name of the temporary view includes the
        schema.

        Spark accepts only ASCII letters, digits and ``_`` in the names of tables and of views that are not temporary.
        If a view or database of another warehouse already uses the name, this warehouse's view is temporary. In the
        sessions of the other warehouse, the name therefore still refers to that warehouse's view.
        """
        schema, dot, last = name.partition(".")
        if not dot or schema not in self._schemas:
            schema, last = "", name
        return f"{schema}." in self._taken or name.lower() in self._taken or not is_plain(last)

    def _wanted(self, snapshot: Snapshot) -> dict[str, MaterializedViewRecord]:
        """The views and tables of the catalog that Spark must show, by name.

        In a warehouse that an older version of rw_sql has written, the names of two objects may differ only in upper
        and lower case. Spark does not distinguish these names. Therefore, the result contains only the older of the two
        objects.
        """
        found: dict[str, MaterializedViewRecord] = {}
        shown: dict[str, str] = {}
        for view in sorted(snapshot.kept, key=lambda view: view.id):
            first = shown.setdefault(view.name.lower(), view.name)
            if first == view.name:
                found[view.name] = view
            elif self._problems.get(view.name) != first:
                self._problems[view.name] = first
                words = spoken(view.kind).upper()
                logger.warning(
                    '"%s" hides "%s" in Spark, which does not distinguish upper and lower case; to read the hidden '
                    "one: ALTER %s %s RENAME TO a_name",
                    *(first, view.name, words, sql_name(view.name)),
                )
        return found

    def is_current(self, epoch: int) -> bool:
        """True if the session's views match this epoch of the catalog."""
        return epoch == self._epoch

    def refresh(self) -> None:
        """Creates, replaces and drops views to match the latest epoch. Does nothing if the views already match.

        A view whose table does not exist yet is created at a later refresh. If more than AT_ONCE views must be created,
        a background thread creates them.
        """
        snapshot = self._context.metastore.snapshot()
        if not self.is_current(snapshot.epoch):
            with self._late.lock:
                self._refresh(snapshot)

    def _refresh(self, snapshot: Snapshot) -> None:
        self._failed.refresh(snapshot)
        wanted = self._wanted(snapshot)
        for name in [name for name in self._known if name not in wanted]:
            self._drop(name)
        self._refresh_schemas(snapshot)
        wanted = {name: view for name, view in wanted.items() if self._has_database(snapshot, name)}
        due = {name: view for name, view in wanted.items() if self._known.get(name) != view}
        ready = {name: view for name, view in due.items() if self._can(name, self._is_ready, view)}
        for name, view in self._late.take(ready).items():
            self._can(name, self._create, name, view)
        if all(self._known.get(name) == view for name, view in wanted.items()):
            self._epoch = snapshot.epoch

    def _can(self, name: str, step: Callable[..., object], *arguments: object) -> bool:
        """Runs ``step``, a part of the creation of the view ``name``. Returns False if the step returns False or raises
        an error of Spark or Delta. The error is logged and not raised, because a table that cannot be read must affect
        only its own view."""
        try:
            is_done = step(*arguments) is not False
        except (DeltaError, PySparkException, Py4JJavaError) as error:
            if (problem := cause_line(str(error))) != self._problems.get(name):
                self._problems[name] = problem
                logger.warning("the Spark view of %s cannot be created: %s", name, problem)
            return False
        if is_done:
            self._problems.pop(name, None)
        return is_done

    def _has_database(self, snapshot: Snapshot, name: str) -> bool:
        """False if an object's schema has no Spark database, because the user has a database of its name."""
        schema = schema_of(snapshot, name)
        return schema == PUBLIC or self._shows(schema)

    def _is_ready(self, view: MaterializedViewRecord) -> bool:
        """True if the object's job has created its table with all columns. The Spark view can then be created."""
        path = self._context.warehouse.data(view.id, view.generation)
        if not self._context.warehouse.list_names(f"{path}/_delta_log"):
            return False
        return not isinstance(view, TableRecord) or has_columns(path, view)

    def _create(self, name: str, view: MaterializedViewRecord) -> None:
        """Creates or replaces one view, unless a table or view of the user has the same name."""
        path, uri = self._context.warehouse.data(view.id, view.generation), self._context.warehouse.uri
        select = f"AS SELECT {written_columns(view)} FROM {delta_table(self._spark, path)}"
        with _changing:
            present = self._warehouse_of(name)
            if present not in (None, "", uri):
                self._taken.add(name.lower())
                present = self._warehouse_of(name)
            if present == "":
                if name not in self._hidden:
                    away = f"ALTER TABLE {self._qualified(name)} RENAME TO …"
                    if self.is_odd(name):
                        away = f"ALTER VIEW {quoted_for_spark(name)} RENAME TO …"
                    logger.warning(
                        "a table or view of your own hides materialized view %s; to read the view, rename yours: %s",
                        *(name, away),
                    )
                self._hidden[name] = view
            elif self.is_odd(name):
                self._own.make(name, select)
            elif present == uri:
                # CREATE OR REPLACE VIEW drops the view before it creates the view again. In between, a query would not
                # find the view.
                plain_sql(self._spark, f"ALTER VIEW {self._qualified(name)} {select}")
            else:
                mark = f"TBLPROPERTIES ('{MARK}' = '{_quoted(uri)}')"
                plain_sql(self._spark, f"CREATE OR REPLACE VIEW {self._qualified(name)} {mark} {select}")
        if present != "":
            self._hidden.pop(name, None)
        self._known[name] = view

    def _refresh_schemas(self, snapshot: Snapshot) -> None:
        """Creates the databases of new schemas, and drops the databases of dropped schemas."""
        wanted = [record.name for record in snapshot.all("schema")]
        uri = self._context.warehouse.uri
        for name in [name for name in self._schemas if name not in wanted]:
            self._taken.discard(f"{name}.")
            if self._schemas.pop(name):
                if self._is_in(name):
                    self.use(PUBLIC)
                databases.drop_database(self._spark, name, uri)
        for name in wanted:
            if name not in self._schemas and not self._make_database(name) and not self._shows(name):
                logger.warning(
                    "a database of your own hides schema %s; drop it to read the objects of the schema", name
                )

    def _make_database(self, name: str) -> bool:
        """Creates the database of a schema. Returns False if a database of the user has the schema's name."""
        uri = self._context.warehouse.uri
        self._schemas[name] = databases.make_database(self._spark, name, uri)
        if databases.warehouse_of_database(self._spark, name) not in ("", uri):
            self._taken.add(f"{name}.")
        return self._schemas[name]

    def remove(self, others: Sequence[SparkViews] = ()) -> None:
        """Drops the views of this warehouse; :meth:`refresh` creates them again. Keeps ``rw_catalog``, the user's own
        objects, and the views of ``others``, the other sessions of the warehouse."""
        self.close()
        self._epoch = -1
        self._failed.drop()
        for name in [name for name in self._known if self.is_odd(name)]:  # Temporary views belong to this session.
            self._drop(name)
        if any(views.database == self.database for views in others):
            return
        for name in list(self._known):
            if not others or name.partition(".")[0] not in self._schemas:
                self._drop(name)
        if others:
            return  # Databases of schemas belong to all sessions.
        for name in [name for name, is_own in self._schemas.items() if is_own]:
            if self._is_in(name):
                self.use(PUBLIC)
            databases.drop_database(self._spark, name, self._context.warehouse.uri)
        self._schemas.clear()
        self._taken.clear()

    def close(self) -> None:
        """Ends the background thread that creates views."""
        self._late.close()

    def _drop(self, name: str) -> None:
        del self._known[name]
        self._hidden.pop(name, None)
        with _changing:
            if self.is_odd(name):
                self._own.drop(name)
            elif self._warehouse_of(name) == self._context.warehouse.uri:
                plain_sql(self._spark, f"DROP VIEW IF EXISTS {self._qualified(name)}")
            self._taken.discard(name.lower())

    def _warehouse_of(self, name: str) -> str | None:
        """Returns the URI of the warehouse to which the view with this name belongs; empty if the view or table with
        this name belongs to the user; None if no view or table has this name.

        The result is not cached, because the user may replace the view at any time.
        """
        if self.is_odd(name):
            return "" if self._own.is_users(name) else self._context.warehouse.uri if self._own.has(name) else None
        return databases.warehouse_of_view(self._spark, self._qualified(name))

    def _qualified(self, name: str) -> str:
        schema, dot, last = name.partition(".")
        parts = (schema, last) if dot and schema in self._schemas else (self.database, name)
        return ".".join((SPARK_CATALOG, *map(quoted_for_spark, parts)))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
