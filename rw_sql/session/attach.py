"""The way in: ``connect``, ``attach``, and the ``spark.sql`` that takes our statements."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rw_sql.errors import DELTA_MISSING, SqlError
from rw_sql.metastore import Metastore
from rw_sql.model.names import RELATION_KINDS, object_name
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.result.confirmation import Question
from rw_sql.runtime.control.executor import Executor, SessionState
from rw_sql.runtime.control.owner import LOOK_SECONDS, Owner
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import new_owner_name
from rw_sql.runtime.observe.metrics import metrics_of, serve_metrics
from rw_sql.runtime.spark.frames import frame_of
from rw_sql.runtime.spark.interrupts import interruptible, watch
from rw_sql.runtime.spark.jar_cache import are_jars_ours, jar_settings, remember_jars
from rw_sql.runtime.spark.sessions import SparkSessions, leave_dead_jvm
from rw_sql.runtime.spark.spark_errors import readable_errors
from rw_sql.runtime.sql.catalog_views import SparkViews
from rw_sql.runtime.sql.source_scan import scanned, sources_in
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.faults import fault, know_jvm
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.session.java import check_java, connect_session_refused
from rw_sql.session.spark_sql import wrap_shell_sql, wrap_sql
from rw_sql.syntax import could_be_ours, route, split_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.syntax.parsing.script import ScriptStatement
    from rw_sql.syntax.statements import Name, Statement

logger = logging.getLogger(__name__)

WAREHOUSE_VARIABLE = "RW_SQL_WAREHOUSE"
METRICS_VARIABLE = "RW_SQL_METRICS"
DEFAULT_WAREHOUSE = "./rw_warehouse"

_CATALOG_NAME = "rw_"
"""What the names of the catalog's own tables begin with."""

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
"""What the ``pyspark`` and ``spark-submit`` command lines need for Delta."""

__all__ = ["DELTA_OPTIONS", "Attached", "Question", "StatementText", "attach", "connect", "detach", "run_script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """One statement of a script and where it stands; ``line`` and ``column`` are 1-based."""

    text: str
    line: int
    column: int


class _Runtime:
    """One warehouse in this process: shared by the sessions attached to it."""

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
        """Lets this process run the jobs from now on, where a session attached without that before."""
        if self.owner is None:
            owner = Owner(self.context)
            owner.start()
            self.owner = owner
            self.executor.owner = owner

    def stop(self) -> None:
        """Stops the warehouse's jobs in this process and gives the lease back; nothing of it writes afterwards."""
        if self.owner is not None:
            self.owner.stop()
        self.context.metastore.settle(with_upkeep=True)


class Attached:
    """A Spark session that takes our statements, and the warehouse they speak of.

    ``ask`` is called with a :class:`Question` before an unsafe statement; None where nobody can answer.
    """

    def __init__(self, spark: SparkSession, runtime: _Runtime) -> None:
        self.spark = spark
        self._runtime = runtime
        self._state = SessionState(ask=_default_ask())
        self._next_look = 0.0
        self._seen = runtime.context.metastore.snapshot()
        self._views = SparkViews(runtime.context, spark)
        runtime.views.append(self._views)
        self._views.refresh()

    @property
    def warehouse(self) -> str:
        """The warehouse's path or URI."""
        return self._runtime.context.warehouse.uri

    @property
    def is_owner(self) -> bool:
        """Whether this process runs the warehouse's jobs now."""
        owner = self._runtime.owner
        return owner is not None and owner.is_owner

    @property
    def is_alive(self) -> bool:
        """Whether its Spark still runs."""
        return self._runtime.context.sessions.is_alive()

    @property
    def why_ended(self) -> str | None:
        """Why this process will not run the warehouse's jobs any more; None while it does, or stands by for it."""
        owner = self._runtime.owner
        return owner.why_ended if owner is not None else None

    @property
    def block_state(self) -> str | None:
        """``'open'`` or ``'aborted'`` inside of a BEGIN UNSAFE block, None outside of one."""
        block = self._state.block
        return None if block is None else "aborted" if block.is_aborted else "open"

    def abort_block(self) -> None:
        """After an error inside of a block nothing but ROLLBACK ends it."""
        if self._state.block is not None:
            self._state.block.is_aborted = True

    @property
    def ask(self) -> Callable[[Question], bool] | None:
        """Who answers before an unsafe statement."""
        return self._state.ask

    @ask.setter
    def ask(self, answer: Callable[[Question], bool] | None) -> None:
        self._state.ask = answer

    @property
    def on_progress(self) -> Callable[[BackfillProgress], None] | None:
        """Who is told how far a view has come, while a statement waits until it is made."""
        return self._state.on_progress

    @on_progress.setter
    def on_progress(self, tell: Callable[[BackfillProgress], None] | None) -> None:
        self._state.on_progress = tell

    def serve_metrics(self, where: str) -> int:
        """Serves the warehouse's figures to Prometheus at ``port`` (of the loopback) or ``host:port``; the port.

        It goes on for as long as the process lives. Raises SqlError INVALID_PARAMETER where it cannot be.
        """
        metrics = metrics_of(self._runtime.context)
        metrics.samples()
        return serve_metrics(metrics, where)

    def has_object(self, name: Name) -> bool:
        """Whether an object of ours has this name."""
        try:
            last = object_name(name)
        except SqlError:
            return False
        snapshot = self._runtime.context.metastore.snapshot()
        if all(snapshot.find(kind, last) is None for kind in RELATION_KINDS):
            return False
        return name.schema is not None or not self._views.is_hidden(last)

    def has_parameter(self, name: str) -> bool:
        """Whether a session parameter of ours has this name."""
        return name in SESSION_PARAMETERS

    def object_names(self) -> tuple[str, ...]:
        """The names of all tables, sources and views, for completion."""
        snapshot = self._runtime.context.metastore.snapshot()
        return tuple(sorted({record.name for kind in RELATION_KINDS for record in snapshot.all(kind)}))

    def route(self, text: str) -> Statement | None:
        """The statement if it is one of ours, None if it is Spark's. Raises SqlError if it is ours and wrong."""
        if not could_be_ours(text):
            return None
        try:
            self._views.refuse_other_kinds(text)
            return route(text, self)
        except SqlError as error:
            self.abort_block()
            raise error.located(text) from error.__cause__

    def run(self, text: str, statement: Statement) -> DataFrame:
        """Runs one of our statements. Raises SqlError, located in ``text``."""
        try:
            with interruptible():
                table = self._runtime.executor.run(statement, self._state)
                self._views.refresh()
                self._seen = self._runtime.context.metastore.snapshot()
                return frame_of(self.spark, table)
        except SqlError as error:
            raise error.located(text) from error.__cause__
        except (Py4JError, OSError):
            # Spark's side of the answer failed; what the statement does is committed, or refused before.
            self._runtime.context.sessions.require_alive("what was asked of the catalog is done")
            raise

    def refuse_changes(self, text: str) -> None:
        """Raises SqlError, located in ``text``, where a statement of Spark's would change what is ours."""
        try:
            self._views.refuse_changes(text)
        except SqlError as error:
            raise error.located(text) from None

    def before_spark(self, text: str) -> None:
        """Called before a statement or table name that is Spark's: what it may speak of of ours becomes readable.

        Looks for views that other sessions made every LOOK_SECONDS at most, so that plain statements stay as fast as
        they were.
        """
        self._views.before(text)
        metastore = self._runtime.context.metastore
        if _CATALOG_NAME in text.casefold():
            metastore.settle()
        else:
            metastore.settle_projections()  # a view of the user's may speak of the catalog
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        # A plain statement is Spark's and needs no catalog of ours, wherever that has gone.
        try:
            snapshot = self._runtime.context.metastore.snapshot()
            self._seen = snapshot
            if not self._views.is_current(snapshot.epoch):
                self._views.refresh()
        except (SqlError, OSError, DeltaError, Py4JError, PySparkException) as error:
            logger.warning("the catalog's views are not up to date: %s", cause_line(str(error)))

    def read(self, text: str, read: Callable[[], DataFrame]) -> DataFrame:
        """What ``read`` makes of a statement that is Spark's; sources of ours that it names are read upstream, once.

        Raises SqlError, located in ``text``, where one of them cannot be.
        """
        sources = sources_in(self._seen, text)
        try:
            with interruptible(), readable_errors(self.spark, text, self.object_names):
                return read() if not sources else scanned(self._runtime.context, self.spark, sources, read, text)
        except SqlError as error:
            raise error.located(text) from error.__cause__


_lock = threading.RLock()
_runtimes: dict[str, _Runtime] = {}
_ATTRIBUTE = "_rw_sql_attached"


def connect(
    warehouse: str | None = None, *, run_jobs: bool = True, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session with Delta that takes our statements; the running one if there is one.

    ``warehouse`` is a path or URI (default: ``$RW_SQL_WAREHOUSE``, else ``./rw_warehouse``). ``config`` adds Spark
    settings. With ``run_jobs=False`` this process never runs the jobs, only states what it wants.
    Raises SqlError JAVA_MISSING where Java is missing or too old.
    """
    check_java()
    leave_dead_jvm()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    location = Warehouse.at(warehouse or _default_warehouse())
    builder: Any = SparkSession.builder
    settings = {
        "spark.app.name": "rw_sql",
        **DELTA_SETTINGS,
        "spark.scheduler.mode": "FAIR",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Delta's and Spark's defaults are made for clusters: 50 and 200 tasks, seconds a query on one machine.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "8",
        # Each view has some dozens of generated classes: where they do not fit, each batch compiles them anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # A stream makes several of each a second, each with its plan as a text: a thousand fill the heap.
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
    }
    if location.is_local:
        settings["spark.sql.warehouse.dir"] = str(Path(location.uri.removeprefix("file://")) / "spark")
    if "MASTER" not in os.environ:
        settings["spark.master"] = "local[*]"
    settings |= jar_settings(DELTA_PACKAGE, config or {})
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if "spark.jars.packages" in settings and are_jars_ours(config or {}):
        remember_jars(DELTA_PACKAGE, (spark.sparkContext.getConf().get("spark.jars") or "").split(","))
    if location.is_local:
        _leave_out_checksums(spark)
    attach(spark, location.uri, run_jobs=run_jobs)
    return spark


def _leave_out_checksums(spark: SparkSession) -> None:
    """Lets this JVM write local files without a hidden ``.crc`` beside each: what delta-rs writes has none either.

    Without its native library Hadoop runs a process for every file that it makes, milliseconds each, eight for a batch
    of a stream: half of them for these.
    """
    session: Any = spark
    java = session._jvm
    files = java.org.apache.hadoop.fs.FileSystem.get(java.java.net.URI("file:///"), session._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _default_warehouse() -> str:
    return os.environ.get(WAREHOUSE_VARIABLE, DEFAULT_WAREHOUSE)


def attach(spark: SparkSession, warehouse: str | None = None, *, run_jobs: bool = True) -> Attached:
    """Teaches an existing session our statements: from now on ``spark.sql`` takes them.

    Where nobody runs the jobs of the warehouse, this process does from now on, unless every session of the process was
    attached with ``run_jobs=False``.
    Raises SqlError DELTA_MISSING with the command line to use, where the session was built without Delta.
    """
    ended = _attached_to(spark)
    if ended is not None:
        ended._runtime.context.sessions.require_alive()
    _require_delta(spark)
    location = Warehouse.at(warehouse or _default_warehouse())
    with _lock:
        present = _attached_to(spark)
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
        wrap_sql(_attached_to)
        wrap_shell_sql(spark)
        return attached


def detach(spark: SparkSession) -> None:
    """Takes our statements from a session again. A warehouse's last session stops its jobs; they keep their place."""
    with _lock:
        attached = _attached_to(spark)
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


@atexit.register
def _stop_all() -> None:
    with _lock:
        for runtime in list(_runtimes.values()):
            runtime.stop()
        _runtimes.clear()


def _attached_to(spark: SparkSession) -> Attached | None:
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
    """At an interactive Python prompt on a terminal the operator is asked; elsewhere nobody can be."""
    is_prompt = hasattr(sys, "ps1") and sys.stdin is not None and sys.stdin.isatty()
    return _ask_at_prompt if is_prompt else None


def _ask_at_prompt(question: Question) -> bool:
    print(question.preview)
    try:
        return input("Go ahead? Type yes: ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False


def run_script(
    spark: SparkSession,
    text: str,
    file: str | None = None,
    *,
    answer: Callable[[Question], bool] | None = None,
    on_result: Callable[[StatementText, DataFrame | None], None] | None = None,
    on_progress: Callable[[BackfillProgress], None] | None = None,
) -> None:
    """Runs a script's statements one by one, ours and Spark's, until the first error.

    ``answer`` is who says yes to unsafe statements (None: nobody). ``on_result`` gets every statement with its rows,
    ``on_progress`` how far a view has come that a statement waits for.
    Raises SqlError located in the script (file, line, column); the statements before it stay done.
    """
    attached = _attached_to(spark)
    if attached is None:
        attached = attach(spark)
    before, attached.ask = attached.ask, answer
    told, attached.on_progress = attached.on_progress, on_progress
    try:
        for part in split_script(text):
            shown = StatementText(text=part.text, line=part.line, column=part.column)
            with interruptible():
                result = _run_part(attached, part, text, file)
                if on_result is not None:
                    on_result(shown, result)
    finally:
        attached.ask, attached.on_progress = before, told


def _run_part(attached: Attached, part: ScriptStatement, script: str, file: str | None) -> DataFrame:
    try:
        statement = attached.route(part.text)
        if statement is not None:
            return attached.run(part.text, statement)
        return attached.spark.sql(part.text)
    except SqlError as error:
        raise error.moved_into(script, part.start, part.line, part.column, file) from error.__cause__
