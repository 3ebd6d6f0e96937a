"""Replaces Spark in a process that reads a warehouse or changes its catalog, but runs no jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NO_SESSION, SqlError
from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession


class NoSpark(SparkSessions):
    """Replaces :class:`rw_sql.runtime.spark.sessions.SparkSessions` in a process without a JVM. Every use of the JVM
    raises SqlError NO_SESSION."""

    # The constructor of the base class is not called, because it reads the JVM of a session.
    def __init__(self) -> None:
        self.jvm_pid = 0

    @property
    def spark(self) -> SparkSession:  # type: ignore[override]  # an attribute of the base
        """Raises SqlError NO_SESSION, because this process has no session."""
        raise SqlError(
            NO_SESSION,
            "the statement needs a Spark session, but this command starts none",
            hint="run the statement in rw-sql shell",
        )

    def is_alive(self) -> bool:
        """Returns True, because there is no JVM that could have ended."""
        return True

    def require_alive(self, done: str = "") -> None:
        """Does nothing, because there is no JVM that could have ended."""

    def running_query(self, query_id: str) -> str | None:
        """Returns None, because no streaming query runs in this process."""
        return None

    def new(self, packages: Iterable[str] = (), parallelism: int = 0) -> SparkSession:
        """Raises SqlError NO_SESSION, because this process has no session."""
        return self.spark
