"""Lowers ALTER TABLE … ADD, DROP and RENAME COLUMN. These statements do not rewrite existing rows.

An added column is NULL in existing rows until records replace these rows. Views and sinks that were created before the
column was added do not see the column. A dropped column is hidden, but its values stay in the table's files. A renamed
column keeps its old name in the files, and also in the source, because the records use the old name. Only the table's
definition has the new name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from rw_sql.errors import (
    DEPENDENTS_EXIST,
    DUPLICATE_CLAUSE,
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, SinkRecord, SourceRecord
from rw_sql.model.definitions import definition_of, field_of, primary_key, source_of_table, table_definition
from rw_sql.model.object_lookup import find_source_of, find_table, spoken
from rw_sql.model.refresh_states import refresh_of
from rw_sql.model.relations import renamed_schema, schema_columns, seen_columns, stored_columns, stored_name
from rw_sql.plan.checks.column_names import first_duplicate
from rw_sql.plan.checks.schema_changes import changed_definition, schema_change
from rw_sql.plan.checks.schemas import require_stored_field
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.checks.tables import check_runnable, check_table, table_columns
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import nothing, require_not_read_anew, source_record
from rw_sql.plan.statements.source.refresh_schema import schema_rows
from rw_sql.plan.statements.source.upstream_names import with_kept_names
from rw_sql.plan.statements.table.cdc_table import column_filled, require_upstream_column
from rw_sql.plan.statements.table.renamed_column import with_renamed_column
from rw_sql.plan.statements.table.table import table_record
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.query.tables_read import may_use_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord, TableRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import (
        AlterAddColumn,
        AlterRefreshSchema,
        AlterTableDropColumn,
        AlterTableRenameColumn,
        ColumnDefinition,
        CreateTable,
        Name,
        Statement,
    )


def lower_add_column(statement: AlterAddColumn, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER TABLE … ADD COLUMN. If the table has its own source, a column that is not generated is also added to
    the source's definition."""
    if statement.kind != "TABLE":
        raise SqlError(
            NOT_SUPPORTED,
            f"ALTER {statement.kind} … ADD COLUMN is not supported yet",
            span=statement.span,
            hint="use ALTER TABLE … ADD COLUMN, or create a second source",
        )
    table = find_table(snapshot, statement.name)
    source = _source(snapshot, table, statement.name)
    is_captured = table.live_from is not None
    _require_no_refresh(snapshot, table, statement, "ADD COLUMN")
    column = statement.column
    written = table_definition(table.definition)
    if statement.if_not_exists and column.name in (name for name, _ in table_columns(written)):
        return nothing(statement, table.name, f'column "{column.name}" already exists')
    _check_column(column)
    # After the addition, a table of a database is read again, so the log's values of an earlier column with this name
    # do not matter.
    if column.generated is None and not is_captured and field_of(column).lower() in _gone(table):
        raise SqlError(
            DUPLICATE_OBJECT,
            f'table "{table.name}" had a column for field "{field_of(column)}", which the log still contains',
            span=column.span,
            hint="save the definition that SHOW CREATE TABLE shows; then drop the table, and create it again with that "
            "column",
        )
    definition = replace(written, columns=(*written.columns, column))
    if is_captured:
        # Only the new column is checked. If another column is missing upstream, the source is already stalled, and this
        # must not prevent the addition of the new column.
        require_upstream_column(definition, field_of(column), snapshot, inspector, source)
    else:
        if column.generated is None:
            require_stored_field(written, column)
        check_runnable(definition)
    check_table(definition)
    table = _with_stored_name(table, column.name)
    renews_source = column.generated is None and not is_captured
    changes = _redefined(snapshot, inspector, table, source, definition, renews_source=renews_source)
    until = column_filled(written) if is_captured else "records replace them"
    detail = f"column {column.name} added: NULL in existing rows until {until}"
    return _plan(statement, snapshot, table, "ADD COLUMN", changes, detail)


def _source(snapshot: Snapshot, table: TableRecord, name: Name) -> SourceRecord:
    """The source from which a table's columns are read: the table's own source, or its change data capture source."""
    found = snapshot.get(table.inputs[0]) if table.live_from is not None else None
    return found if isinstance(found, SourceRecord) else find_source_of(snapshot, "TABLE", name)


def lower_refresh_table_schema(statement: AlterRefreshSchema, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER TABLE … REFRESH SCHEMA, which adopts the newest schema of the schema registry and appends the
    columns of its new fields.

    If a column was dropped, the statement does not add a column for the same field again. Raises SqlError if the newest
    schema lacks a column or changes its type.
    """
    table = find_table(snapshot, statement.name)
    source = find_source_of(snapshot, "TABLE", statement.name)
    written = table_definition(table.definition)
    change = schema_change(written, table.name, statement.name.span, snapshot, inspector, gone=_gone(table))
    if change.is_same:
        return nothing(statement, table.name, "the registry has no newer schema")
    definition = changed_definition(written, change, statement.name.span)
    check_runnable(definition)
    check_table(definition)
    for name, _ in change.added:
        table = _with_stored_name(table, name)
    changes = _redefined(snapshot, inspector, table, source, definition, renews_source=True)
    plan = _plan(statement, snapshot, table, "ADD COLUMN", changes, "")
    rows = schema_rows(table.name, change)
    return replace(plan, changes=rows, notes=tuple(row.detail for row in rows))


def lower_drop_column(statement: AlterTableDropColumn, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER TABLE … DROP COLUMN, which removes the column from the definition of the table and, if the table has
    its own source, from the definition of the source.

    The statement fails if a view or sink may use the column.
    """
    table = find_table(snapshot, statement.name)
    source = _source(snapshot, table, statement.name)
    _require_no_refresh(snapshot, table, statement, "DROP COLUMN")
    require_not_read_anew(snapshot, (table.id,), statement.name.span)
    written = table_definition(table.definition)
    column = next((known for known in written.columns if known.name == statement.column), None)
    if column is None:
        known_names = [name for name, _ in table_columns(written)]
        if statement.if_exists and statement.column not in known_names:
            return nothing(statement, table.name, f'column "{statement.column}" does not exist')
        raise _no_such_column(statement, table, known_names, "dropping")
    if written.format is not None and written.format.encode == "CSV":
        raise SqlError(
            NOT_SUPPORTED,
            f'column "{column.name}" cannot be dropped: the fields of CSV are identified by position',
            span=statement.column_span,
            hint="keep the column, and omit it from the SELECT lists of views",
        )
    definition = replace(written, columns=tuple(known for known in written.columns if known is not column))
    _check_unused(statement, table, written, definition)
    renews_source = column.generated is None and table.live_from is None
    try:
        check_table(definition)
        fields = (*table.dropped_fields, *((field_of(column),) if renews_source else ()))
        without = replace(table, dropped_fields=fields)
        changes = _redefined(snapshot, inspector, without, source, definition, renews_source=renews_source)
    except SqlError as error:
        raise SqlError(
            INVALID_DEFINITION,
            f'column "{column.name}" of table "{table.name}" is used in its definition: {error.message}',
            span=statement.column_span,
            hint="computed columns or the watermark may use it; SHOW CREATE TABLE shows them",
        ) from error
    _require_unused(snapshot, table, statement, column.name, "drop")
    detail = f"column {column.name} dropped: its values in new records are ignored from now on"
    return _plan(statement, snapshot, table, "DROP COLUMN", changes, detail)


def lower_rename_column(statement: AlterTableRenameColumn, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER TABLE … RENAME COLUMN. Records and files keep the old name, and the definition maps the new name to
    the old name. Like DROP COLUMN, the statement fails if a view or sink may use the column.
    """
    table = find_table(snapshot, statement.name)
    source = _source(snapshot, table, statement.name)
    _require_no_refresh(snapshot, table, statement, "RENAME COLUMN")
    require_not_read_anew(snapshot, (table.id,), statement.name.span)
    written = table_definition(table.definition)
    old, new = statement.column, statement.new_column
    if old not in (column.name for column in written.columns):
        raise _no_such_column(statement, table, [name for name, _ in table_columns(written)], "renaming")
    if old == new:
        return nothing(statement, table.name, f'column "{old}" already has this name')
    others = [name for name, _ in table_columns(written) if name != old]
    if first_duplicate([*others, new]) is not None:
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'table "{table.name}" already has a column "{new}"',
            span=statement.span,
            hint=f"give it another name: {new}_2",
        )
    _require_unused(snapshot, table, statement, old, "rename")
    _require_unknown(snapshot, table, statement)
    try:
        definition = with_renamed_column(written, old, new, table.dialect)
    except SqlError as error:
        error.span = statement.name.span
        raise
    try:
        check_table(definition)
    except SqlError as error:
        error.span = statement.span
        raise
    names = {column: new if column == old else column for column, _ in schema_columns(table.schema)}
    stored = {names[column]: called for column, called in stored_columns(table)}
    shown = replace(
        table,
        schema=renamed_schema(table.schema, names),
        added_columns=tuple((names[column], since) for column, since in table.added_columns),
        stored_names=_told(stored),
    )
    changes = _redefined(snapshot, inspector, shown, source, definition, renews_source=False)
    field = next(field_of(column) for column in definition.columns if column.name == new)
    if any(column.name == new and column.generated is not None for column in definition.columns):
        detail = f"column {old} renamed to {new}"
    elif field == new:
        detail = f"column {old} renamed to {new}, which is also the name of the field in the records"
    else:
        detail = f"column {old} renamed to {new}: it is still read from field {field} of the records"
    return _plan(statement, snapshot, table, "RENAME COLUMN", changes, detail)


def _told(stored: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns pairs (name, name in the table's files) for the columns whose two names differ."""
    return tuple((name, called) for name, called in stored.items() if name != called)


def _gone(table: TableRecord) -> frozenset[str]:
    """The names of a table's dropped columns and of the fields from which they were read, in lower case. The source's
    log still contains the values of these fields."""
    return frozenset(name.lower() for name in (*table.dropped_columns, *table.dropped_fields))


def _with_stored_name(table: TableRecord, name: str) -> TableRecord:
    """Returns the table, in which a name in the table's files is reserved for the new column ``name``. In the files,
    the column has its own name, unless an existing or dropped column uses this name there."""
    taken = {called.lower() for _, called in stored_columns(table)} | {gone.lower() for gone in table.dropped_columns}
    names = (name if number == 1 else f"{name}_{number}" for number in count(1))
    free = next(free for free in names if free.lower() not in taken)
    return table if free == name else replace(table, stored_names=(*table.stored_names, (name, free)))


def _require_unused(
    snapshot: Snapshot,
    table: TableRecord,
    statement: AlterTableDropColumn | AlterTableRenameColumn,
    column: str,
    what: str,
) -> None:
    """Raises SqlError if views or sinks that read the table directly may use ``column``. ``what`` is the verb in the
    message."""
    using = users_of_column(snapshot, table, column)
    if using:
        names = ", ".join(f'{spoken(record.kind)} "{record.name}"' for record in using)
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot {what} column "{column}" of table "{table.name}" because other objects use it: {names}',
            span=statement.column_span,
            hint="drop these objects first; CASCADE does not drop them, because they depend on the column only through "
            "their queries"
            if what == "drop"
            else "save the definitions that SHOW CREATE shows; then drop these objects, rename the column, and create "
            "them again with the new name",
        )


def _require_no_refresh(snapshot: Snapshot, table: TableRecord, statement: Statement, what: str) -> None:
    if refresh_of(snapshot, table.id) is not None:
        raise SqlError(
            NOT_SUPPORTED,
            f'table "{table.name}" is loaded as a whole: {what} is not supported yet',
            span=statement.span,
            hint=f"SHOW CREATE TABLE {sql_name(table.name)} shows its definition; then DROP TABLE "
            f"{sql_name(table.name)}, and create it again with the wanted columns",
        )


def _no_such_column(
    statement: AlterTableDropColumn | AlterTableRenameColumn, table: TableRecord, known: list[str], what: str
) -> SqlError:
    if statement.column in known:
        return SqlError(
            NOT_SUPPORTED,
            f'column "{statement.column}" of table "{table.name}" comes from INCLUDE: {what} it is not supported yet',
            span=statement.column_span,
            hint="keep the column, and omit it from the SELECT lists of views",
        )
    near = near_names(statement.column, known)
    return SqlError(
        UNDEFINED_COLUMN,
        f'table "{table.name}" has no column "{statement.column}"',
        span=statement.column_span,
        hint=f'did you mean "{near[0]}"?' if near else f"it has {', '.join(known)}",
    )


def _check_unused(statement: AlterTableDropColumn, table: TableRecord, written: CreateTable, left: CreateTable) -> None:
    """Raises SqlError if a column cannot be dropped. This is the case if the column belongs to the primary key, is a
    version column, is the only column that is read from records, or is NOT NULL in the files. ``left`` is the
    definition without the column."""
    name, of_table = statement.column, f'table "{table.name}"'
    refused = (
        (name in primary_key(written), f'column "{name}" identifies the rows of {of_table}'),
        (name in written.version_columns, f'column "{name}" is a version column of {of_table}'),
        (not source_of_table(left).columns, f'column "{name}" is the only column that {of_table} reads from records'),
        (
            name in _required(table.schema),
            f'column "{name}" is NOT NULL in the files of {of_table}, which an older version of rw_sql wrote',
        ),
    )
    for is_so, what in refused:
        if is_so:
            raise SqlError(
                INVALID_DEFINITION,
                f"{what}, so it cannot be dropped",
                span=statement.column_span,
                hint="create another table without the column, and let views and sinks read that table",
            )


def _required(schema: str) -> frozenset[str]:
    """The columns that are not nullable in a table's files. Only older versions of rw_sql created such columns, and
    only for columns with a DEFAULT."""
    return frozenset(field["name"] for field in json.loads(schema)["fields"] if not field["nullable"])


def _redefined(
    snapshot: Snapshot,
    inspector: Inspector,
    table: TableRecord,
    source: SourceRecord,
    definition: CreateTable,
    *,
    renews_source: bool,
) -> list[Change]:
    """Returns the changes that store a new definition of a table. If ``renews_source`` is True, the changes also store
    the new definition of the table's source."""
    changes: list[Change] = []
    if renews_source:
        # The table's definition lacks the names that were generated for the source's objects upstream.
        of_source = with_kept_names(definition_of(source), source_of_table(definition))
        check_source(snapshot, of_source)
        source = source_record(snapshot, source, of_source)
        changes.append(PutObject(record=source))
    columns = {name for name, _ in table_columns(definition)}
    stored_names = tuple((name, called) for name, called in table.stored_names if name in columns)
    then = after(snapshot, tuple(changes))
    made = table_record(then, inspector, source, definition, table.dialect, stored_names)
    had, has = ({name for name, _ in schema_columns(schema)} for schema in (table.schema, made.schema))
    required = _required(table.schema)
    fields = json.loads(made.schema)["fields"]
    shape = [{**field, "nullable": field["name"] not in required} for field in fields]
    kept = tuple((name, since) for name, since in table.added_columns if name in has)
    record = replace(
        made,
        id=table.id,
        name=table.name,
        source_id=table.source_id,
        live_from=table.live_from,
        backfill_rate_limit=table.backfill_rate_limit,
        generation=table.generation,
        schema=json.dumps({"type": "struct", "fields": shape}),
        created_at_ms=table.created_at_ms,
        has_change_feed=table.has_change_feed,
        group_since=table.group_since,
        added_columns=(*kept, *((name, snapshot.next_id) for name in has - had)),
        dropped_fields=table.dropped_fields,
        dropped_columns=(*table.dropped_columns, *(stored_name(table, name) for name in sorted(had - has))),
    )
    return [*changes, PutObject(record=record)]


def _require_unknown(snapshot: Snapshot, table: TableRecord, statement: AlterTableRenameColumn) -> None:
    """Raises SqlError if a view or sink that sees the column has a query that may already use the new name for
    something else."""
    old, new = statement.column, statement.new_column
    knowing = users_of_new_name(snapshot, table, old, new)
    if knowing:
        names = ", ".join(f'{spoken(record.kind)} "{record.name}"' for record in knowing)
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot rename column "{old}" of table "{table.name}": '
            f'the name "{new}" may mean something else in {names}',
            span=statement.column_span,
            hint="choose another name; or save the definitions that SHOW CREATE shows, drop these objects, rename the "
            "column, and create them again",
        )


def _queries(record: ObjectRecord) -> tuple[str, ...]:
    """The query of a view or sink. For a view, the result also has the queries that maintain the view, because these
    may contain further columns, such as those of the view's keys."""
    if isinstance(record, MaterializedViewRecord):
        kept = record.maintenance
        return tuple(query for query in (record.query, kept.query, kept.touched) if query)
    return (record.query,) if isinstance(record, SinkRecord) and record.query else ()


def users_of_column(snapshot: Snapshot, table: TableRecord, column: str) -> tuple[ObjectRecord, ...]:
    """The views and sinks that read a table directly and may use its column ``column``.

    A view or sink is included if its query contains the column's name, even if the name there denotes a column of
    another relation. A sink without a query uses all columns that it sees.
    """
    return tuple(
        record
        for record in snapshot.readers_of(table.id)
        if column in (name for name, _ in seen_columns(table, record))
        and (
            any(may_use_column(query, column) for query in _queries(record))
            if _queries(record)
            else column in (name for name, _ in schema_columns(record.schema))
        )
    )


def users_of_new_name(snapshot: Snapshot, table: TableRecord, old: str, new: str) -> tuple[ObjectRecord, ...]:
    """Returns the views and sinks that see the column ``old`` of a table, and whose queries may already use the name
    ``new`` for something else."""
    return tuple(
        record
        for record in snapshot.readers_of(table.id)
        if old in (name for name, _ in seen_columns(table, record))
        and any(may_use_column(query, new) for query in _queries(record))
    )


def _plan(
    statement: Statement, snapshot: Snapshot, table: TableRecord, kind: str, changes: list[Change], detail: str
) -> Plan:
    readers = [record.id for record in snapshot.readers_of(table.id) if isinstance(record, MaterializedViewRecord)]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(table.name, *(found.name for found in snapshot.dependents_of(table.id))),
            changes=tuple(changes),
        ),
        changes=(ResultRow(object=table.name, change="ALTERED", detail=detail),),
        affected=tuple(id_ for id_ in (table.source_id, table.id, *readers) if id_ is not None),
    )


def _check_column(column: ColumnDefinition) -> None:
    refused = (
        (
            column.default is not None,
            "a DEFAULT",
            "existing rows would not have the column: compute it in a materialized view",
        ),
        (column.is_primary_key, "PRIMARY KEY", "the columns that identify a row cannot change: create another table"),
        (column.is_not_null, "NOT NULL", "existing rows would have no value in the column: omit NOT NULL"),
    )
    for is_there, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"ADD COLUMN with {what} is not supported", span=column.span, hint=instead)
