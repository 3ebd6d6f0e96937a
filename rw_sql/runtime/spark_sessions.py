"""Spark sessions for jobs, and the connector jars that they need."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

JOB_SETTINGS = {
    # Few files and few state stores: a batch of a stream on one machine pays for each.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.merge.materializeSource": "auto",
}
"""Settings of the jobs' own sessions; the user's session keeps its own."""

ORIGINAL_SQL = "_rw_sql_original"
"""Where the wrapped ``SparkSession.sql`` keeps the original."""

_FETCH_ATTEMPTS = 3

# What a Spark context has loaded stays loaded, whichever warehouse asked for it.
_loaded: WeakKeyDictionary[SparkContext, set[str]] = WeakKeyDictionary()
_loading = threading.Lock()


class SparkSessions:
    """Makes sessions for jobs out of the user's, with connector jars loaded when first needed. Safe across threads."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def new(self, packages: Iterable[str] = ()) -> SparkSession:
        """A session with the jobs' settings that finds the classes of ``packages`` from the calling thread."""
        self.load(packages)
        session = self.spark.newSession()
        for key, value in JOB_SETTINGS.items():
            session.conf.set(key, value)
        return session

    def load(self, packages: Iterable[str]) -> None:
        """Adds the jars once, and makes them visible to the calling thread.

        Each Python thread has a JVM thread of its own, whose context class loader does not know of jars that another
        thread added; the shared state's loader does.
        """
        with _loading:
            loaded = _loaded.setdefault(self.spark.sparkContext, set())
            for package in packages:
                if package not in loaded:
                    self._add_jar(package)
                    loaded.add(package)
        session: Any = self.spark
        loader = session._jsparkSession.sharedState().jarClassLoader()
        session._jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)

    def _add_jar(self, package: str) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        for attempt in range(1, _FETCH_ATTEMPTS + 1):
            try:
                plain_sql(self.spark, f"ADD JAR '{package}'")
            except (PySparkException, Py4JJavaError):
                if attempt == _FETCH_ATTEMPTS:
                    raise
                logger.warning("could not fetch %s, attempt %d of %d", package, attempt, _FETCH_ATTEMPTS)
            else:
                return


def plain_sql(spark: SparkSession, text: str) -> DataFrame:
    """Spark's own ``sql``, whatever the session is attached to."""
    method = type(spark).sql
    original = getattr(method, ORIGINAL_SQL, method)
    result: DataFrame = original(spark, text)
    return result


def jvm_pid(spark: SparkSession) -> int:
    """The process id of the session's JVM."""
    session: Any = spark
    return int(session._jvm.java.lang.ProcessHandle.current().pid())
