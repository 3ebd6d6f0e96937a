"""The error of a Spark that does not start."""

from __future__ import annotations

from rw_sql.errors import SPARK_START, SqlError
from rw_sql.runtime.support.failures import cause_line

_ENDED = ("JAVA_GATEWAY_EXITED", "Connection refused", "Answer from Java side is empty")
_SETTINGS = "rw_sql.connect(…), --conf, --master, --driver-memory, or spark-defaults.conf"


def not_started(error: Exception) -> SqlError:
    """The error of ``rw_sql.connect`` for an error of PySpark or Py4J while it made the session."""
    told = str(error)
    if any(word in told for word in _ENDED):
        why = "its Java process has ended"
        hint = f"its messages, which are shown before this error, say why; change {_SETTINGS}, or JAVA_TOOL_OPTIONS"
    else:
        why = cause_line(told.partition("\n: ")[2] or told)
        hint = f"change {_SETTINGS}"
    return SqlError(SPARK_START, f"Spark does not start: {why}", hint=hint)
