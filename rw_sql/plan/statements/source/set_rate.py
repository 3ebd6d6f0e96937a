"""Lowers ALTER SOURCE … SET parameter, which changes a source's rate without contacting its upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.definitions import definition_of
from rw_sql.model.object_lookup import find_source_of
from rw_sql.model.options import plan_options
from rw_sql.model.pauses import pauses_of
from rw_sql.model.rates import is_throttled, throttled_reason
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.effects.connection_impact import differences, spell
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing, source_record
from rw_sql.syntax import render
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.statements import Option

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.syntax.statements import AlterSet


def lower_alter_source_set(statement: AlterSet, snapshot: Snapshot) -> Plan:
    """Lowers ALTER {SOURCE | TABLE} s SET source_rate_limit or barrier_interval_ms. DEFAULT removes the parameter from
    the definition.

    The upstream is not contacted. Therefore, a source can be slowed down even if its upstream is unreachable.
    """
    source = find_source_of(snapshot, statement.kind, statement.name)
    current = definition_of(source)
    key = statement.parameter
    given = tuple(Option(key=key, value=value, span=statement.parameter_span) for value in statement.values[:1])
    merged = merge_options(current, given, () if given else (key,))
    try:
        check_source(snapshot, merged)
    except SqlError as error:
        if error.span not in (statement.parameter_span, *(value.span for value in statement.values)):
            error.span = statement.name.span
        raise
    differs = differences(plan_options(snapshot, current), plan_options(snapshot, merged))
    if not differs:
        return nothing(statement, source.name, f"{key} already has this value")
    record = source_record(snapshot, source, merged)
    change = PutObject(record=record)
    rows = [ResultRow(object=source.name, change="ALTERED", detail=spell(*each)) for each in differs]
    if is_throttled(record):
        rows.append(ResultRow(object=source.name, change="NOTICE", detail=throttled_reason(record)))
    elif is_throttled(source) and pauses_of(snapshot, source.id):
        rows.append(ResultRow(object=source.name, change="NOTICE", detail="it is paused and stays paused until RESUME"))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="ALTER SOURCE SET",
            statement=render(statement),
            objects=(source.name,),
            changes=(change,),
        ),
        changes=tuple(rows),
        affected=(source.id,),
    )
