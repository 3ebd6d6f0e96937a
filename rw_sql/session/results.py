"""Converts results to text cells for the command line and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rw_sql.session.spark_settings import TIME_ZONE, defaults_of_file
from rw_sql.syntax.dialect.time_zones import time_zone

if TYPE_CHECKING:
    from datetime import tzinfo

    from pyspark.sql import DataFrame

    from rw_sql.plan.result.plan import Table

MOST_ROWS = 1000
"""The maximum number of rows that a result shows. A script that needs more rows should write its result to a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A result to display. Every cell is text, or None for NULL. ``has_more`` is True if not all rows are included."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    has_more: bool = False

    @property
    def count(self) -> str:
        """The number of rows in words, such as ``3 rows`` or ``the first 1000 rows``."""
        count = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"the first {count}" if self.has_more else count


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A result as Python values. ``has_more`` is True if not all rows are included. A TIMESTAMP has the time zone of
    the session, and a TIMESTAMP_NTZ has no time zone."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    has_more: bool = False

    def as_text(self) -> Rows:
        """Converts the result to text for display."""
        rows = tuple(tuple(cell_text(value) for value in row) for row in self.rows)
        return Rows(columns=self.columns, rows=rows, has_more=self.has_more)


def read_values(result: DataFrame, *, most: int = MOST_ROWS) -> Values:
    """Runs a query's DataFrame and returns at most ``most`` rows of the result."""
    from rw_sql.runtime.spark.session_times import with_session_zone

    taken = result.take(most + 1)
    rows = tuple(with_session_zone(result, taken[:most]))
    return Values(columns=tuple(result.columns), rows=rows, has_more=len(taken) > most)


def read_rows(result: DataFrame, *, most: int = MOST_ROWS) -> Rows:
    """Runs a query's DataFrame like :func:`read_values`, and returns the values as text."""
    return read_values(result, most=most).as_text()


def rows_of(table: Table, *, most: int = MOST_ROWS) -> Rows:
    """The result of a statement that ran without Spark, as text cells."""
    zone = local_zone()
    return Rows(
        columns=tuple(name for name, _ in table.columns),
        rows=tuple(tuple(cell_text(local_time(value, zone)) for value in row) for row in table.rows[:most]),
        has_more=len(table.rows) > most,
    )


def local_zone() -> tzinfo | None:
    """The time zone that a Spark session started by this process would have: the zone in ``spark-defaults.conf``. If
    that file sets no valid zone, the result is None, which means the zone of this process."""
    try:
        name = defaults_of_file().get(TIME_ZONE)
    except (OSError, ValueError):  # Spark reports a file that cannot be read.
        name = None
    return None if name is None else time_zone(name)


def local_time(value: object, zone: tzinfo | None) -> object:
    """Converts a datetime to the time zone ``zone`` (None: the zone of this process). Values of other types are
    returned unchanged."""
    return value.astimezone(zone) if isinstance(value, datetime) else value


def cell_text(value: Any) -> str | None:
    """Returns a value as text: booleans and NULL as in SQL, times without their zone, bytes in hexadecimal form, and
    arrays in brackets."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, bytes | bytearray):
        return "\\x" + value.hex()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{cell_text(key)}: {_inner(item)}" for key, item in value.items()) + "}"
    # A struct: several of its fields may have the same name.
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        return (
            "{" + ", ".join(f"{name}: {_inner(item)}" for name, item in zip(value.__fields__, value, strict=True)) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inner(item) for item in value) + "]"
    return str(value)


def _inner(value: Any) -> str:
    text = cell_text(value)
    return "NULL" if text is None else text
