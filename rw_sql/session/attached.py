"""Defines an attached session: a Spark session with its warehouse, which routes statements to rw_sql or Spark."""

from __future__ import annotations

import logging
import re
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.object_lookup import RELATION_KINDS, is_schema
from rw_sql.plan.result.confirmation import Question
from rw_sql.plan.statements.session.search_path import SEARCH_PATH
from rw_sql.runtime.control.dry_run import DryRun
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.owner import LOOK_SECONDS, Owner
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.observe.metrics import metrics_of
from rw_sql.runtime.observe.metrics_server import serve_metrics
from rw_sql.runtime.observe.statement_progress import StatementProgress, progress_of
from rw_sql.runtime.remote.request_server import RequestServer
from rw_sql.runtime.spark.frames import frame_of
from rw_sql.runtime.spark.interrupts import StatementInterrupted, interruptible, shielded
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.spark.spark_errors import missing_relation, readable_errors
from rw_sql.runtime.sql.catalog_views import SparkViews
from rw_sql.runtime.sql.session_names import SessionNames
from rw_sql.runtime.sql.source_scan import scanned, sources_in
from rw_sql.runtime.sql.spark_names import with_spark_names
from rw_sql.runtime.status.served import ServedWarehouse
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.faults import fault, know_jvm
from rw_sql.runtime.support.store_errors import NOTHING_CHANGED, store_errors
from rw_sql.syntax import could_be_ours, route
from rw_sql.syntax import statements as ast
from rw_sql.syntax.dialect.bound_statement import bound_statement
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.parsing.script import unclosed_bracket, unclosed_quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from wsgiref.simple_server import WSGIServer

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import Name, Statement

logger = logging.getLogger(__name__)

_USE = re.compile(r"\s*USE\b", re.IGNORECASE)

_BLOCK = re.compile(rf"{BLANK}*+(?:BEGIN|EXECUTE)\b", re.IGNORECASE)
"""Matches statements of which a part may have run before Spark reports that a table is missing. Such a statement must
not be run again."""

TOOK_EFFECT = "the statement took effect"

_COMPLETE = "the statement itself is complete, but its result is not shown"

_CATALOG_NAME = "rw_"
"""The prefix of the names of the catalog's views. Before a Spark statement that contains this prefix runs, the
metastore writes its pending rows, and the statement can therefore read these rows."""


class AttachedRuntime(Protocol):
    """One open warehouse in this process. All sessions that are attached to the warehouse share this object."""

    context: Context
    users: int
    serves_metrics: bool
    servers: list[WSGIServer]
    views: list[SparkViews]

    @property
    def owner(self) -> Owner | None:
        """The :class:`Owner` of this process, which runs the jobs or waits to take them over; None if there is none."""
        ...

    def run(self, text: str, statement: Statement, state: SessionState) -> Table:
        """Runs ``statement``, which was parsed from ``text``, and returns the statement's rows."""
        ...

    def run_jobs(self) -> None:
        """Lets this process run the jobs from now on, if it has a JVM."""
        ...

    def stop(self) -> None:
        """Stops the warehouse's jobs in this process."""
        ...


class WarehouseRuntime:
    """One open warehouse in a process that has a JVM and can therefore run the warehouse's jobs."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, *, group: str = DEFAULT_GROUP) -> None:
        with store_errors(lambda _: None):
            metastore = Metastore.open(warehouse.uri)
        metastore.faults = fault
        self.context = Context(
            warehouse=warehouse,
            metastore=metastore,
            sessions=SparkSessions(spark, is_local=warehouse.is_local),
            owner=new_owner_name(warehouse),
            group=group,
        )
        know_jvm(self.context.sessions.jvm_pid)
        self.owner: Owner | None = None
        self.executor = Executor(self.context, None)
        self._requests: RequestServer | None = None
        self.users = 0
        self.serves_metrics = False
        self.servers: list[WSGIServer] = []
        self.views: list[SparkViews] = []

    def run(self, _text: str, statement: Statement, state: SessionState) -> Table:
        """Runs ``statement`` in this process and returns the statement's rows."""
        return self.executor.run(statement, state)

    def run_jobs(self) -> None:
        """Lets this process run the warehouse's jobs from now on, unless another process runs them. Only the first call
        has an effect."""
        if self.owner is None:
            owner = Owner(self.context)
            owner.start()
            self.owner = owner
            self.executor.owner = owner
            self._requests = RequestServer(self.context, self.executor.run)
            self._requests.start()

    def stop(self) -> None:
        """Stops the warehouse's jobs in this process and releases the lease. Afterwards, this process writes
        nothing."""
        for views in self.views:
            views.close()
        end_servers(self.servers)
        if self._requests is not None:
            self._requests.stop()
        if self.owner is not None:
            self.owner.stop()
        self.context.metastore.flush(with_upkeep=True)


class Attached:
    """A Spark session that is attached to a warehouse. The session accepts rw_sql's statements, which apply to this
    warehouse.

    The attribute ``ask`` is a function that is called with a :class:`Question` before each unsafe statement, and
    returns True to confirm the statement. ``ask`` is None if no user can answer.
    """

    def __init__(self, spark: SparkSession, runtime: AttachedRuntime) -> None:
        self.spark = spark
        self._runtime = runtime
        self._state = SessionState()
        self._has_own_ask = False
        self._next_look = 0.0
        self._seen = runtime.context.metastore.snapshot()
        self._views = self._make_views()
        self._names = SessionNames(runtime.context.metastore, spark, self._views, lambda: self._state.search_path)
        runtime.views.append(self._views)
        try:
            self._views.refresh()
        except BaseException:
            with shielded(), suppress(Py4JError, PySparkException):
                self._remove_views()
            raise

    def _make_views(self) -> SparkViews:
        return SparkViews(self._runtime.context, self.spark)

    def _remove_views(self) -> None:
        """Drops this session's Spark views of rw_sql's objects."""
        views = self._runtime.views
        self._views.close()
        if self._views in views:
            views.remove(self._views)
        if self.is_alive:
            self._views.remove(views)

    def _restore_views(self) -> None:
        """Creates the views again after :meth:`_remove_views`. A failure is logged as a warning and not raised, because
        the next statement tries again to create the views."""
        if self._views not in self._runtime.views:
            self._runtime.views.append(self._views)
        try:
            self._views.refresh()
            schema = self._current_schema()
            if schema != PUBLIC and self.spark.catalog.currentDatabase() == self._views.database:
                self._views.use(schema)
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException) as error:
            logger.warning("the catalog's views are not up to date: %s", cause_line(str(error)))

    def _current_schema(self) -> str:
        """The first existing schema of the search path; ``public`` if none of the schemas in the search path exists."""
        return next((s for s in self._state.search_path if is_schema(self._seen, s)), PUBLIC)

    def _frame(self, table: Table) -> DataFrame:
        return frame_of(self.spark, table)

    def for_spark(self, text: str) -> str:
        """Rewrites names in a Spark statement so that Spark can resolve them: see
        :mod:`rw_sql.runtime.sql.spark_names`."""
        return with_spark_names(self._seen, text, self._state.search_path, self._views)

    @property
    def warehouse(self) -> str:
        """The warehouse's path or URI."""
        return self._runtime.context.warehouse.uri

    @property
    def is_owner(self) -> bool:
        """True if this process runs the warehouse's jobs at present."""
        owner = self._runtime.owner
        return owner is not None and owner.is_owner

    @property
    def is_alive(self) -> bool:
        """True if Spark is still running."""
        return self._runtime.context.sessions.is_alive()

    def require_alive(self) -> None:
        """Raises SqlError SPARK_ENDED if Spark is not running any more."""
        self._runtime.context.sessions.require_alive()

    @property
    def why_ended(self) -> str | None:
        """The reason why this process has stopped running the jobs for good. None if this process still runs the jobs,
        or has never run them."""
        owner = self._runtime.owner
        return owner.why_ended if owner is not None else None

    @property
    def block_state(self) -> str | None:
        """The state of the session's BEGIN UNSAFE block, ``'open'`` or ``'aborted'``. None outside of a block."""
        block = self._state.block
        return None if block is None else "aborted" if block.is_aborted else "open"

    def abort_block(self) -> None:
        """Aborts the block, if there is one, after an error. Afterwards, COMMIT raises an error and ends the block;
        ROLLBACK ends the block without an error."""
        if self._state.block is not None:
            self._state.block.is_aborted = True

    @property
    def ask(self) -> Callable[[Question], bool] | None:
        """The function that confirms unsafe statements. By default, rw_sql asks at an interactive Python prompt."""
        return self._state.ask if self._has_own_ask else _default_ask()

    @ask.setter
    def ask(self, answer: Callable[[Question], bool] | None) -> None:
        self._state.ask, self._has_own_ask = answer, True

    @property
    def on_progress(self) -> Callable[[BackfillProgress], None] | None:
        """The function that receives the progress of a backfill while a statement waits for the backfill."""
        return self._state.on_progress

    @on_progress.setter
    def on_progress(self, tell: Callable[[BackfillProgress], None] | None) -> None:
        self._state.on_progress = tell

    def serve_metrics(self, where: str) -> int:
        """Starts an HTTP server for the warehouse's Prometheus metrics, and returns the server's port. ``where`` is
        either ``port``, for the loopback interface only, or ``host:port``.

        The server runs until the warehouse's last session is detached. Raises SqlError INVALID_PARAMETER if the address
        is invalid or in use.
        """
        metrics = metrics_of(self._runtime.context)
        self.served().count()
        server = serve_metrics(metrics, where)
        self._runtime.servers.append(server)
        return int(server.server_port)

    def served(self) -> ServedWarehouse:
        """The data that ``rw-sql serve`` publishes about the warehouse over HTTP: status, metrics and readiness."""
        return ServedWarehouse(self._runtime.context)

    def has_object(self, name: Name) -> bool:
        """True if this name refers to an rw_sql table, source or view that no object of the user hides."""
        return self._names.has_object(name)

    def has_parameter(self, name: str) -> bool:
        """True if an rw_sql session parameter with this name exists."""
        return self._names.has_parameter(name)

    def object_names(self) -> tuple[str, ...]:
        """The names of all tables, sources and views of rw_sql, from which a prompt completes names."""
        snapshot = catalog_of(self)
        return tuple(sorted({record.name for kind in RELATION_KINDS for record in snapshot.all(kind)}))

    def route(self, text: str) -> Statement | None:
        """Returns the parsed statement, or None if Spark must run the statement. Raises SqlError for an invalid
        statement of rw_sql."""
        if not could_be_ours(text):
            return None
        try:
            with self._store_errors():
                self._views.refuse_other_kinds(text)
                return route(text, self._names)
        except SqlError as error:
            self.abort_block()
            raise error.located(text) from error.__cause__

    def run(self, text: str, statement: Statement) -> DataFrame:
        """Runs ``statement``, which was parsed from ``text``. Raises SqlError with a position in ``text``."""
        try:
            with interruptible():
                if isinstance(statement, ast.UseSchema) and statement.name.last == self._views.database:
                    statement = replace(statement, name=replace(statement.name, parts=(PUBLIC,)))
                path = self._state.search_path
                table = self._run(text, statement)
                try:
                    self._show(is_moved=self._state.search_path != path or isinstance(statement, ast.UseSchema))
                    return self._frame(table)
                except KeyboardInterrupt:
                    raise StatementInterrupted(_COMPLETE) from None
                except (Py4JError, OSError):
                    self._runtime.context.sessions.require_alive(TOOK_EFFECT)
                    raise
        except SqlError as error:
            raise error.located(text) from error.__cause__
        finally:
            self._state.waiting.end()

    def _run(self, text: str, statement: Statement) -> Table:
        self._state.ask = self.ask
        try:
            with self._store_errors():
                return self._runtime.run(text, statement, self._state)
        except Py4JError:
            # A failure after the commit raises an SqlError, so this Py4JError occurred before the commit.
            self._runtime.context.sessions.require_alive(NOTHING_CHANGED)
            raise

    def _store_errors(self) -> AbstractContextManager[None]:
        """A context manager that converts errors of the store to SqlErrors with a message that nothing was changed."""
        return store_errors(self._runtime.context.sessions.require_alive)

    def _show(self, *, is_moved: bool) -> None:
        """After a statement, makes the session's views of rw_sql's objects match the catalog.

        ``is_moved`` is True if the statement changed the schemas in which unqualified names are looked up.

        A failure is logged as a warning and not raised, because the statement has already taken effect. The next
        statement tries again to update the views.
        """
        try:
            self._views.refresh()
            self._seen = self._runtime.context.metastore.snapshot()
            if is_moved:
                self._views.use(self._current_schema())
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException) as error:
            self._runtime.context.sessions.require_alive(TOOK_EFFECT)
            logger.warning("the catalog's views are not up to date: %s", cause_line(str(error)))

    def dry_run(self) -> DryRun:
        """Returns an object that explains the statements of a script without running them. The first statement is
        explained on the current catalog and with this session's parameters."""
        return DryRun(self._runtime.context, self._state.parameters)

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError, located in ``text``, if the Spark statement ``text`` would change an rw_sql object."""
        try:
            with self._store_errors():
                self._views.refuse_changes(text)
        except SqlError as error:
            raise error.located(text) from error.__cause__

    def before_spark(self, text: str) -> None:
        """Prepares the rw_sql objects to which ``text``, a Spark statement or a table name, may refer. Afterwards,
        Spark can read these objects.

        Must be called before Spark runs the statement. Also looks for objects that other sessions have created or
        dropped, but at most once in LOOK_SECONDS seconds.
        """
        with self._store_errors():
            self._views.before(text)
        metastore = self._runtime.context.metastore
        if _CATALOG_NAME in text.casefold():
            metastore.flush()
        else:
            metastore.flush_projections()  # A user's own Spark view may read the catalog.
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        # A plain Spark statement must work even if the catalog is unreachable.
        try:
            snapshot = self._runtime.context.metastore.snapshot()
            self._seen = snapshot
            if not self._views.is_current(snapshot.epoch):
                self._views.refresh()
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException) as error:
            logger.warning("the catalog's views are not up to date: %s", cause_line(str(error)))

    def read(
        self, text: str, read: Callable[[], DataFrame], args: Any = None, fields: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """Calls ``read``, which runs the Spark statement ``text``. If the statement reads sources, their upstreams are
        read once. If Spark reports that a view of rw_sql is missing because it was dropped, creates the view again and
        calls ``read`` again.

        ``args`` and ``fields`` are the arguments for the statement's parameters, which ``read`` passes to Spark. Raises
        SqlError, with a position in ``text``, if a source cannot be read.
        """
        parsed = bound_statement(text, args, fields).complete
        sources = sources_in(self._seen, parsed)
        if sources and (unclosed_quote(parsed) or unclosed_bracket(parsed)):
            sources = ()  # Spark refuses such a statement. The names that were found may be part of a comment.
        try:
            with (
                self._store_errors(),
                interruptible(),
                readable_errors(self.spark, text, partial(catalog_of, self)),
            ):
                if sources:
                    read = partial(scanned, self._runtime.context, self.spark, sources, read, parsed)
                try:
                    found = read()
                except AnalysisException as error:
                    parts = missing_relation(error)
                    if _BLOCK.match(text) or not parts or not self._views.restore(parts):
                        raise
                    found = read()
            if _USE.match(text) and self.spark.catalog.currentDatabase() == self._views.database:
                # USE with a schema of rw_sql sets the search path; USE with the database that contains the views of
                # the schema public resets it.
                self._state.parameters.pop(SEARCH_PATH, None)
        except SqlError as error:
            raise error.located(text) from error.__cause__
        return found


def end_servers(servers: list[WSGIServer]) -> None:
    """Stops the metrics servers. Afterwards, their ports are free for a session that is attached later."""
    while servers:
        server = servers.pop()
        server.shutdown()
        server.server_close()


def catalog_of(attached: Attached) -> Snapshot:
    """The current catalog of a session's warehouse."""
    context = attached._runtime.context
    with store_errors(context.sessions.require_alive):
        return context.metastore.snapshot()


@contextmanager
def asked_by(attached: Attached, answer: Callable[[Question], bool] | None) -> Iterator[None]:
    """A context manager that makes ``answer`` the session's ``ask`` function inside the ``with`` block."""
    before = attached._state.ask, attached._has_own_ask
    attached.ask = answer
    try:
        yield
    finally:
        attached._state.ask, attached._has_own_ask = before


def statement_progress(attached: Attached) -> StatementProgress:
    """The progress of the statement that a session is running, for a status line. May be called from any thread."""
    return progress_of(attached._runtime.context, attached._state.waiting)


def _default_ask() -> Callable[[Question], bool] | None:
    """Returns the function that is asked by default to confirm unsafe statements. At an interactive Python prompt on a
    terminal, this function asks the user. Elsewhere, the result is None.

    The function must be determined again for each statement: Python sets ``sys.ps1`` only after it has run the startup
    file, and the startup file may attach the session.
    """
    is_prompt = hasattr(sys, "ps1") and sys.stdin is not None and sys.stdin.isatty()
    return _ask_at_prompt if is_prompt else None


def _ask_at_prompt(question: Question) -> bool:
    print(question.preview)
    try:
        return input("Go ahead? Type yes: ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False
