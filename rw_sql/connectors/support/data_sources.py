"""Registers Python data sources in Spark sessions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"

_registering = threading.Lock()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Makes a data source of rw_sql known in a session, under its name, which nothing else has.

    Jobs start in parallel, and Spark may refuse a name that another thread has just registered. The source can be used
    then.
    """
    from pyspark.errors import AnalysisException

    with _registering:
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if _EXISTS not in str(error):
                raise
