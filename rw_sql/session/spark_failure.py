"""The error that is raised if Spark does not start."""

from __future__ import annotations

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from rw_sql.errors import SPARK_START, SqlError
from rw_sql.runtime.support.failures import cause_line

_SETTINGS = (
    "the settings of Spark (config and master of rw_sql.connect, --conf, --master, --driver-memory, "
    "spark-defaults.conf)"
)


def not_started(error: Exception) -> SqlError:
    """The error that ``rw_sql.connect`` raises if PySpark or Py4J fails while the session is created."""
    if _has_ended(error):
        why = "its Java process has ended"
        hint = f"read the messages of Java before this error, and change {_SETTINGS} or JAVA_TOOL_OPTIONS"
    else:
        told = str(error)
        why = cause_line(told.partition("\n: ")[2] or told)
        hint = f"change {_SETTINGS}"
    return SqlError(SPARK_START, f"Spark does not start: {why}", hint=hint)


def _has_ended(error: Exception) -> bool:
    if isinstance(error, PySparkException):
        return error.getCondition() == "JAVA_GATEWAY_EXITED"
    return isinstance(error, ConnectionError | Py4JNetworkError)
