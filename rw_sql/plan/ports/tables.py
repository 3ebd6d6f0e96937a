"""Defines the port for the tables of logs and views, and for the tables in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """A Delta table's path, and the table's schema as Spark's JSON. ``path`` is empty if the table is not a Delta
    table.

    ``is_missing`` is True if Spark has no table or view with that name. ``unreadable`` is the reason why rw_sql cannot
    read a Delta table without Spark; empty if rw_sql can read the table.
    """

    path: str = ""
    schema: str = ""
    has_change_feed: bool = False
    is_missing: bool = False
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """The size of a source's log. The fields are the number of rows (including decode errors), the size of the files in
    bytes, and the age of the oldest rows.

    ``since_ms`` is the beginning of the hour in which the log's oldest rows were written, in milliseconds since 1970;
    None if the log is empty. ``empty`` lists the columns and the fields of structs whose values are NULL in all of the
    log's latest rows.
    """

    rows: int = 0
    errors: int = 0
    bytes: int = 0
    files: int = 0
    since_ms: int | None = None
    empty: tuple[str, ...] = ()


class TablePort(Protocol):
    """The tables of logs and views, and tables in Spark."""

    def look(self, name: str) -> TableLook:
        """Examines a table in Spark. ``name`` is written as in a query: ``orders``, ``shop.orders`` or
        ``delta.`/path```."""
        ...

    def is_users_database(self, name: str) -> bool:
        """True if Spark has a database with this name, and the database is not a schema of this warehouse."""
        ...

    def in_current_database(self, name: str) -> str:
        """The full name of the table ``name`` of the session's current database. Returns the empty string if the
        current database has no table ``name``. Also returns the empty string if jobs look up unqualified names in the
        same database."""
        ...

    def version(self, object_id: int) -> int:
        """The newest version of the table that stores a source's log or a view's rows; -1 if the table does not
        exist."""
        ...

    def log_sizes(self, source_ids: tuple[int, ...]) -> Mapping[int, LogSize]:
        """Maps the ids of these sources to the sizes of their logs. Sources without a log are absent."""
        ...
