"""In the place of Spark, for a process that reads a warehouse or changes its catalog and runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NO_SESSION, SqlError
from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession


class NoSpark(SparkSessions):
    """No JVM is started. What needs one raises SqlError NO_SESSION."""

    def __init__(self) -> None:  # the base's asks a session for its JVM
        self.jvm_pid = 0

    @property
    def spark(self) -> SparkSession:  # type: ignore[override]  # an attribute of the base
        """Raises SqlError: there is none."""
        raise SqlError(
            NO_SESSION, "the statement needs a Spark session, and this command starts none", hint="rw-sql shell"
        )

    def is_alive(self) -> bool:
        """True: there is nothing that could have ended."""
        return True

    def require_alive(self, done: str = "") -> None:
        """Returns: there is nothing that could have ended."""

    def running_query(self, query_id: str) -> str | None:
        """None: no query runs here."""
        return None

    def new(self, packages: Iterable[str] = ()) -> SparkSession:
        """Raises SqlError: there is none."""
        return self.spark
