"""Lowers ALTER SYSTEM SET and SET."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DropObject, Operation, ParameterRecord, PutObject
from rw_sql.model.parameters import read_value, session_parameter, system_parameter
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.syntax.statements import AlterSystemSet, SetParameter


def lower_alter_system_set(statement: AlterSystemSet, snapshot: Snapshot) -> Plan:
    """Lowers ALTER SYSTEM SET, which stores a parameter for all sessions of the warehouse."""
    parameter = system_parameter(statement.parameter, statement.parameter_span)
    stored = snapshot.find("parameter", parameter.name)
    change: Change | None
    if statement.value is None:
        value = parameter.default
        change = DropObject(id=stored.id) if stored else None
    else:
        value = read_value(parameter, statement.value.text, statement.value.span)
        id_ = stored.id if stored else snapshot.next_id
        is_same = isinstance(stored, ParameterRecord) and stored.value == value
        change = None if is_same else PutObject(record=ParameterRecord(id=id_, name=parameter.name, value=value))
    if change is None:
        return Plan(
            statement=statement,
            changes=(ResultRow(object=parameter.name, change="NOTHING", detail=f"it is already {value}"),),
        )
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="ALTER SYSTEM", statement=render(statement), objects=(parameter.name,), changes=(change,)
        ),
        changes=(ResultRow(object=parameter.name, change="SET", detail=value),),
    )


def lower_set_parameter(statement: SetParameter, snapshot: Snapshot) -> Plan:
    """Lowers SET, which sets a parameter for this session only. Nothing is stored."""
    if statement.is_local or statement.more_values:
        what = "SET LOCAL" if statement.is_local else "a list of values"
        raise SqlError(
            NOT_SUPPORTED,
            f"{what} is not supported",
            span=statement.parameter_span,
            hint=f"write one value, for this session only: SET {statement.parameter} = …",
        )
    parameter = session_parameter(statement.parameter, statement.parameter_span)
    value = None if statement.value is None else read_value(parameter, statement.value.text, statement.value.span)
    return Plan(
        statement=statement,
        changes=(ResultRow(object=parameter.name, change="SET", detail=value or parameter.default),),
        session=(parameter.name, value),
    )
