"""Lowers ALTER TABLE … ADD COLUMN and DROP COLUMN: of both definitions; the rows that are there stay as they are.

A column that was added is NULL in them until records replace them, and what was made before it does not see it. One
that was dropped stays in the table's files, where nothing shows it any more: no other may ever have its name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import (
    DEPENDENTS_EXIST,
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, PutObject, SinkRecord
from rw_sql.plan.definitions import primary_key, source_of_table, table_definition
from rw_sql.plan.lower_source import drop_with_dependents, nothing, source_record
from rw_sql.plan.lower_table import table_record
from rw_sql.plan.names import find_source_of, find_table, spoken
from rw_sql.plan.plan import ObjectChange, Plan
from rw_sql.plan.query_requests import WHOLE, analysis
from rw_sql.plan.readers import forget_fragments
from rw_sql.plan.refreshes import refresh_of
from rw_sql.plan.relations import relation_of, schema_columns, seen_columns
from rw_sql.plan.source_checks import check_source
from rw_sql.plan.steps import after, steps_of
from rw_sql.plan.table_checks import check_runnable, check_table, table_columns
from rw_sql.syntax import render
from rw_sql.syntax.names import quoted

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord, SourceRecord, TableRecord
    from rw_sql.plan.requests import Asking
    from rw_sql.syntax.statements import (
        AlterAddColumn,
        AlterTableDropColumn,
        AlterTableRenameColumn,
        ColumnDefinition,
        CreateTable,
        Statement,
    )


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
    _require_no_refresh(snapshot, table, statement, "ADD COLUMN")
    column = statement.column
    written = table_definition(table.definition)
    if statement.if_not_exists and any(known.name == column.name for known in written.columns):
        return nothing(statement, table.name, f'column "{column.name}" already exists')
    _check_column(column)
    if column.name.lower() in (gone.lower() for gone in table.dropped_columns):
        raise SqlError(
            DUPLICATE_OBJECT,
            f'table "{table.name}" had a column "{column.name}", and its files still have what stood in it',
            span=column.span,
            hint="give the new column another name, or make the table anew: SHOW CREATE TABLE tells how",
        )
    definition = replace(written, columns=(*written.columns, column))
    check_runnable(definition)
    check_table(definition)
    changes = yield from _redefined(snapshot, table, source, definition, renews_source=column.generated is None)
    return _plan(
        statement,
        snapshot,
        table,
        "ADD COLUMN",
        changes,
        f"column {column.name} added: NULL in the rows that are there, until records replace them",
    )


def lower_drop_column(statement: AlterTableDropColumn, snapshot: Snapshot) -> Asking[Plan]:
    """ALTER TABLE … DROP COLUMN: of both definitions; refused while views or sinks use it, unless CASCADE."""
    table = find_table(snapshot, statement.name)
    source = find_source_of(snapshot, "TABLE", statement.name)
    _require_no_refresh(snapshot, table, statement, "DROP COLUMN")
    written = table_definition(table.definition)
    column = next((known for known in written.columns if known.name == statement.column), None)
    if column is None:
        known_names = [name for name, _ in table_columns(written)]
        if statement.if_exists and statement.column not in known_names:
            return nothing(statement, table.name, f'column "{statement.column}" does not exist')
        raise _no_such_column(statement, table, known_names)
    definition = replace(written, columns=tuple(known for known in written.columns if known is not column))
    _check_unused(statement, table, written, definition)
    renews_source = column.generated is None
    try:
        check_table(definition)
        changes = yield from _redefined(snapshot, table, source, definition, renews_source=renews_source)
    except SqlError as error:
        raise SqlError(
            INVALID_DEFINITION,
            f'column "{column.name}" of table "{table.name}" is used in its definition: {error.message}',
            span=statement.name.span,
            hint="drop first what is computed of it; SHOW CREATE TABLE tells what",
        ) from error
    using = yield from _using(snapshot, after(snapshot, tuple(changes)), table)
    if using and not statement.is_cascade:
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot drop column "{column.name}" of table "{table.name}" because other objects use it: '
            + ", ".join(f'{spoken(record.kind)} "{record.name}"' for record in using),
            span=statement.name.span,
            hint="drop them first, or use DROP COLUMN … CASCADE, which drops them and what depends on them",
        )
    span = statement.name.span
    found = [
        drop for user in using for drop in drop_with_dependents(snapshot, user.id, user.kind, user.name, span, True)
    ]
    drops = tuple(dict.fromkeys(drop for drop in found if isinstance(drop, DropObject)))
    ids = [drop.id for drop in drops]
    gone = [record for record in map(snapshot.get, ids) if isinstance(record, MaterializedViewRecord | SinkRecord)]
    plan = _plan(
        statement,
        snapshot,
        table,
        "DROP COLUMN",
        [*drops, *forget_fragments(snapshot, ids), *changes],
        f"column {column.name} dropped: records' values of it are left out from now on",
    )
    dropped = (ObjectChange(object=record.name, change="DROPPED", detail=spoken(record.kind)) for record in gone)
    return replace(plan, changes=(*dropped, *plan.changes))


def refuse_rename_column(statement: AlterTableRenameColumn) -> Asking[Plan]:
    """ALTER TABLE … RENAME COLUMN: raises SqlError NOT_SUPPORTED."""
    raise SqlError(
        NOT_SUPPORTED,
        "ALTER TABLE … RENAME COLUMN is not supported yet: a column's name is the field that records are read by",
        span=statement.span,
        hint=f"ALTER TABLE {statement.name} ADD COLUMN {quoted(statement.new_column)} …, which records fill from then "
        f"on; or a materialized view with {quoted(statement.column)} AS {quoted(statement.new_column)}",
    )


def _require_no_refresh(snapshot: Snapshot, table: TableRecord, statement: Statement, what: str) -> None:
    if refresh_of(snapshot, table.id) is not None:
        raise SqlError(
            NOT_SUPPORTED,
            f'table "{table.name}" is loaded as a whole: {what} is not supported yet',
            span=statement.span,
            hint=f"DROP TABLE {quoted(table.name)} and create it as you want it: SHOW CREATE TABLE tells how",
        )


def _no_such_column(statement: AlterTableDropColumn, table: TableRecord, known: list[str]) -> SqlError:
    if statement.column in known:
        return SqlError(
            NOT_SUPPORTED,
            f'column "{statement.column}" of table "{table.name}" comes from INCLUDE: dropping it is not supported yet',
            span=statement.name.span,
            hint="leave it: views that name their columns do not see it",
        )
    near = near_names(statement.column, known)
    return SqlError(
        UNDEFINED_COLUMN,
        f'table "{table.name}" has no column "{statement.column}"',
        span=statement.name.span,
        hint=f'did you mean "{near[0]}"?' if near else f"it has {', '.join(known)}",
    )


def _check_unused(statement: AlterTableDropColumn, table: TableRecord, written: CreateTable, left: CreateTable) -> None:
    """Raises SqlError where the column tells which rows are one, or nothing would be left of the source."""
    name, of_table = statement.column, f'table "{table.name}"'
    is_required = any(field["name"] == name and not field["nullable"] for field in json.loads(table.schema)["fields"])
    refused = (
        (name in primary_key(written), f'column "{name}" identifies the rows of {of_table}'),
        (name in written.version_columns, f'column "{name}" tells the versions of the rows of {of_table}'),
        (not source_of_table(left).columns, f'column "{name}" is the only one that {of_table} has of records'),
        (is_required, f'column "{name}" cannot be NULL in the files of {of_table}, which an older version has made'),
    )
    for is_so, what in refused:
        if is_so:
            raise SqlError(
                INVALID_DEFINITION,
                f"{what}: it cannot be dropped",
                span=statement.name.span,
                hint="make another table without it, and move views and sinks there",
            )


def _redefined(
    snapshot: Snapshot, table: TableRecord, source: SourceRecord, definition: CreateTable, *, renews_source: bool
) -> Asking[list[Change]]:
    """The changes that give a table, and its source where that has the column too, another definition."""
    changes: list[Change] = []
    of_source = source_of_table(definition)
    if renews_source:
        check_source(snapshot, of_source)
        source = source_record(snapshot, source, of_source)
        changes.append(PutObject(record=source))
    made = yield from table_record(after(snapshot, tuple(changes)), source, definition, table.dialect)
    had, has = ({name for name, _ in schema_columns(schema)} for schema in (table.schema, made.schema))
    kept = tuple((name, since) for name, since in table.added_columns if name in has)
    record = replace(
        made,
        id=table.id,
        generation=table.generation,
        created_at_ms=table.created_at_ms,
        has_change_feed=table.has_change_feed,
        added_columns=(*kept, *((name, snapshot.next_id) for name in has - had)),
        dropped_columns=(*table.dropped_columns, *(had - has)),
    )
    return [*changes, PutObject(record=record)]


def _using(snapshot: Snapshot, then: Snapshot, table: TableRecord) -> Asking[list[ObjectRecord]]:
    """The views and sinks right above a table that would have other columns, or none, after it lost one."""
    found: list[ObjectRecord] = []
    for record in snapshot.readers_of(table.id):
        inputs = [known for known in map(then.get, record.inputs) if known is not None]
        relations = tuple(replace(relation_of(known), columns=seen_columns(known, record.id)) for known in inputs)
        wanted = [name for name, _ in schema_columns(record.schema)]
        if record.query:
            made = yield from analysis(record.query, relations, form=WHOLE)
            left = [name for name, _ in schema_columns(made.schema)] if made.refusal is None else []
        else:
            left = [name for relation in relations for name, _ in relation.columns if name in wanted]
        if left != wanted:
            found.append(record)
    return found


def _plan(
    statement: Statement, snapshot: Snapshot, table: TableRecord, kind: str, changes: list[Change], detail: str
) -> Plan:
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(table.name, *(found.name for found in snapshot.dependents_of(table.id))),
            changes=tuple(changes),
        ),
        changes=(ObjectChange(object=table.name, change="ALTERED", detail=detail),),
        affected=tuple(id_ for id_ in (table.source_id, table.id) if id_ is not None),
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
