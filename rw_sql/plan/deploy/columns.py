"""Orders the changes to a table's columns and to the table's readers. A deployment drops or renames a column only after
the last object that uses the column has been changed or dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.model.definitions import field_of, table_definition
from rw_sql.model.options import source_options, visible
from rw_sql.plan.statements.table.columns import users_of_column, users_of_new_name
from rw_sql.syntax.statements import AlterAddColumn, AlterTableDropColumn, AlterTableRenameColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.syntax.statements import Statement

WHY_OPTIONAL = "auto.schema.change may have added the column; to keep it, add it to the folder"
"""The note that is shown with the DROP COLUMN statements from :func:`optional_drops`."""


def in_the_way(
    snapshot: Snapshot, table: TableRecord, statements: Iterable[Statement], rebuilt: Collection[int]
) -> Iterator[tuple[ObjectRecord, str]]:
    """Returns the readers of a table that must be dropped before the table's columns change, each with the reason.

    ``rebuilt`` are the ids of the views that get a new query. If the change drops a column, these views need not be
    dropped, because the column is dropped after their rebuild. If the change renames a column, these views must be
    dropped before the rename, because their new queries already use the new name.
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
                    yield record, why_dropped_first(table, statement)


def rebuilt_users(
    snapshot: Snapshot, table: TableRecord, statement: AlterTableDropColumn, rebuilt: Collection[int]
) -> tuple[ObjectRecord, ...]:
    """Returns the views among ``rebuilt`` that may use the column of the statement until their rebuild is complete."""
    return tuple(record for record in users_of_column(snapshot, table, statement.column) if record.id in rebuilt)


def why_dropped_first(table: TableRecord, statement: AlterTableDropColumn) -> str:
    """The reason why an object is dropped before the column that it uses."""
    return f'it may use column "{statement.column}" of {table.name}, which is dropped'


def optional_drops(snapshot: Snapshot, change: DeployChange) -> tuple[Statement, ...]:
    """Returns the DROP COLUMN statements in a table's change that may be omitted. Each of these statements drops a
    column that rw_sql itself may have added after the creation of the table (``auto.schema.change``). The definition in
    the folder need not contain such a column. The result does not include a DROP COLUMN statement whose column name
    another column gets in the same change."""
    table = snapshot.get(change.touches[0]) if change.touches else None
    source = snapshot.get(table.inputs[0]) if isinstance(table, TableRecord) and table.live_from is not None else None
    if not isinstance(table, TableRecord) or not isinstance(source, SourceRecord):
        return ()
    if visible(source_options(snapshot, source)).get("auto.schema.change", "false").strip().lower() != "true":
        return ()
    added = {name for name, _ in table.added_columns}
    fields = {c.name: field_of(c) for c in table_definition(table.definition).columns if c.generated is None}
    needed: set[str] = set()
    for statement in change.statements:
        if isinstance(statement, AlterAddColumn):
            needed |= {statement.column.name.lower(), field_of(statement.column).lower()}
        elif isinstance(statement, AlterTableRenameColumn):
            needed.add(statement.new_column.lower())
    return tuple(
        statement
        for statement in change.statements
        if isinstance(statement, AlterTableDropColumn)
        and statement.column in added & fields.keys()
        and needed.isdisjoint((statement.column.lower(), fields[statement.column].lower()))
    )


def is_optional(snapshot: Snapshot, change: DeployChange) -> bool:
    """True if the change only drops columns that rw_sql itself may have added; see :func:`optional_drops`."""
    optional = optional_drops(snapshot, change)
    return bool(optional) and all(statement in optional for statement in change.statements)


def without_used_drops(snapshot: Snapshot, change: DeployChange) -> DeployChange:
    """Removes from the change the :func:`optional_drops` of columns that a view or sink may use. Each of these
    statements would require that the view or sink is created again, although the column need not be dropped."""
    table = snapshot.get(change.touches[0]) if change.touches else None
    if not isinstance(table, TableRecord):
        return change
    used = {
        statement.column
        for statement in optional_drops(snapshot, change)
        if isinstance(statement, AlterTableDropColumn) and users_of_column(snapshot, table, statement.column)
    }
    left = (each for each in change.statements if not (isinstance(each, AlterTableDropColumn) and each.column in used))
    return replace(change, statements=tuple(left)) if used else change
