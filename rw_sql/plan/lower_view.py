"""Lowers CREATE and DROP MATERIALIZED VIEW."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, INVALID_QUERY, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, SourceRecord
from rw_sql.plan.definitions import definition_of, source_columns, source_watermark
from rw_sql.plan.lower_source import drop_plan, drop_with_dependents, nothing
from rw_sql.plan.names import find_relation, find_view, object_name, require_free, spark_query
from rw_sql.plan.plan import ObjectChange, Plan
from rw_sql.plan.requests import Asking, Relation, analysis, clock
from rw_sql.plan.steps import steps_of
from rw_sql.syntax import render
from rw_sql.syntax.dialect import to_spark
from rw_sql.syntax.queries import table_names

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.statements import CreateMaterializedView, DropMaterializedView

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What Delta Lake takes in no column name (Delta protocol, without column mapping)."""


def relation_of(record: ObjectRecord) -> Relation:
    """A source or view as a query sees it."""
    if isinstance(record, SourceRecord):
        statement = definition_of(record)
        return Relation(name=record.name, columns=source_columns(statement), watermark=source_watermark(statement))
    if isinstance(record, MaterializedViewRecord):
        return Relation(name=record.name, columns=schema_columns(record.schema))
    raise TypeError(f"{record.kind} {record.name} is not a relation")


def schema_columns(schema: str) -> tuple[tuple[str, str], ...]:
    """The columns of a Spark schema in JSON, with their types as DDL."""
    return tuple((field["name"], _ddl(field["type"])) for field in json.loads(schema)["fields"])


def _ddl(kind: object) -> str:
    match kind:
        case {"type": "array", "elementType": element}:
            return f"ARRAY<{_ddl(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"MAP<{_ddl(key)}, {_ddl(value)}>"
        case {"type": "struct", "fields": [*fields]}:
            return "STRUCT<" + ", ".join(f"`{f['name']}`: {_ddl(f['type'])}" for f in fields) + ">"
        case str():
            return {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}.get(kind, kind.upper())
        case _:
            raise ValueError(f"not a Spark type in JSON: {kind!r}")


def lower_create_materialized_view(
    statement: CreateMaterializedView, snapshot: Snapshot, query_dialect: str
) -> Asking[Plan]:
    """CREATE MATERIALIZED VIEW: its query must read a source or view and be one that Spark can keep up to date."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("materialized_view", name):
        return nothing(statement, name, f'materialized view "{name}" already exists')
    require_free(snapshot, statement.name)
    if statement.columns or statement.options:
        what = "a column list" if statement.columns else "WITH"
        raise SqlError(
            NOT_SUPPORTED,
            f"{what} of CREATE MATERIALIZED VIEW is not supported yet",
            span=statement.name.span,
            hint="name the columns in the query with AS" if statement.columns else None,
        )
    closes = statement.is_emit_on_window_close
    if query_dialect == "risingwave":
        translated = to_spark(statement.query, is_emit_on_window_close=closes)
        written, tables = translated.text, translated.tables
    else:
        written, tables = statement.query.text, table_names(statement.query.text)
    read = [find_relation(snapshot, table) for table in tables]
    inputs = tuple(dict.fromkeys(record.id for record in read if record is not None))
    if not inputs:
        raise SqlError(
            INVALID_QUERY,
            f'the query of materialized view "{name}" reads no source or materialized view',
            span=statement.query.span,
            hint="SHOW SOURCES lists what can be read",
        )
    records = tuple(record for record in (snapshot.get(id_) for id_ in inputs) if record is not None)
    for record in records:
        if isinstance(record, MaterializedViewRecord) and record.keys:
            raise SqlError(
                NOT_SUPPORTED,
                f'materialized view "{record.name}" replaces its rows; views over it are not supported yet',
                span=statement.query.span,
                hint="read its source instead",
            )
    query = spark_query(written, [record.name for record in records])
    found = yield from analysis(query, tuple(relation_of(record) for record in records), closes_windows=closes)
    if found.refusal is not None:
        raise SqlError(INVALID_QUERY, found.refusal, hint=found.hint, span=statement.query.span)
    names = [column for column, _ in schema_columns(found.schema)]
    unnamed = next((column for column in names if set(column) & _NOT_IN_NAMES), None)
    if unnamed is not None:
        raise SqlError(
            INVALID_QUERY,
            f'column "{unnamed}" of materialized view "{name}" needs a name',
            span=statement.query.span,
            hint=f"{unnamed} AS a_name: Delta Lake takes no spaces, brackets, commas, semicolons or = in column names",
        )
    twice = next((column for column in names if [n.lower() for n in names].count(column.lower()) > 1), None)
    if twice is not None:
        raise SqlError(
            DUPLICATE_OBJECT,
            f'column "{twice}" occurs more than once in materialized view "{name}"',
            span=statement.query.span,
            hint="rename one of them with AS",
        )
    record = MaterializedViewRecord(
        id=snapshot.next_id,
        name=name,
        definition=render(replace(statement, if_not_exists=False)),
        query=query,
        inputs=inputs,
        schema=found.schema,
        keys=found.keys,
        dialect=query_dialect,
        created_at_ms=(yield from clock()),
    )
    change = PutObject(record=record)
    how = f"one row per ({', '.join(found.keys)})" if found.keys else "append-only"
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="CREATE MATERIALIZED VIEW", statement=render(statement), objects=(name,), changes=(change,)
        ),
        changes=(ObjectChange(object=name, change="CREATED", detail=how),),
        affected=(record.id,),
    )


def lower_drop_materialized_view(statement: DropMaterializedView, snapshot: Snapshot) -> Asking[Plan]:
    """DROP MATERIALIZED VIEW: refused while others read it, unless CASCADE drops them too."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("materialized_view", name) is None:
        return nothing(statement, name, f'materialized view "{name}" does not exist')
    view = find_view(snapshot, statement.name)
    yield from ()
    changes = drop_with_dependents(
        snapshot, view.id, "materialized_view", name, statement.name.span, statement.is_cascade
    )
    return drop_plan(statement, snapshot, "DROP MATERIALIZED VIEW", changes)
