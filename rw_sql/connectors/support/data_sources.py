"""Registers Python data sources in Spark sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_SESSIONS = "org.apache.spark.sql.classic.SparkSession"


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source in a session, and makes this session the active session of the JVM's thread.

    When Spark registers a data source, it looks up the name in the thread's active session, not in the given session.
    If the active session already had a data source of this name, Spark would refuse the registration.
    """
    session: Any = spark
    getattr(session._jvm, _SESSIONS).setActiveSession(session._jsparkSession)
    spark.dataSource.register(source)
