"""A session of Spark Connect that accepts rw_sql's statements.

The process has no JVM. The process passes each statement to the owner through the catalog
(:mod:`rw_sql.runtime.remote.remote_executor`) and reads views and tables over Connect. The process and the Connect
server both need access to the warehouse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.metastore import Metastore
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.runtime.spark.frames import arrow_of
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.sql.connect_views import ConnectViews
from rw_sql.runtime.support.store_errors import store_errors
from rw_sql.session.attached import Attached, end_servers
from rw_sql.session.spark_sql import wrap_class, wrap_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
"""The package of the classes of Spark Connect."""


def is_connect_session(spark: object) -> bool:
    """True for a session of Spark Connect."""
    return type(spark).__module__.startswith(MODULE)


class ConnectRuntime:
    """A warehouse in a process without a JVM: the owner runs its statements."""

    owner: Owner | None = None

    def __init__(self, warehouse: Warehouse) -> None:
        sessions = NoSpark()
        with store_errors(sessions.require_alive):
            metastore = Metastore.open(warehouse.uri)
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
        """Does nothing: a process without a JVM runs no jobs."""

    def stop(self) -> None:
        """Stops the metrics servers and writes the metastore's pending rows."""
        end_servers(self.servers)
        self.context.metastore.flush(with_upkeep=True)


class ConnectAttached(Attached):
    """A session of Spark Connect that accepts rw_sql's statements, attached to a warehouse."""

    _views: ConnectViews

    def _make_views(self) -> ConnectViews:
        return ConnectViews(self._runtime.context, self.spark)

    def _frame(self, table: Table) -> DataFrame:
        rows, _ = arrow_of(table)
        if rows.num_columns == 0:
            return self.spark.createDataFrame([], "object STRING")
        found: Any = self.spark.createDataFrame(rows)
        return found  # type: ignore[no-any-return]

    def for_spark(self, text: str) -> str:
        """The text, in which the names of this session's temporary views replace the names of objects."""
        return self._views.for_spark(self._seen, text, self._state.search_path)

    def read(
        self, text: str, read: Callable[[], DataFrame], args: Any = None, fields: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """Calls ``read``, which runs a Spark statement."""
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
