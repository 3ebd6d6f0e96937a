"""Creates Spark sessions for jobs, and loads the connector jars that the jobs need."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from rw_sql.errors import LIBRARY_MISSING, SPARK_ENDED, SqlError
from rw_sql.metastore.records import PARALLELISM
from rw_sql.runtime.spark.jar_cache import remember_jars, remembered_jars, without_jars_of_spark
from rw_sql.runtime.spark.job_settings import JOB_SETTINGS, LOCAL_CHECKPOINT_SETTINGS, settings_to_reset
from rw_sql.runtime.spark.jvm import (
    active_context,
    forget_gateway,
    gateway,
    gateway_process,
    is_stopped,
    java_class,
    java_properties,
    java_session,
    keep_classes,
    session_settings,
    set_active_session,
)
from rw_sql.runtime.spark.work_progress import WorkerThread
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import is_process_alive, process_start
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

POLLING_DELAY = "spark.sql.streaming.pollingDelay"
"""Spark's setting for the delay between polls of a query without new data."""

_LEAST_DELAY_MS, _DELAY_MS_PER_QUERY, _MOST_DELAY_MS = 20, 10, 500
_STORE_DELAY_MS = 200
"""The minimum polling delay in milliseconds for a warehouse in an object store. In an object store, each poll of a
table lists files, and the store charges for each listing."""

ORIGINAL_SQL = "_rw_sql_original"
"""The name of an attribute. rw_sql replaces ``SparkSession.sql`` with a function of its own, and stores the original
function in this attribute."""

_FETCH_ATTEMPTS = 3

_MOST_FREE = 100
"""The maximum number of sessions of ended queries that are kept for later queries."""

# Jars stay loaded in a Spark context, regardless of the warehouse that requested them.
_loaded: WeakKeyDictionary[SparkContext, set[str]] = WeakKeyDictionary()
_loading = threading.Lock()
_threads: WeakKeyDictionary[SparkContext, tuple[Any, Any]] = WeakKeyDictionary()


def polling_delay_ms(running: int, least_ms: int = 0) -> int:
    """The polling delay of a new query, in milliseconds, if the number of other running queries is ``running``.

    A poll without new data takes as much work as a poll with new data. For a Kafka source, for example, a poll takes
    two requests to a broker. To limit the total work, the delay grows with the number of running queries, up to
    _MOST_DELAY_MS. ``least_ms`` is the minimum of the result.
    """
    return max(min(_LEAST_DELAY_MS + _DELAY_MS_PER_QUERY * running, _MOST_DELAY_MS), least_ms)


class SparkSessions:
    """Creates sessions for jobs from the user's session, and loads connector jars when they are first needed.
    Thread-safe."""

    def __init__(self, spark: SparkSession, *, is_local: bool = False) -> None:
        """``is_local`` is true if the jobs' checkpoints are on a local path."""
        self.spark = spark
        self._settings = {**JOB_SETTINGS, **(LOCAL_CHECKPOINT_SETTINGS if is_local else {})}
        self._least_delay_ms = 0 if is_local else _STORE_DELAY_MS
        self._to_reset: tuple[str, ...] | None = None
        self._free: dict[str, list[SparkSession]] = {}
        self._releasing, self._reading = threading.Lock(), threading.Lock()
        self.jvm_pid = jvm_pid(spark)
        keep_classes(spark)
        self._jvm_start = process_start(self.jvm_pid)

    @cached_property
    def _shared_state(self) -> Any:
        """The shared state of all sessions of the Spark context."""
        return java_session(self.spark).sharedState()

    @cached_property
    def _active_queries(self) -> Any:
        """The running queries of all sessions of the Spark context, as a Java map from the query's id to the query."""
        return self._shared_state.activeStreamingQueries()

    @cached_property
    def _user_settings(self) -> Any:
        """The current settings of the user's session."""
        return session_settings(self.spark)

    @cached_property
    def _job_settings(self) -> Any:
        """The settings of jobs as Java's properties."""
        return java_properties(self.spark, self._settings)

    def is_alive(self) -> bool:
        """True if Spark's JVM runs and Spark is not stopped.

        Takes microseconds and never fails, because it makes no call to the JVM.
        """
        return self._why_ended() is None

    def require_alive(self, done: str = "") -> None:
        """Raises SqlError SPARK_ENDED if Spark is not running any more.

        ``done`` states the effects that the statement has already had.
        """
        reason = self._why_ended()
        if reason is not None:
            raise SqlError(
                SPARK_ENDED,
                f"{reason}{f'; {done}' if done else ''}",
                hint="rw_sql.connect() starts a new one, and the warehouse's jobs continue at their positions",
            )

    def _why_ended(self) -> str | None:
        if _is_reaped(self.jvm_pid) or not is_process_alive(self.jvm_pid, self._jvm_start):
            return "the JVM of this Spark session has ended"
        return "this Spark session was stopped" if is_stopped(self.spark.sparkContext) else None

    def running_query(self, query_id: str) -> str | None:
        """Returns the name, for use in messages, of the query with the id ``query_id``, if this query is running in any
        session of the JVM. Returns None if the query is not running."""
        queries = self._active_queries
        for key in queries.keySet():
            if str(key) == query_id:
                name = queries.get(key).name()
                return f'query "{name}"' if name else f"query {query_id}"
        return None

    @property
    def cores(self) -> int:
        """The number of cores of this machine or, on a cluster, of the current executors."""
        return self.spark.sparkContext.defaultParallelism

    def new(self, packages: Iterable[str] = (), parallelism: int = PARALLELISM) -> SparkSession:
        """Returns a session with the jobs' settings: a session that :meth:`release` has kept, or a new session. Loads
        the jars of ``packages``, whose classes are then visible to the calling thread.

        ``parallelism`` is the number of partitions after a shuffle, and therefore also the number of partitions of a
        query's state.
        """
        WorkerThread.of_spark()
        self.load(packages)
        with self._releasing:
            free = self._free.get(str(parallelism))
            session = free.pop() if free else None
        if session is not None:
            self._set_delay(session)
            return session
        session = self.spark.newSession()
        for key in self._resettable(session):
            session.conf.unset(key)
        session.conf.set(SHUFFLE_PARTITIONS, str(parallelism))
        session_settings(session).setConf(self._job_settings)
        self._set_delay(session)
        return session

    @contextmanager
    def lent(self, packages: Iterable[str] = ()) -> Iterator[SparkSession]:
        """A context manager that provides a session inside the ``with`` block. The block's queries must end before the
        block ends. For ``packages``, see :meth:`new`."""
        session = self.new(packages)
        try:
            yield session
        finally:
            self.release_if_alive(session)

    def _resettable(self, session: SparkSession) -> tuple[str, ...]:
        # If many jobs start at the same time, only the first job reads all settings.
        with self._reading:
            if self._to_reset is None:
                found = settings_to_reset(session.conf.getAll)
                self._to_reset = tuple(key for key in found if session.conf.isModifiable(key))
            return self._to_reset

    def release(self, session: SparkSession) -> None:
        """Keeps a session for a later call of :meth:`new`. The session must come from :meth:`new`. A session is not
        kept if its query could not be stopped and still runs.

        Spark never frees some parts of a session. Therefore, jobs that are stopped and started again must not create
        ever more sessions.
        """
        if len(java_session(session).streams().active()):
            return  # The next query in this session may have the same name.
        # The session's temporary views are the inputs of the query that has ended.
        java_session(session).sessionState().catalog().clearTempTables()
        with self._releasing:
            free = self._free.setdefault(str(session.conf.get(SHUFFLE_PARTITIONS)), [])
            if len(free) < _MOST_FREE:
                free.append(session)

    def release_if_alive(self, session: SparkSession | None) -> None:
        """Does the same as :meth:`release`, but does nothing if there is no session, or if the session's JVM has
        ended."""
        if session is not None:
            with suppress(Py4JError):
                self.release(session)

    def forget_tables(self, paths: Iterable[str]) -> None:
        """Removes Delta tables from Delta's cache, which keeps the state of each table for an hour."""
        logs = java_class(self.spark, "org.apache.spark.sql.delta.DeltaLog")
        made_path = java_class(self.spark, "org.apache.hadoop.fs.Path")
        for path in paths:
            logs.invalidateCache(java_session(self.spark), made_path(path))

    def again(self, session: SparkSession, packages: Iterable[str] = ()) -> SparkSession:
        """Prepares a session, which the job got from :meth:`new`, for the next run of this job, and returns the
        session."""
        self.load(packages)
        self._set_delay(session)
        return session

    def _set_delay(self, session: SparkSession) -> None:
        running = self._active_queries.size()
        least_ms = max(self._user_settings.streamingPollingDelay(), self._least_delay_ms)
        session.conf.set(POLLING_DELAY, f"{polling_delay_ms(running, least_ms)}ms")

    def load(self, packages: Iterable[str]) -> None:
        """Loads the jars of ``packages`` that are not loaded yet, and makes all loaded jars visible to the calling
        thread.

        Each Python thread has its own JVM thread, whose context class loader lacks the jars that other threads added.
        Therefore, this method sets the class loader of the shared state, which has all jars, in the calling thread.
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
            known = java_class(self.spark, "java.lang.Thread"), self._shared_state.jarClassLoader()
            _threads[context] = known
        thread, loader = known
        thread.currentThread().setContextClassLoader(loader)

    def _quiet(self) -> None:
        """Silences a log message of Spark's status page. The page cannot load metric classes from jars that ADD JAR has
        added, and would log this failure at every batch."""
        listener = "org.apache.spark.sql.execution.ui.SQLAppStatusListener"
        error = java_class(self.spark, "org.apache.logging.log4j.Level").ERROR
        java_class(self.spark, "org.apache.logging.log4j.core.config.Configurator").setLevel(listener, error)

    def _add_jar(self, package: str) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        for attempt in range(1, _FETCH_ATTEMPTS + 1):
            try:
                jars = remembered_jars(package) or self._resolve(package)
                for jar in without_jars_of_spark(jars):
                    plain_sql(self.spark, f"ADD JAR '{jar}'")
            except (PySparkException, Py4JJavaError) as error:
                if attempt == _FETCH_ATTEMPTS:
                    raise not_fetched(package, str(error)) from error
                logger.warning("could not fetch %s, attempt %d of %d", package, attempt, _FETCH_ATTEMPTS)
            else:
                return

    def _resolve(self, package: str) -> list[str]:
        """Resolves an ``ivy://`` coordinate to jars, as ADD JAR would, and caches the result."""
        utilities = java_class(self.spark, "org.apache.spark.util.DependencyUtils")
        found = utilities.resolveMavenDependencies(java_class(self.spark, "java.net.URI").create(package))
        jars = [str(jar) for jar in found.mkString("\n").split("\n")]
        remember_jars(package, jars)
        return jars


_OF_JAVA = re.compile(r"^:? ?[\w.$]+(?:Exception|Error): (?P<why>[^\n]+)", re.MULTILINE)
"""Matches the message of a Java exception. In the text of a py4j error, this message follows the line that names the
call."""


def not_fetched(package: str, told: str) -> SqlError:
    """The error for connector jars that are available neither from a repository nor from the cache."""
    cause = _OF_JAVA.search(told)
    why = cause["why"].strip("[] ") if cause is not None else cause_line(told)
    return SqlError(
        LIBRARY_MISSING,
        f"{package.removeprefix('ivy://')} cannot be fetched: {why}",
        hint="behind a proxy: export SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; with a mirror: "
        "config={'spark.jars.ivySettings': 'FILE'}; then start Spark again",
    )


def plain_sql(spark: SparkSession, text: str) -> DataFrame:
    """Runs Spark's own ``SparkSession.sql``, even in an attached session, where rw_sql has wrapped this method."""
    method = type(spark).sql
    original = getattr(method, ORIGINAL_SQL, method)
    result: DataFrame = original(spark, text)
    return result


def register_view(frame: DataFrame, name: str) -> None:
    """Registers a frame as a view with the name ``name``, which queries of the frame's session can read. The view
    replaces an earlier view with this name.

    The earlier view is dropped first. If ``createOrReplaceTempView`` replaced it instead, Spark would remove persisted
    rows from its cache: in all sessions, the rows of every query that reads a view with this name. Such a query may be
    a batch of another job that has an input with this name.
    """
    java_session(frame.sparkSession).sessionState().catalog().dropTempView(name)
    frame.createOrReplaceTempView(quoted_for_spark(name))


def activate(spark: SparkSession) -> None:
    """Makes a session the active session of this thread, in Python and in the JVM, as each ``createDataFrame`` does."""
    set_active_session(spark)
    activate_in_jvm(spark)


def activate_in_jvm(spark: SparkSession) -> None:
    """Makes a session the active session of this thread in the JVM. The JVM parses types in strings with the settings
    of the active session."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(java_session(spark))


def jvm_pid(spark: SparkSession) -> int:
    """The process id of the session's JVM."""
    return int(java_class(spark, "java.lang.ProcessHandle").current().pid())


def _is_reaped(pid: int) -> bool:
    """True if PySpark started this JVM in this process and the JVM has ended.

    An ended child process remains a zombie, which some systems cannot distinguish from a running process.
    """
    process = gateway_process()
    return process is not None and process.pid == pid and process.poll() is not None


def leave_dead_jvm() -> None:
    """Makes PySpark forget a JVM that has ended. The next session then starts a new JVM.

    Does nothing while the JVM runs.
    """
    dead, process = gateway(), gateway_process()
    if dead is None or process is None or process.poll() is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        context = active_context()
        if context is not None:
            # pyspark treats a dead JVM like a JVM with a faulty response. If the port refuses connections, the first
            # stop() ends early, and only the second stop(), which no longer calls the JVM, releases the rest.
            with suppress(OSError):
                context.stop()
            context.stop()
    dead.shutdown_callback_server()
    forget_gateway()
