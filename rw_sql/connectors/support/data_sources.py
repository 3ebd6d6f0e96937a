"""Registers Python data sources in Spark sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_SESSIONS = "org.apache.spark.sql.classic.SparkSession"


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Makes a data source known in a session, which becomes the active one of this thread in the JVM.

    Spark looks for the name in the thread's active session. If that is another one, which already has the source, Spark
    refuses the name.
    """
    session: Any = spark
    getattr(session._jvm, _SESSIONS).setActiveSession(session._jsparkSession)
    spark.dataSource.register(source)
