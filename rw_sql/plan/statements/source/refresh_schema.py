"""Lowers ALTER SOURCE … REFRESH SCHEMA, which adopts the newest schema from the schema registry and appends the columns
of its new fields to the source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.definitions import definition_of
from rw_sql.model.object_lookup import find_source
from rw_sql.plan.checks.schema_changes import changed_definition, schema_change
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing, source_record
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.checks.schema_changes import SchemaChange
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterRefreshSchema


def lower_refresh_source_schema(statement: AlterRefreshSchema, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER SOURCE … REFRESH SCHEMA. In existing rows, the new columns are NULL. Existing views do not get the
    new columns.

    Raises SqlError if columns would be dropped or changed.
    """
    source = find_source(snapshot, statement.name)
    span = statement.name.span
    definition = definition_of(source)
    change = schema_change(definition, source.name, span, snapshot, inspector)
    if change.is_same:
        return nothing(statement, source.name, "the registry has no newer schema")
    changed = changed_definition(definition, change, span)
    check_source(snapshot, changed)
    record = replace(
        source_record(snapshot, source, changed),
        added_columns=(*source.added_columns, *((name, snapshot.next_id) for name, _ in change.added)),
    )
    made = PutObject(record=record)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (made,)),
        operation=Operation(
            kind="REFRESH SCHEMA",
            statement=render(statement),
            objects=(source.name, *(record.name for record in snapshot.dependents_of(source.id))),
            changes=(made,),
        ),
        changes=(rows := schema_rows(source.name, change)),
        notes=tuple(row.detail for row in rows),
        affected=(source.id,),
    )


def schema_rows(name: str, change: SchemaChange) -> tuple[ResultRow, ...]:
    """Returns the result rows about a change to the schema. There is one row for each new column, and one row for each
    new field that does not become a column."""
    told = [f"column {column} {kind} added: NULL in existing rows" for column, kind in change.added]
    told += [
        f"field {field} has no column: a column for it was dropped, and the log still contains that column's values"
        for field in change.omitted
    ]
    nothing_new = "the source already has the registry's newest schema; no new columns"
    return tuple(ResultRow(object=name, change="ALTERED", detail=detail) for detail in told or [nothing_new])
