"""Spark sessions for jobs, and the connector jars that they need."""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rw_sql.connectors.delta.versions import BY_AGE
from rw_sql.errors import LIBRARY_MISSING, SPARK_ENDED, SqlError
from rw_sql.runtime.spark.jar_cache import remember_jars, remembered_jars
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import is_process_alive, process_start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

JOB_SETTINGS = {
    # Few files and few state stores: a batch of a stream on one machine pays for each.
    SHUFFLE_PARTITIONS: "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.merge.materializeSource": "auto",
    # What a batch was planned to read may be old when it is read again; upkeep keeps it for as long as it takes.
    BY_AGE: "false",
    # As delta-rs and everybody else writes them; of Spark's default, INT96, Parquet keeps no least and greatest value.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Where Delta writes a log: a batch is of one bucket, and its rows need not be sorted by it.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # Rows of a file that is not found or not whole are lost in silence with these, which a Spark may be started with.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # A sink takes whole files into the driver's memory, however few partitions a large batch came from.
    "spark.sql.files.maxRecordsPerFile": "250000",
}
"""Settings of the jobs' own sessions; the user's session keeps its own."""

LOCAL_CHECKPOINT_SETTINGS = {
    # The one that Spark prefers asks for links before it renames, which without Hadoop's native library is a process of
    # its own each time, sixteen a batch. Both rename a file that is complete, and look whether there is one beforehand.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of the jobs' own sessions where checkpoints lie on a local path."""

POLLING_DELAY = "spark.sql.streaming.pollingDelay"
"""Spark's setting of how long a query without news waits until it asks for some again."""

_LEAST_DELAY_MS, _DELAY_MS_PER_QUERY, _MOST_DELAY_MS = 20, 10, 500

ORIGINAL_SQL = "_rw_sql_original"
"""Where the wrapped ``SparkSession.sql`` keeps the original."""

_FETCH_ATTEMPTS = 3

# What a Spark context has loaded stays loaded, whichever warehouse asked for it.
_loaded: WeakKeyDictionary[SparkContext, set[str]] = WeakKeyDictionary()
_loading = threading.Lock()
_threads: WeakKeyDictionary[SparkContext, tuple[Any, Any]] = WeakKeyDictionary()
_session_classes: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()


def polling_delay_ms(running: int, least_ms: int = 0) -> int:
    """How long a query waits between two looks for news that begins beside so many others.

    A look costs the same whether there is news or not, for a Kafka source two requests to a broker: with many queries
    each looks the less often, so that what all of them together spend does not grow with their number. ``least_ms`` is
    what the user's session says: a longer wait is theirs to choose.
    """
    return max(min(_LEAST_DELAY_MS + _DELAY_MS_PER_QUERY * running, _MOST_DELAY_MS), least_ms)


class SparkSessions:
    """Makes sessions for jobs out of the user's, with connector jars loaded when first needed. Safe across threads."""

    def __init__(self, spark: SparkSession, *, is_local: bool = False) -> None:
        """``is_local``: the jobs' checkpoints lie on a local path."""
        self.spark = spark
        self._settings = {**JOB_SETTINGS, **(LOCAL_CHECKPOINT_SETTINGS if is_local else {})}
        self.jvm_pid = jvm_pid(spark)
        self._jvm_start = process_start(self.jvm_pid)

    @cached_property
    def _shared_state(self) -> Any:
        """What all sessions of this Spark have in common."""
        session: Any = self.spark
        return session._jsparkSession.sharedState()

    def is_alive(self) -> bool:
        """Whether Spark still runs: its JVM lives and nobody stopped it. Asks no JVM: microseconds, never an error."""
        return self._why_ended() is None

    def require_alive(self, done: str = "") -> None:
        """Raises SqlError SPARK_ENDED where it does not run any more. ``done`` says what holds in spite of it."""
        reason = self._why_ended()
        if reason is not None:
            raise SqlError(
                SPARK_ENDED,
                f"{reason}{f'; {done}' if done else ''}",
                hint="rw_sql.connect() starts a new one, and the warehouse's jobs go on where they stood",
            )

    def _why_ended(self) -> str | None:
        if _is_reaped(self.jvm_pid) or not is_process_alive(self.jvm_pid, self._jvm_start):
            return "the JVM of this Spark session is gone"
        context: Any = self.spark.sparkContext
        return "this Spark session was stopped" if context._jsc is None else None

    def running_query(self, query_id: str) -> str | None:
        """The query with this id that runs in the JVM, in whichever session, as a message names it; else None."""
        queries = self._shared_state.activeStreamingQueries()
        for key in queries.keySet():
            if str(key) == query_id:
                name = queries.get(key).name()
                return f'query "{name}"' if name else f"query {query_id}"
        return None

    def new(self, packages: Iterable[str] = ()) -> SparkSession:
        """A session with the jobs' settings that finds the classes of ``packages`` from the calling thread."""
        self.load(packages)
        session = self.spark.newSession()
        for key, value in self._settings.items():
            session.conf.set(key, value)
        self._set_delay(session)
        return session

    def again(self, session: SparkSession, packages: Iterable[str] = ()) -> SparkSession:
        """A session that :meth:`new` gave, for the next run of the job that it was for; else as that."""
        self.load(packages)
        self._set_delay(session)
        return session

    def _set_delay(self, session: SparkSession) -> None:
        java: Any = self.spark
        running = self._shared_state.activeStreamingQueries().size()
        least_ms = java._jsparkSession.sessionState().conf().streamingPollingDelay()
        session.conf.set(POLLING_DELAY, f"{polling_delay_ms(running, least_ms)}ms")

    def load(self, packages: Iterable[str]) -> None:
        """Adds the jars once, and makes them visible to the calling thread.

        Each Python thread has a JVM thread of its own, whose context class loader does not know of jars that another
        thread added; the shared state's loader does.
        """
        with _loading:
            loaded = _loaded.setdefault(self.spark.sparkContext, set())
            for package in packages:
                if package not in loaded:
                    if not loaded:
                        self._quiet()
                    self._add_jar(package)
                    loaded.add(package)
        context = self.spark.sparkContext
        known = _threads.get(context)
        if known is None:
            session: Any = self.spark
            # Each part of such a name is a question to the JVM.
            known = session._jvm.java.lang.Thread, self._shared_state.jarClassLoader()
            _threads[context] = known
        thread, loader = known
        thread.currentThread().setContextClassLoader(loader)

    def _quiet(self) -> None:
        """Spark's status page cannot load the classes of metrics that came by ADD JAR, and says so at every batch."""
        session: Any = self.spark
        log4j = session._jvm.org.apache.logging.log4j
        listener = "org.apache.spark.sql.execution.ui.SQLAppStatusListener"
        log4j.core.config.Configurator.setLevel(listener, log4j.Level.ERROR)

    def _add_jar(self, package: str) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        for attempt in range(1, _FETCH_ATTEMPTS + 1):
            try:
                jars = remembered_jars(package) or self._resolve(package)
                for jar in jars:
                    plain_sql(self.spark, f"ADD JAR '{jar}'")
            except (PySparkException, Py4JJavaError) as error:
                if attempt == _FETCH_ATTEMPTS:
                    raise not_fetched(package, str(error)) from error
                logger.warning("could not fetch %s, attempt %d of %d", package, attempt, _FETCH_ATTEMPTS)
            else:
                return

    def _resolve(self, package: str) -> list[str]:
        """The jars of an ``ivy://`` coordinate, as ADD JAR would find them; remembered from then on."""
        session: Any = self.spark
        jvm = session._jvm
        found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(jvm.java.net.URI.create(package))
        jars = [str(jar) for jar in found.mkString("\n").split("\n")]
        remember_jars(package, jars)
        return jars


def not_fetched(package: str, told: str) -> SqlError:
    """The error for a connector's jars that neither a repository nor the cache has."""
    return SqlError(
        LIBRARY_MISSING,
        f"{package.removeprefix('ivy://')} cannot be fetched: {cause_line(told)}",
        hint="behind a proxy: export SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; with a mirror: "
        "config={'spark.jars.ivySettings': 'FILE'}; then start Spark again",
    )


def plain_sql(spark: SparkSession, text: str) -> DataFrame:
    """Spark's own ``sql``, whatever the session is attached to."""
    method = type(spark).sql
    original = getattr(method, ORIGINAL_SQL, method)
    result: DataFrame = original(spark, text)
    return result


def activate(spark: SparkSession) -> None:
    """Makes a session the one that Spark takes for this thread's, as each ``createDataFrame`` does."""
    type(spark)._activeSession = spark
    session: Any = spark
    context = spark.sparkContext
    of_java = _session_classes.get(context)
    if of_java is None:
        # Each part of such a name is a question to the JVM.
        of_java = _session_classes[context] = session._jvm.org.apache.spark.sql.classic.SparkSession
    of_java.setActiveSession(session._jsparkSession)


def jvm_pid(spark: SparkSession) -> int:
    """The process id of the session's JVM."""
    session: Any = spark
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


def _is_reaped(pid: int) -> bool:
    """Whether pyspark started this JVM in this process and it has ended: a child that nobody asked after is a zombie,
    which not every system tells from a running process."""
    from pyspark import SparkContext

    process = vars(SparkContext._gateway).get("proc") if SparkContext._gateway is not None else None
    return process is not None and process.pid == pid and process.poll() is not None


def leave_dead_jvm() -> None:
    """Lets pyspark forget a JVM that has ended, so that the next session starts another. Does nothing while it runs."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = vars(gateway).get("proc")
    if process is None or process.poll() is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        context = SparkContext._active_spark_context
        if context is not None:
            # pyspark takes a JVM that is gone for one that answers badly; where its port refuses, the first stop() ends
            # early and only the second, which no longer asks the JVM, lets go of the rest.
            with suppress(OSError):
                context.stop()
            context.stop()
    gateway.shutdown_callback_server()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
