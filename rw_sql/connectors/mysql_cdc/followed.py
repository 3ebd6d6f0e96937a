"""Checks that the log contains every change to a table's rows, and finds ALTER statements that changed values without
row events in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, SchemaChange, other_key
from rw_sql.connectors.mysql_cdc.positions import shown
from rw_sql.connectors.mysql_cdc.server import AGAIN, gone
from rw_sql.connectors.mysql_cdc.tables import cascade_error, cascades_of, versioning_error
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pymysql.connections import Connection

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.mysql_cdc.marks import Mark
    from rw_sql.connectors.mysql_cdc.statements import Effect
    from rw_sql.connectors.mysql_cdc.tables import CatalogTable


def require_readable(connection: Connection[Any], table: CatalogTable, progress: TableProgress) -> None:
    """Raises CaptureError if the table's rows cannot be captured. There are three reasons: the table has no primary
    key, the key with which the table's rows were read has changed, or the log does not contain all changes to the rows.
    Raises pymysql.Error."""
    name = progress.table
    if not table.key:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"table {name} has no primary key, so its rows cannot be identified",
            hint=f"ALTER TABLE {table.quoted} ADD PRIMARY KEY (…)",
        )
    if table.is_versioned:
        message, hint = versioning_error(table)
        raise CaptureError(UPSTREAM_MISSING, message, hint=f"{hint}; then {AGAIN}")
    cascades = cascades_of(connection, table)
    if cascades:
        message, hint = cascade_error(table, cascades)
        raise CaptureError(UPSTREAM_MISSING, message, hint=f"{hint}; then {AGAIN}")
    if progress.key_columns and set(progress.key_columns) != set(table.key):
        raise other_key(name, progress.key_columns, table.key)
    if progress.next_key is not None and not progress.is_done and progress.key_columns != table.key:
        raise gone(
            f"the primary key of table {name} changed from ({', '.join(progress.key_columns)}) to "
            f"({', '.join(table.key)}) while its snapshot was read"
        )


def with_names(mark: Mark, table: CatalogTable, progress: TableProgress) -> Mark:
    """Returns the mark with the names of the table's columns. The mark needs these names if the log contains no column
    names. Raises CaptureError if the columns have changed since the log was read."""
    names = tuple(column.name for column in table.columns)
    known, now = progress.columns, table.types
    is_same = not known or (known.keys() == now.keys() and all(kind in ("", now[name]) for name, kind in known.items()))
    if mark.names and (mark.names != names or not is_same):
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the columns of table {progress.table} changed while it was not read, and the log contains no column "
            "names",
            hint=AGAIN,
        )
    return replace(mark, names=names)


def require_same_log(marks: Iterable[Mark], sequence: int, created: tuple[int, int]) -> None:
    """Raises CaptureError if the log file ``sequence`` is not the file that earlier readers have read. ``created`` is
    the result of :meth:`Stream.created` for this file."""
    for mark in marks:
        if mark.created and mark.file == sequence and (mark.created, mark.server) != created:
            raise CaptureError(
                OFFSET_OUT_OF_RANGE,
                f"file {sequence} of the server's log is not the one that was read: the log was reset "
                "(RESET MASTER), or it is another server",
                hint=AGAIN,
            )


def mark_now(mark: Mark, prepared: tuple[int, ...], sequence: int, created: tuple[int, int] | None) -> Mark:
    """The mark of a table whose reader is in the log file ``sequence``. ``created`` is the result of
    :meth:`Stream.created` for this file."""
    mark = replace(mark, prepared=prepared)
    return mark if created is None else replace(mark, file=sequence, created=created[0], server=created[1])


def renamed_over(name: str, effect: Effect, position: int) -> CaptureError:
    """The error for a table whose name now belongs to another table."""
    return gone(
        f"table {name} is not the table that was read: at {shown(position)} "
        f"{effect.database}.{effect.table} was renamed to that name"
    )


def lacks_rows(position: int) -> CaptureError:
    """The error for a statement in the log that changed rows, if the log does not contain these rows."""
    return CaptureError(
        UPSTREAM_MISSING,
        f"the log contains a statement before {shown(position)} instead of the rows that the statement "
        "changed: its session had binlog_format STATEMENT or MIXED",
        hint=f"SET GLOBAL binlog_format = 'ROW', for all sessions; then {AGAIN}",
    )


def require_same_table(name: str, effect: Effect, position: int) -> None:
    """Raises CaptureError if a statement before ``position`` replaced the table, or added or removed rows that the log
    does not contain."""
    at = shown(position)
    match effect.did:
        case "dropped":
            raise gone(f"table {name} was dropped at {at}")
        case "created":
            raise gone(f"table {name} is not the table that was read: it was created again at {at}")
        case "renamed" if effect.other is not None:
            raise gone(f"table {name} was renamed to {'.'.join(effect.other)} at {at}")
        case "emptied" | "ignored":
            is_ignored = effect.did == "ignored"
            how = "were added or removed with a partition or a tablespace"
            how = "may have been deleted by ALTER IGNORE TABLE" if is_ignored else how
            raise gone(f"rows of table {name} {how} at {at}, and the log does not contain them")
        case "versioned":
            raise gone(f"the system versioning of table {name} was changed at {at}")


def altered(
    table: CatalogTable, progress: TableProgress, columns: Sequence[str], position: int
) -> tuple[TableProgress, SchemaChange | None]:
    """Returns the progress after an ALTER that dropped or renamed columns, and the resulting change to the known
    columns.

    The table may have a column with the dropped or old name again, because such a column was added or two names were
    exchanged. This name then counts as dropped and added, because the values of existing rows under this name have
    changed without an event in the log.
    """
    named = {column.lower() for column in columns}
    known = {column: kind for column, kind in progress.columns.items() if column.lower() in named}
    if not known:
        return progress, None
    again = {column: table.types[column] for column in known if column in table.types}
    kept = {column: again.get(column, kind) for column, kind in progress.columns.items()}
    kept = {column: kind for column, kind in kept.items() if column not in known or column in again}
    change = SchemaChange(table=progress.table, position=position, added=again, dropped=known)
    return replace(progress, columns=kept), change
