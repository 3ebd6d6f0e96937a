"""Lowers the statements about resource groups: ALTER … SET RESOURCE_GROUP and SHOW CLUSTER."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import CONCURRENT_CHANGE, INVALID_OPTION, SYNTAX_ERROR, SqlError
from rw_sql.metastore.records import (
    MaterializedViewRecord,
    Operation,
    PutObject,
    RebuildRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.definitions import GROUP_OPTION, definition_of, sink_definition, table_definition, view_definition
from rw_sql.model.object_lookup import find_sink, find_source, find_table, find_view
from rw_sql.model.resource_groups import group_of, grouped, in_group, require_group_name
from rw_sql.plan.result.plan import Plan, ResultRow, Table
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.statements import AlterReset, AlterSet, NumberValue, Option, TextValue

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import ShowObjects

_Moved = TypeVar("_Moved", bound="SourceRecord | MaterializedViewRecord | SinkRecord")

_CLUSTER = (
    ("resource_group", "STRING"),
    ("state", "STRING"),
    ("owner", "STRING"),
    ("host", "STRING"),
    ("pid", "BIGINT"),
    ("version", "STRING"),
    ("since", "TIMESTAMP"),
    ("heartbeat", "TIMESTAMP"),
    ("applied_epoch", "BIGINT"),
    ("jobs", "BIGINT"),
    ("hint", "STRING"),
)


def lower_alter_resource_group(statement: AlterSet | AlterReset, snapshot: Snapshot) -> Plan:
    """Lowers ALTER … SET RESOURCE_GROUP TO g and RESET RESOURCE_GROUP. The owner of the old group stops the object's
    job before the owner of the new group starts the job.

    A table and its source move together.
    """
    if statement.is_deferred:
        raise SqlError(
            INVALID_OPTION,
            "a move to another resource group cannot be deferred",
            span=statement.parameter_span,
            hint="omit DEFERRED: the job continues where it was",
        )
    wanted: tuple[Option, ...] = ()
    if isinstance(statement, AlterSet) and statement.values:
        wanted = (_option(statement),)
    found = _records(statement, snapshot)
    moved = [_moved(record, wanted, snapshot) for record in found]
    first = found[0]
    if all(new.resource_group == old.resource_group for old, new in zip(found, moved, strict=True)):
        return nothing(statement, first.name, f"it is already in resource group {first.resource_group}")
    ids = {record.id for record in found}
    # The records of rebuilds change too, because a swap replaces the record of the view with the record in the view's
    # rebuild.
    rebuilds = [
        replace(rebuild, view=_moved(rebuild.view, wanted, snapshot))
        for rebuild in snapshot.all("rebuild")
        if rebuild.view is not None and rebuild.view_id in ids
    ]
    changes = tuple(PutObject(record=record) for record in (*moved, *rebuilds))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind=f"ALTER {statement.kind} SET RESOURCE_GROUP",
            statement=render(statement),
            objects=(first.name,),
            changes=changes,
        ),
        changes=(
            ResultRow(
                object=first.name,
                change="ALTERED",
                detail=f"{GROUP_OPTION}: {first.resource_group} -> {moved[0].resource_group}",
            ),
        ),
        affected=tuple(record.id for record in found),
    )


def _option(statement: AlterSet) -> Option:
    value, *more = statement.values
    text = getattr(value, "text", None)
    if more or not isinstance(text, str) or isinstance(value, NumberValue):
        raise SqlError(
            SYNTAX_ERROR,
            "expected one name of a resource group",
            span=value.span,
            hint=f"ALTER {statement.kind} {sql_name(statement.name.key)} SET RESOURCE_GROUP TO 'a_group'",
        )
    name = require_group_name(text, value.span)
    return Option(key=GROUP_OPTION, value=TextValue(text=name, span=value.span), span=value.span)


def _records(
    statement: AlterSet | AlterReset, snapshot: Snapshot
) -> list[SourceRecord | MaterializedViewRecord | SinkRecord]:
    match statement.kind:
        case "SOURCE":
            named = find_source(snapshot, statement.name)
            of_it = snapshot.table_of(named.id)
            return [named, *((of_it,) if of_it is not None else ())]
        case "SINK":
            return [find_sink(snapshot, statement.name)]
        case "TABLE":
            table = find_table(snapshot, statement.name)
            source = snapshot.get(table.source_id) if table.source_id is not None else None
            return [table, *((source,) if isinstance(source, SourceRecord) else ())]
        case _:
            return [find_view(snapshot, statement.name)]


def _moved(record: _Moved, wanted: tuple[Option, ...], snapshot: Snapshot) -> _Moved:
    gone = () if wanted else (GROUP_OPTION,)
    if isinstance(record, SourceRecord):
        source = merge_options(definition_of(record), wanted, gone)
        return in_group(replace(record, definition=render(source)), wanted, snapshot)
    if isinstance(record, SinkRecord):
        sink = merge_options(sink_definition(record.definition), wanted, gone)
        return in_group(replace(record, definition=render(sink)), wanted, snapshot)
    if isinstance(record, TableRecord):
        table = merge_options(table_definition(record.definition), wanted, gone)
        return in_group(replace(record, definition=render(table)), wanted, snapshot)
    view = merge_options(view_definition(record.definition), wanted, gone)
    return in_group(replace(record, definition=render(view)), wanted, snapshot)


def require_no_rewind(plan: Plan, snapshot: Snapshot, inspector: Inspector) -> None:
    """Raises SqlError CONCURRENT_CHANGE if a plan conflicts with an unfinished REWIND of a source. A plan conflicts if
    it moves the source or one of its dependents to another resource group, or if it creates or rebuilds a dependent.

    During the REWIND, the owner of the source's group replaces the tables and checkpoints of these jobs, so no other
    owner may run the jobs. A new dependent would begin reading the log before the commit that restores the log, but no
    stream can read past that commit.
    """
    rewinds = snapshot.all("rewind")
    if plan.operation is None or not rewinds:
        return
    put = [change.record for change in plan.operation.changes if isinstance(change, PutObject)]
    for rewind in rewinds:
        concerned = {rewind.source_id, *(record.id for record in snapshot.dependents_of(rewind.source_id))}
        for record in put:
            why = _meets_rewind(record, snapshot, concerned)
            if why and rewind.epoch not in inspector.rewinds.carried_out():
                group = group_of(snapshot, rewind.source_id)
                serve = inspector.jobs.serve_command(group)
                raise SqlError(
                    CONCURRENT_CHANGE,
                    f'"{record.name}" cannot {why} until REWIND SOURCE '
                    f"{sql_name(rewind.name)} TO OPERATION {rewind.operation} is complete",
                    span=getattr(getattr(plan.statement, "name", None), "span", None),
                    hint="repeat this statement once the REWIND is complete; SHOW JOBS shows the jobs that wait for "
                    f"it; if no process runs them: {serve}",
                )


def _meets_rewind(record: ObjectRecord, snapshot: Snapshot, concerned: set[int]) -> str:
    """Checks a change that stores ``record`` against a REWIND of the objects ``concerned``. If the REWIND forbids the
    change, returns a description of the change for an error message. Otherwise, returns the empty string."""
    if isinstance(record, RebuildRecord):
        is_new = snapshot.get(record.id) != record
        inputs = () if record.view is None else record.view.inputs
        return "be rebuilt" if is_new and not concerned.isdisjoint((record.view_id, *inputs)) else ""
    if not isinstance(record, SourceRecord | MaterializedViewRecord | SinkRecord):
        return ""
    if snapshot.get(record.id) is None:
        return "" if concerned.isdisjoint(getattr(record, "inputs", ())) else "be created"
    moves = record.id in concerned and record.resource_group != group_of(snapshot, record.id)
    return f"be in resource group {record.resource_group}" if moves else ""


def lower_show_cluster(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW CLUSTER, which lists each resource group that has objects or ever had an owner, with the group's last
    owner."""
    owners = inspector.jobs.owners()
    jobs: dict[str, int] = {}
    for record in grouped(snapshot):
        jobs[record.resource_group] = jobs.get(record.resource_group, 0) + 1
    rows: list[tuple[object, ...]] = []
    for group in sorted({*jobs, *owners}):
        owner = owners.get(group)
        count = jobs.get(group, 0)
        if owner is None:
            start = inspector.jobs.serve_command(group)
            rows.append((group, "NONE", None, None, None, None, None, None, None, count, start))
            continue
        rows.append(
            (
                group,
                owner.state,
                owner.name,
                owner.host,
                owner.pid,
                owner.version,
                _time(owner.since_ms),
                _time(owner.heartbeat_ms),
                owner.applied_epoch,
                count,
                owner.hint,
            )
        )
    return Plan(statement=statement, table=Table(columns=_CLUSTER, rows=tuple(rows)))


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
