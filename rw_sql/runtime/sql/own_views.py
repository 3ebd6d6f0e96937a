"""Manages the temporary views that show rw_sql's objects. An object has a temporary view if Spark accepts its name only
for temporary views, or if another warehouse already uses its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.spark.jvm import java_session
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def is_plain(name: str) -> bool:
    """True for a name that Spark's session catalog accepts for tables, databases and views that are not temporary."""
    return _PLAIN.fullmatch(name) is not None


class OwnTemporaryViews:
    """The temporary views that rw_sql has created in one session, as opposed to the views that the user has created."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._texts: dict[str, str | None] = {}
        """The SQL text of each view as Spark stores it (None if Spark stores no text), by the view's name in lower
        case."""

    def __len__(self) -> int:
        return len(self._texts)

    def make(self, name: str, select: str) -> None:
        """Creates or replaces a view."""
        # The view is recorded before it exists, because another thread would otherwise mistake it for a view of the
        # user.
        self._texts[name.lower()] = select.removeprefix("AS ")
        plain_sql(self._spark, f"CREATE OR REPLACE TEMPORARY VIEW {quoted_for_spark(name)} {select}")
        found = self._find(name)
        self._texts[name.lower()] = None if found is None else _text(found)

    def drop(self, name: str) -> None:
        """Drops a view, unless the user has replaced it."""
        if self.has(name):
            self._spark.catalog.dropTempView(name)
        self._texts.pop(name.lower(), None)

    def has(self, name: str) -> bool:
        """True if a name refers to a view that rw_sql has created and the user has not replaced. Upper and lower case
        do not matter."""
        if name.lower() not in self._texts:
            return False
        found = self._find(name)
        return found is not None and _text(found) == self._texts[name.lower()]

    def is_users(self, name: str) -> bool:
        """True if the user has a temporary view with this name."""
        found = self._find(name)
        return found is not None and (name.lower() not in self._texts or _text(found) != self._texts[name.lower()])

    def _find(self, name: str) -> Any | None:
        found = java_session(self._spark).sessionState().catalog().getTempView(name)
        return found.get() if found.isDefined() else None


def _text(view: Any) -> str | None:
    """The SQL text of a temporary view; None if the view was made from a DataFrame."""
    text = view.desc().viewText()
    return str(text.get()) if text.isDefined() else None
