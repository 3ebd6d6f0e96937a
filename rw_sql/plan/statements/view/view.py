"""Lowers CREATE and DROP MATERIALIZED VIEW."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.support.wide_offsets import number_of_records
from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, PutObject, SourceRecord
from rw_sql.model.object_lookup import find_view, object_name, require_free
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.source_readers import forget_fragments
from rw_sql.plan.queries.delta_inputs import only_appended
from rw_sql.plan.queries.maintenance import how_maintained, kept_as
from rw_sql.plan.queries.view_query import plan_query
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import (
    begin_reading,
    drop_plan,
    drop_with_dependents,
    nothing,
    require_not_rebuilding,
)
from rw_sql.plan.statements.view.backfill_plan import plan_histories, startup_of, view_options
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import spark_name
from rw_sql.syntax.query.tables_read import repeated_tables

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import CreateMaterializedView, DropMaterializedView


def lower_create_materialized_view(
    statement: CreateMaterializedView, snapshot: Snapshot, inspector: Inspector, query_dialect: str
) -> Plan:
    """Lowers CREATE MATERIALIZED VIEW. The query must read at least one source, table, view or Delta table, and rw_sql
    must be able to keep its result up to date."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("materialized_view", name):
        return nothing(statement, name, f'materialized view "{name}" already exists')
    require_free(snapshot, statement.name)
    given = view_options(statement)
    found = plan_query(
        snapshot,
        inspector,
        statement.query,
        f'materialized view "{name}"',
        query_dialect,
        closes_windows=statement.is_emit_on_window_close,
        columns=statement.columns,
    )
    added: list[Change] = [PutObject(record=table) for table in found.new]
    base, snapshot = snapshot, after(snapshot, tuple(added))
    require_not_rebuilding(snapshot, found.inputs, statement.name.span)
    history = plan_histories(
        snapshot,
        inspector,
        found.inputs,
        given.startup,
        name,
        startup_of(statement),
        statement.name.span,
        is_recomputed=found.maintenance.is_recomputed,
        is_new=True,
    )
    record = MaterializedViewRecord(
        id=snapshot.next_id,
        name=name,
        definition=render(replace(statement, if_not_exists=False)),
        query=found.text,
        inputs=found.inputs,
        schema=found.schema,
        keys=found.keys,
        dialect=query_dialect,
        created_at_ms=inspector.clock(),
        histories=history.texts,
        backfill_rate_limit=given.rate_limit,
        maintenance=found.maintenance,
        parallelism=given.parallelism or streaming_parallelism(snapshot),
        resource_group=given.group,
    )
    changes: list[Change] = [*added, PutObject(record=record)]
    for input_id in record.inputs:
        source = snapshot.get(input_id)
        if isinstance(source, SourceRecord) and not source.is_shared:
            if source.name in repeated_tables(record.query):
                raise SqlError(
                    NOT_SUPPORTED,
                    f'source "{source.name}" is not shared, so a query can read it only once',
                    span=statement.query.span,
                    hint="create a view of the source, or read the source once: WITH one AS (SELECT * FROM "
                    f"{spark_name(source.name)}) SELECT …",
                )
            changes += begin_reading(snapshot, inspector, source, record, given.startup, statement.name.span)
        if isinstance(source, MaterializedViewRecord) and source.keys and not source.has_change_feed:
            changes.append(PutObject(record=replace(source, has_change_feed=True)))
    how = kept_as(record)
    if history.offsets:
        how += f"; {number_of_records(history.offsets)} of history to read"
    return Plan(
        statement=statement,
        steps=steps_of(base, tuple(changes)),
        operation=Operation(
            kind="CREATE MATERIALIZED VIEW", statement=render(statement), objects=(name,), changes=tuple(changes)
        ),
        changes=(
            ResultRow(object=name, change="CREATED", detail=how),
            *(ResultRow(object=name, change="NOTICE", detail=notice) for notice in history.notices),
            *((ResultRow(object=name, change="NOTICE", detail=found.notice),) if found.notice else ()),
            *(ResultRow(object=name, change="NOTICE", detail=said) for said in only_appended(snapshot, record.inputs)),
        ),
        affected=(record.id,),
        notes=(how_maintained(record),),
    )


def lower_drop_materialized_view(statement: DropMaterializedView, snapshot: Snapshot) -> Plan:
    """Lowers DROP MATERIALIZED VIEW. The statement fails if other objects read the view. With CASCADE, it drops these
    objects too."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("materialized_view", name) is None:
        return nothing(statement, name, f'materialized view "{name}" does not exist')
    view = find_view(snapshot, statement.name)
    changes = drop_with_dependents(
        snapshot, view.id, "materialized_view", name, statement.name.span, statement.is_cascade
    )
    changes += forget_fragments(snapshot, (change.id for change in changes if isinstance(change, DropObject)))
    return drop_plan(statement, snapshot, "DROP MATERIALIZED VIEW", changes)
