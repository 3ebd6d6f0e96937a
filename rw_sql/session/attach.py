"""The entry points ``connect`` and ``attach``, and the session whose ``spark.sql`` accepts rw_sql's statements."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rw_sql.errors import DELTA_MISSING, SqlError
from rw_sql.metastore import Metastore
from rw_sql.model.names import RELATION_KINDS, is_schema
from rw_sql.plan.result.confirmation import Question
from rw_sql.plan.statements.session.search_path import SEARCH_PATH
from rw_sql.runtime.control.dry_run import DryRun
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.owner import LOOK_SECONDS, Owner
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.observe.metrics import metrics_of, serve_metrics
from rw_sql.runtime.observe.waiting import StatementProgress, progress_of
from rw_sql.runtime.spark.frames import frame_of
from rw_sql.runtime.spark.interrupts import interruptible, watch
from rw_sql.runtime.spark.jar_cache import are_jars_ours, jar_settings, remember_jars
from rw_sql.runtime.spark.jvm import gateway, hadoop_configuration, java_packages
from rw_sql.runtime.spark.sessions import SparkSessions, leave_dead_jvm
from rw_sql.runtime.spark.spark_errors import readable_errors
from rw_sql.runtime.sql.catalog_views import SparkViews
from rw_sql.runtime.sql.session_names import SessionNames
from rw_sql.runtime.sql.source_scan import scanned, sources_in
from rw_sql.runtime.sql.spark_names import with_spark_names
from rw_sql.runtime.status.served import ServedWarehouse
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.faults import fault, know_jvm
from rw_sql.session.java import check_java, connect_session_refused
from rw_sql.session.location import warehouse_at
from rw_sql.session.shown_status import shown
from rw_sql.session.spark_settings import session_settings
from rw_sql.session.spark_sql import wrap_shell_sql, wrap_sql
from rw_sql.session.start_messages import without_start_messages
from rw_sql.session.store_settings import EXCLUDED, require_store, store_packages, store_settings
from rw_sql.syntax import could_be_ours, route
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import Name, Statement

logger = logging.getLogger(__name__)

METRICS_VARIABLE = "RW_SQL_METRICS"

_USE = re.compile(r"\s*USE\b", re.IGNORECASE)

_CATALOG_NAME = "rw_"
"""The prefix of the catalog's own tables."""

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
DELTA_OPTIONS = [
    "--packages",
    DELTA_PACKAGE,
    *(word for key, value in DELTA_SETTINGS.items() for word in ("--conf", f"{key}={value}")),
]
"""The options that ``pyspark`` and ``spark-submit`` need for Delta."""

__all__ = ["DELTA_OPTIONS", "Attached", "Question", "attach", "attached_to", "connect", "detach"]


class _Runtime:
    """One warehouse in this process, shared by the sessions attached to it."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, *, run_jobs: bool) -> None:
        metastore = Metastore.open(warehouse.uri)
        metastore.faults = fault
        self.context = Context(
            warehouse=warehouse,
            metastore=metastore,
            sessions=SparkSessions(spark, is_local=warehouse.is_local),
            owner=new_owner_name(),
        )
        know_jvm(self.context.sessions.jvm_pid)
        self.owner = Owner(self.context) if run_jobs else None
        self.executor = Executor(self.context, self.owner)
        self.users = 0
        self.serves_metrics = False
        self.views: list[SparkViews] = []
        if self.owner is not None:
            self.owner.start()

    def run_jobs(self) -> None:
        """Lets this process run the jobs from now on, if all sessions so far were attached with ``run_jobs=False``."""
        if self.owner is None:
            owner = Owner(self.context)
            owner.start()
            self.owner = owner
            self.executor.owner = owner

    def stop(self) -> None:
        """Stops the warehouse's jobs in this process and releases the lease. Nothing is written afterwards."""
        if self.owner is not None:
            self.owner.stop()
        self.context.metastore.flush(with_upkeep=True)


class Attached:
    """A Spark session that accepts rw_sql's statements, and their warehouse.

    ``ask`` is called with a :class:`Question` before an unsafe statement; it is None if there is nobody to ask.
    """

    def __init__(self, spark: SparkSession, runtime: _Runtime) -> None:
        self.spark = spark
        self._runtime = runtime
        self._state = SessionState(ask=_default_ask())
        self._next_look = 0.0
        self._seen = runtime.context.metastore.snapshot()
        self._views = SparkViews(runtime.context, spark)
        self._names = SessionNames(runtime.context.metastore, spark, self._views, lambda: self._state.search_path)
        runtime.views.append(self._views)
        self._views.refresh()

    @property
    def warehouse(self) -> str:
        """The warehouse's path or URI."""
        return self._runtime.context.warehouse.uri

    @property
    def is_owner(self) -> bool:
        """True if this process currently runs the warehouse's jobs."""
        owner = self._runtime.owner
        return owner is not None and owner.is_owner

    @property
    def is_alive(self) -> bool:
        """True if its Spark session still runs."""
        return self._runtime.context.sessions.is_alive()

    @property
    def why_ended(self) -> str | None:
        """The reason why this process has permanently stopped running the warehouse's jobs; None if it has not."""
        owner = self._runtime.owner
        return owner.why_ended if owner is not None else None

    @property
    def block_state(self) -> str | None:
        """``'open'`` or ``'aborted'`` inside a BEGIN UNSAFE block, None outside."""
        block = self._state.block
        return None if block is None else "aborted" if block.is_aborted else "open"

    def abort_block(self) -> None:
        """Aborts the block after an error. After that, only ROLLBACK ends the block."""
        if self._state.block is not None:
            self._state.block.is_aborted = True

    @property
    def ask(self) -> Callable[[Question], bool] | None:
        """The function that confirms unsafe statements."""
        return self._state.ask

    @ask.setter
    def ask(self, answer: Callable[[Question], bool] | None) -> None:
        self._state.ask = answer

    @property
    def on_progress(self) -> Callable[[BackfillProgress], None] | None:
        """The function that receives backfill progress while a statement waits for a view."""
        return self._state.on_progress

    @on_progress.setter
    def on_progress(self, tell: Callable[[BackfillProgress], None] | None) -> None:
        self._state.on_progress = tell

    def serve_metrics(self, where: str) -> int:
        """Serves the warehouse's Prometheus metrics at ``port`` (loopback only) or ``host:port``; returns the port.

        The server runs until the process ends. Raises SqlError INVALID_PARAMETER if the address is invalid or in use.
        """
        metrics = metrics_of(self._runtime.context)
        metrics.count_rows()
        return serve_metrics(metrics, where)

    def served(self) -> ServedWarehouse:
        """The data of the warehouse that ``rw-sql serve`` shows: status page, metrics and readiness."""
        return ServedWarehouse(self._runtime.context)

    def has_object(self, name: Name) -> bool:
        """True if an rw_sql object has this name."""
        return self._names.has_object(name)

    def has_parameter(self, name: str) -> bool:
        """True if an rw_sql session parameter has this name."""
        return self._names.has_parameter(name)

    def object_names(self) -> tuple[str, ...]:
        """The names of all tables, sources and views, for completion."""
        snapshot = catalog_of(self)
        return tuple(sorted({record.name for kind in RELATION_KINDS for record in snapshot.all(kind)}))

    def route(self, text: str) -> Statement | None:
        """The parsed statement if the text is an rw_sql statement; None if it is Spark's. Raises SqlError for an
        invalid rw_sql statement."""
        if not could_be_ours(text):
            return None
        try:
            self._views.refuse_other_kinds(text)
            return route(text, self._names)
        except SqlError as error:
            self.abort_block()
            raise error.located(text) from error.__cause__

    def run(self, text: str, statement: Statement) -> DataFrame:
        """Runs an rw_sql statement. Raises SqlError, located in ``text``."""
        try:
            with interruptible():
                if isinstance(statement, ast.UseSchema) and statement.name.last == self._views.database:
                    statement = replace(statement, name=replace(statement.name, parts=(PUBLIC,)))
                path = self._state.search_path
                table = self._runtime.executor.run(statement, self._state)
                self._views.refresh()
                self._seen = self._runtime.context.metastore.snapshot()
                if self._state.search_path != path or isinstance(statement, ast.UseSchema):
                    self._views.use(next((s for s in self._state.search_path if is_schema(self._seen, s)), PUBLIC))
                return frame_of(self.spark, table)
        except SqlError as error:
            raise error.located(text) from error.__cause__
        except (Py4JError, OSError):
            # Spark failed to produce the result; the statement itself has been committed, or was refused earlier.
            self._runtime.context.sessions.require_alive("what was asked of the catalog is done")
            raise
        finally:
            self._state.waiting.end()

    def dry_run(self) -> DryRun:
        """Explains statements one after the other, beginning with the current catalog and this session's parameters."""
        return DryRun(self._runtime.context, self._state.parameters)

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError, located in ``text``, if a Spark statement would change rw_sql's tables."""
        try:
            self._views.refuse_changes(text)
        except SqlError as error:
            raise error.located(text) from None

    def before_spark(self, text: str) -> None:
        """Call this before a Spark statement or a table name: it makes the rw_sql objects in the text readable.

        Looks for views created by other sessions at most every LOOK_SECONDS, so that plain Spark statements stay fast.
        """
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

    def read(self, text: str, read: Callable[[], DataFrame]) -> DataFrame:
        """Runs ``read`` for a Spark statement. Sources in the statement are read from their upstreams, once.

        Raises SqlError, located in ``text``, if a source cannot be read.
        """
        sources = sources_in(self._seen, text)
        try:
            with interruptible(), readable_errors(self.spark, text, self.object_names, partial(other_kinds, self)):
                found = read() if not sources else scanned(self._runtime.context, self.spark, sources, read, text)
            if _USE.match(text) and self.spark.catalog.currentDatabase() == self._views.database:
                # USE of the database with the views of public ends a search path, as USE of a schema sets one.
                self._state.parameters.pop(SEARCH_PATH, None)
        except SqlError as error:
            raise error.located(text) from error.__cause__
        return found


_lock = threading.RLock()
_runtimes: dict[str, _Runtime] = {}
_ATTRIBUTE = "_rw_sql_attached"


def connect(
    warehouse: str | None = None,
    *,
    run_jobs: bool = True,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Returns a Spark session with Delta that accepts rw_sql's statements: the running session, or a new one.

    ``warehouse`` is a path or URI (default: ``$RW_SQL_WAREHOUSE``, else ``./rw_warehouse``). ``master`` is Spark's
    (default: ``local[*]``), and ``config`` adds Spark settings. Both override ``spark-defaults.conf``, which overrides
    the defaults of rw_sql. With ``run_jobs=False`` this process only commits statements and never runs the
    jobs. Raises SqlError JAVA_MISSING if Java is missing or too old.
    """
    check_java()
    leave_dead_jvm()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    location = warehouse_at(warehouse)
    builder: Any = SparkSession.builder
    given = {**(config or {}), **({} if master is None else {"spark.master": master})}
    folder = str(Path(location.uri.removeprefix("file://")) / "spark") if location.is_local else None
    packages = ",".join((DELTA_PACKAGE, *store_packages(location.uri)))
    needed = {**DELTA_SETTINGS, **jar_settings(packages, given)}
    if packages != DELTA_PACKAGE:
        needed["spark.jars.excludes"] = EXCLUDED
    defaults = store_settings(location.uri, os.environ)
    for key, value in session_settings(needed, given, warehouse_dir=folder, defaults=defaults).items():
        builder = builder.config(key, value)
    with without_start_messages() if gateway() is None else nullcontext():
        spark: SparkSession = builder.getOrCreate()
    if "spark.jars.packages" in needed and are_jars_ours(given):
        remember_jars(packages, (spark.sparkContext.getConf().get("spark.jars") or "").split(","))
    if location.is_local:
        _leave_out_checksums(spark)
    attach(spark, location.uri, run_jobs=run_jobs)
    return spark


def _leave_out_checksums(spark: SparkSession) -> None:
    """Stops this JVM from writing a hidden ``.crc`` beside each local file. delta-rs writes none either.

    Without its native library, Hadoop starts a process for every file that it creates. That takes milliseconds for each
    of the eight files of a streaming batch, and half of them are ``.crc`` files.
    """
    java = java_packages(spark)
    files = java.org.apache.hadoop.fs.FileSystem.get(java.java.net.URI("file:///"), hadoop_configuration(spark))
    files.setWriteChecksum(False)


def attach(spark: SparkSession, warehouse: str | None = None, *, run_jobs: bool = True) -> Attached:
    """Extends an existing session: from now on ``spark.sql`` accepts rw_sql's statements.

    If no process runs the warehouse's jobs, this process runs them from now on, unless all of its sessions were
    attached with ``run_jobs=False``. Raises SqlError DELTA_MISSING, with the command line to use, if the session was
    built without Delta.
    """
    ended = attached_to(spark)
    if ended is not None:
        ended._runtime.context.sessions.require_alive()
    _require_delta(spark)
    location = warehouse_at(warehouse)
    require_store(spark, location.uri)
    with _lock:
        present = attached_to(spark)
        if present is not None:
            if present.warehouse == location.uri:
                if run_jobs:
                    present._runtime.run_jobs()
                return present
            detach(spark)
        runtime = _runtimes.get(location.uri)
        if runtime is not None and not runtime.context.sessions.is_alive():
            runtime.stop()
            runtime = None
        if runtime is None:
            runtime = _Runtime(spark, location, run_jobs=run_jobs)
            _runtimes[location.uri] = runtime
        elif run_jobs:
            runtime.run_jobs()
        runtime.users += 1
        attached = Attached(spark, runtime)
        where = os.environ.get(METRICS_VARIABLE)
        if where and not runtime.serves_metrics:
            runtime.serves_metrics = True
            attached.serve_metrics(where)
        setattr(spark, _ATTRIBUTE, attached)
        watch(spark)
        wrap_sql(attached_to, _with_schemas, status_shown)
        wrap_shell_sql(spark)
        return attached


def detach(spark: SparkSession) -> None:
    """Reverts :func:`attach`. Detaching a warehouse's last session stops its jobs; they keep their positions."""
    with _lock:
        attached = attached_to(spark)
        if attached is None:
            return
        delattr(attached.spark, _ATTRIBUTE)
        runtime = attached._runtime
        runtime.users -= 1
        runtime.views.remove(attached._views)
        is_shared = attached._views.database in {views.database for views in runtime.views}
        if attached.is_alive and not is_shared:
            attached._views.remove()
        if runtime.users == 0:
            if _runtimes.get(attached.warehouse) is runtime:
                del _runtimes[attached.warehouse]
            runtime.stop()


def _with_schemas(spark: SparkSession, text: str) -> str:
    """A text for Spark with names that Spark finds: see :mod:`rw_sql.runtime.sql.spark_names`."""
    attached = attached_to(spark)
    if attached is None:
        return text
    return with_spark_names(attached._seen, text, attached._state.search_path, attached._views)


@atexit.register
def _stop_all() -> None:
    with _lock:
        for runtime in list(_runtimes.values()):
            runtime.stop()
        _runtimes.clear()


def catalog_of(attached: Attached) -> Snapshot:
    """The present catalog of a session's warehouse."""
    return attached._runtime.context.metastore.snapshot()


def statement_progress(attached: Attached) -> StatementProgress:
    """The activity of a session's running statement, for a status line; another thread may call this."""
    return progress_of(attached._runtime.context, attached._state.waiting)


def status_shown(attached: Attached) -> AbstractContextManager[None]:
    """Shows the status of a session's statement while the block runs it, at a prompt or in a notebook."""
    return shown(attached, partial(statement_progress, attached))


def attached_to(spark: SparkSession) -> Attached | None:
    """The attachment of a session; None if it is not attached."""
    found = spark.__dict__.get(_ATTRIBUTE)
    return found if isinstance(found, Attached) else None


def _require_delta(spark: SparkSession) -> None:
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise connect_session_refused()
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if DELTA_SETTINGS["spark.sql.extensions"] in extensions:
        return
    command = " ".join(f'"{word}"' if "=" in word else word for word in DELTA_OPTIONS)
    raise SqlError(
        DELTA_MISSING,
        "this Spark session was built without Delta Lake, which cannot be added to a running one",
        hint=f"start it with: pyspark {command}  (or: rw-sql pyspark, or rw_sql.connect())",
    )


def _default_ask() -> Callable[[Question], bool] | None:
    """Asks the operator at an interactive Python prompt on a terminal; None elsewhere."""
    is_prompt = hasattr(sys, "ps1") and sys.stdin is not None and sys.stdin.isatty()
    return _ask_at_prompt if is_prompt else None


def _ask_at_prompt(question: Question) -> bool:
    print(question.preview)
    try:
        return input("Go ahead? Type yes: ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False


def other_kinds(attached: Attached) -> dict[str, str]:
    """The names of the sinks and connections, which no query reads, with their kinds."""
    snapshot = catalog_of(attached)
    return {record.name: kind for kind in ("connection", "sink") for record in snapshot.all(kind)}
