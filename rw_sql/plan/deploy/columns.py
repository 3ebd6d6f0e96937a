"""Orders the changes to a table's columns and to the table's readers: a column is dropped or renamed only when no
object uses this column any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.statements.table.columns import users_of_column, users_of_new_name
from rw_sql.syntax.statements import AlterTableDropColumn, AlterTableRenameColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord, TableRecord
    from rw_sql.syntax.statements import Statement


def in_the_way(
    snapshot: Snapshot, table: TableRecord, statements: Iterable[Statement], rebuilt: Collection[int]
) -> Iterator[tuple[ObjectRecord, str]]:
    """The readers of a table that must be dropped before its columns change, each with the reason.

    ``rebuilt`` are the ids of the views that get another query. If a column is dropped, these views need not be dropped
    first, because the column is dropped after their rebuild. If a column is renamed, these views must be dropped first,
    because their new queries already use the new name.
    """
    for statement in statements:
        if isinstance(statement, AlterTableRenameColumn):
            for record in users_of_column(snapshot, table, statement.column):
                yield record, f'it may use column "{statement.column}" of {table.name}, which is renamed'
            for record in users_of_new_name(snapshot, table, statement.column, statement.new_column):
                yield record, f'it may use the name "{statement.new_column}", which a column of {table.name} gets'
        elif isinstance(statement, AlterTableDropColumn):
            for record in users_of_column(snapshot, table, statement.column):
                if record.id not in rebuilt:
                    yield record, f'it may use column "{statement.column}" of {table.name}, which is dropped'


def may_use_dropped(
    snapshot: Snapshot, table: TableRecord, statement: AlterTableDropColumn, rebuilt: Collection[int]
) -> bool:
    """True if one of the views ``rebuilt`` may use the column of the statement until the rebuild of this view is
    complete."""
    return any(record.id in rebuilt for record in users_of_column(snapshot, table, statement.column))
