"""Lowers ALTER TABLE … ADD COLUMN: the records that come from then on fill it, rows from before have NULL in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.plan.definitions import source_of_table, table_definition
from rw_sql.plan.lower_source import nothing, source_record
from rw_sql.plan.lower_table import table_record
from rw_sql.plan.names import find_source_of, find_table
from rw_sql.plan.plan import ObjectChange, Plan
from rw_sql.plan.refreshes import refresh_of
from rw_sql.plan.source_checks import check_source
from rw_sql.plan.steps import after, steps_of
from rw_sql.plan.table_checks import check_runnable, check_table
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.requests import Asking
    from rw_sql.syntax.statements import AlterAddColumn, ColumnDefinition


def lower_add_column(statement: AlterAddColumn, snapshot: Snapshot) -> Asking[Plan]:
    """ALTER TABLE … ADD COLUMN: the source's definition gets it too, unless it is generated."""
    if statement.kind != "TABLE":
        raise SqlError(
            NOT_SUPPORTED,
            f"ALTER {statement.kind} … ADD COLUMN is not supported yet",
            span=statement.span,
            hint="ALTER TABLE … ADD COLUMN is; or create another source beside this one",
        )
    table = find_table(snapshot, statement.name)
    source = find_source_of(snapshot, "TABLE", statement.name)
    if refresh_of(snapshot, table.id) is not None:
        raise SqlError(
            NOT_SUPPORTED,
            f'table "{table.name}" is loaded as a whole: ADD COLUMN is not supported yet',
            span=statement.span,
            hint=f"DROP TABLE {table.name} and create it with the column: SHOW CREATE TABLE tells how",
        )
    column = statement.column
    written = table_definition(table.definition)
    if statement.if_not_exists and any(known.name == column.name for known in written.columns):
        return nothing(statement, table.name, f'column "{column.name}" already exists')
    _check_column(column)
    definition = replace(written, columns=(*written.columns, column))
    check_runnable(definition)
    check_table(definition)
    changes: list[Change] = []
    of_source = source_of_table(definition)
    if column.generated is None:
        check_source(snapshot, of_source)
        source = source_record(snapshot, source, of_source)
        changes.append(PutObject(record=source))
    made = yield from table_record(after(snapshot, tuple(changes)), source, definition, table.dialect)
    record = replace(
        made,
        id=table.id,
        generation=table.generation,
        created_at_ms=table.created_at_ms,
        has_change_feed=table.has_change_feed,
    )
    changes.append(PutObject(record=record))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="ADD COLUMN",
            statement=render(statement),
            objects=(table.name, *(found.name for found in snapshot.dependents_of(table.id))),
            changes=tuple(changes),
        ),
        changes=(
            ObjectChange(
                object=table.name,
                change="ALTERED",
                detail=f"column {column.name} added: NULL in the rows that are there, until records replace them",
            ),
        ),
        affected=(source.id, table.id),
    )


def _check_column(column: ColumnDefinition) -> None:
    refused = (
        (
            column.default is not None,
            "a DEFAULT",
            "rows that are there would lack it: compute it in a materialized view",
        ),
        (column.is_primary_key, "PRIMARY KEY", "what identifies a row never changes: create another table"),
        (column.is_not_null, "NOT NULL", "rows that are there have no value in it: leave it out"),
    )
    for is_there, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"ADD COLUMN with {what} is not supported", span=column.span, hint=instead)
