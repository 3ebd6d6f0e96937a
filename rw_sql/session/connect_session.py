"""Implements a session of Spark Connect that accepts rw_sql's statements.

The process of such a session has no JVM. The session passes each rw_sql statement to the warehouse's owner through the
catalog (:mod:`rw_sql.runtime.remote.remote_executor`) and reads views and tables over Spark Connect. The process and
the Connect server both need access to the warehouse's files.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from rw_sql.errors import SPARK_ENDED, SqlError
from rw_sql.metastore import Metastore
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.runtime.spark.frames import arrow_of
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.sql.connect_views import ConnectViews, is_forgotten
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.store_errors import NOTHING_CHANGED, store_errors
from rw_sql.session.attached import TOOK_EFFECT, Attached, end_servers
from rw_sql.session.location import require_exists
from rw_sql.session.spark_sql import wrap_class, wrap_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from wsgiref.simple_server import WSGIServer

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.control.owner import Owner
    from rw_sql.runtime.control.session_state import SessionState
    from rw_sql.runtime.sql.catalog_views import SparkViews
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import Statement

MODULE = "pyspark.sql.connect"
"""The package that contains the classes of Spark Connect."""


def is_connect_session(spark: object) -> bool:
    """True if ``spark`` is a session of Spark Connect."""
    return type(spark).__module__.startswith(MODULE)


class ConnectRuntime:
    """A warehouse in a process without a JVM. The owner runs the statements of this process.

    This class neither creates nor migrates the warehouse. If the warehouse's path exists only on the owner's machine,
    creating the warehouse would make a second, empty warehouse on this machine. After a migration, an owner with an
    older version of rw_sql could not start again. Raises SqlError UNDEFINED_OBJECT if the warehouse does not exist, and
    NOT_SUPPORTED if it must be migrated first.
    """

    owner: Owner | None = None

    def __init__(self, warehouse: Warehouse) -> None:
        sessions = NoSpark()
        with store_errors(sessions.require_alive):
            require_exists(
                warehouse,
                "the client needs the path or URI at which the process that runs the jobs has the warehouse, and must "
                "reach the warehouse there",
            )
            metastore = Metastore.open(warehouse.uri, only_reads=True)
        self.context = Context(
            warehouse=warehouse, metastore=metastore, sessions=sessions, owner=new_owner_name(warehouse)
        )
        self._executor = RemoteExecutor(self.context)
        self.users = 0
        self.serves_metrics = False
        self.servers: list[WSGIServer] = []
        self.views: list[SparkViews] = []

    def run(self, text: str, statement: Statement, state: SessionState) -> Table:
        """Runs one statement and returns its rows."""
        return self._executor.run(text, statement, state)

    def run_jobs(self) -> None:
        """Does nothing, because a process without a JVM runs no jobs."""

    def stop(self) -> None:
        """Stops the metrics servers and writes the metastore's pending rows."""
        end_servers(self.servers)
        self.context.metastore.flush(with_upkeep=True)


class ConnectAttached(Attached):
    """A session of Spark Connect that accepts rw_sql's statements, attached to a warehouse."""

    _views: ConnectViews

    def _make_views(self) -> ConnectViews:
        return ConnectViews(self._runtime.context, self.spark)

    def route(self, text: str) -> Statement | None:
        """Returns the parsed statement, or None if the statement is for Spark. Raises SqlError for an invalid
        statement, and SPARK_ENDED if the server does not answer."""
        with self._server_errors(NOTHING_CHANGED):
            return super().route(text)

    def run(self, text: str, statement: Statement) -> DataFrame:
        """Runs an rw_sql statement. Raises SqlError, located in ``text``.

        Before the statement runs, the method checks that the server still has the session, because a server removes a
        session that is idle for an hour. Without the session, the statement's result could not be returned as a
        DataFrame.
        """
        with self._server_errors(NOTHING_CHANGED):
            self.spark.conf.get("spark.sql.session.timeZone")
        return super().run(text, statement)

    def _frame(self, table: Table) -> DataFrame:
        rows, schema = arrow_of(table)
        with self._server_errors(TOOK_EFFECT):
            if rows.num_columns == 0:
                return self.spark.createDataFrame([], "object STRING")
            if rows.num_rows == 0:  # PySpark reads no schema from an Arrow table without rows.
                return self.spark.createDataFrame([], schema)
            found: Any = self.spark.createDataFrame(rows)
            return found  # type: ignore[no-any-return]

    @contextmanager
    def _server_errors(self, done: str) -> Iterator[None]:
        """A context manager that raises errors of the Connect server as SqlError SPARK_ENDED. ``done`` is the part of
        the message that states which effects remain. If ``done`` states that nothing changed, an open BEGIN UNSAFE
        block is aborted."""
        try:
            yield
        except PySparkException as error:
            if done == NOTHING_CHANGED:
                self.abort_block()
            raise self._ended(error, done) from error

    @contextmanager
    def _forgotten(self) -> Iterator[None]:
        """A context manager that raises SqlError SPARK_ENDED if the server no longer has the session. Spark's other
        errors pass unchanged."""
        try:
            yield
        except PySparkException as error:
            if not is_forgotten(error):
                raise
            raise self._ended(error, NOTHING_CHANGED) from error

    def _ended(self, error: PySparkException, done: str) -> SqlError:
        return SqlError(
            SPARK_ENDED,
            f"the session of Spark Connect does not work any more ({cause_line(str(error))}); {done}",
            hint=f"spark = SparkSession.builder.remote('sc://…').create(); rw_sql.attach(spark, {self.warehouse!r})",
        )

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError, located in ``text``, if a Spark statement would change rw_sql's tables."""
        with self._forgotten():
            super().refuse_changes(text)

    def before_spark(self, text: str) -> None:
        """Prepares the rw_sql objects to which a Spark statement or a table name may refer, so that Spark can read
        them."""
        with self._forgotten():
            super().before_spark(text)

    def for_spark(self, text: str) -> str:
        """Returns the statement with each rw_sql object's name replaced by the name of this session's temporary view of
        the object."""
        with self._forgotten():
            return self._views.for_spark(self._seen, text, self._state.search_path)

    def read(
        self, text: str, read: Callable[[], DataFrame], args: Any = None, fields: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """Calls ``read``, which runs a Spark statement. Raises SqlError SPARK_ENDED if the server has forgotten the
        session."""
        with self._forgotten():
            return read()


def wrap_connect(
    attached_to: Callable[[SparkSession], Attached | None],
    for_spark: Callable[[SparkSession, str], str],
    shown: Callable[[Attached], AbstractContextManager[None]],
) -> None:
    """Makes the methods ``sql`` and ``table`` of Spark Connect's sessions accept rw_sql's statements and names."""
    from pyspark.sql.connect.readwriter import DataFrameReader
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    wrap_class(ConnectSession, attached_to, for_spark, shown)
    wrap_table(DataFrameReader, lambda reader: reader._client, attached_to, for_spark)
