"""Defines the port for the tables that store logs and views, and for the tables in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """A table in Spark. ``path`` is the path of a Delta table; empty for any other table. ``schema`` is the table's
    schema as Spark's JSON.

    ``is_missing`` is True if Spark has no table or view with the name. ``unreadable`` is the reason why rw_sql cannot
    read a Delta table without Spark; empty if rw_sql can read the table.
    """

    path: str = ""
    schema: str = ""
    has_change_feed: bool = False
    is_missing: bool = False
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """The size of a source's log. ``rows`` is the number of rows, including decode errors, and ``bytes`` is the size of
    the files.

    ``since_ms`` is the beginning of the hour in which the log's oldest rows were written, in milliseconds since 1970;
    None if the log is empty. ``empty`` lists the columns, and the fields of structs, that are NULL in all of the latest
    rows.
    """

    rows: int = 0
    errors: int = 0
    bytes: int = 0
    files: int = 0
    since_ms: int | None = None
    empty: tuple[str, ...] = ()


class TablePort(Protocol):
    """The port for the tables that store logs and views, and for the tables in Spark."""

    def look(self, name: str) -> TableLook:
        """Examines a table in Spark. ``name`` has the form of a table name in a query: ``orders``, ``shop.orders`` or
        ``delta.`/path```."""
        ...

    def is_users_database(self, name: str) -> bool:
        """True if Spark has a database with this name that does not belong to a schema of this warehouse."""
        ...

    def in_current_database(self, name: str) -> str:
        """Returns the qualified name of the table ``name`` in the session's current database. Returns the empty string
        in two cases: the current database has no such table, or jobs resolve unqualified names in the current database
        too."""
        ...

    def version(self, object_id: int) -> int:
        """Returns the newest version of the table that stores a source's log or a view's rows. Returns -1 if this table
        does not exist."""
        ...

    def log_sizes(self, source_ids: tuple[int, ...]) -> Mapping[int, LogSize]:
        """Maps the id of each source to the size of its log. Sources without a log are absent."""
        ...
