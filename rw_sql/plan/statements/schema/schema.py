"""Lowers CREATE SCHEMA, DROP SCHEMA, USE, SET search_path and SHOW search_path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import DEPENDENTS_EXIST, DUPLICATE_OBJECT, INVALID_SCHEMA_NAME, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DropObject, Operation, PutObject, SchemaRecord
from rw_sql.model.object_lookup import is_schema, object_name, objects_in, spoken, undefined_schema
from rw_sql.plan.result.plan import Plan, ResultRow, Table
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.connection.connection import lower_drop_connection
from rw_sql.plan.statements.connection.secret import lower_drop_secret
from rw_sql.plan.statements.session.search_path import SEARCH_PATH, path_set, path_text
from rw_sql.plan.statements.sink.sink import lower_drop_sink
from rw_sql.plan.statements.source.source import lower_drop_source
from rw_sql.plan.statements.table.table import lower_drop_table
from rw_sql.plan.statements.view.view import lower_drop_materialized_view
from rw_sql.syntax import render
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector

_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_OF_SPARK = frozenset({
    "avro", "binaryfile", "builtin", "csv", "default", "delta", "global_temp", "hudi", "iceberg", "information_schema",
    "jdbc", "json", "orc", "parquet", "session", "spark_catalog", "sys", "system", "text", "xml",
})  # fmt: skip
"""Folded names that schemas cannot have, because Spark or Delta gives these names a special meaning when they qualify a
table name."""


def lower_create_schema(statement: ast.CreateSchema, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers CREATE SCHEMA, which creates a namespace in the catalog. Afterwards, sessions show the namespace as a
    Spark database with views of its objects."""
    name = _schema_name(statement.name)
    if is_schema(snapshot, name):
        if statement.if_not_exists:
            return nothing(statement, name, f'schema "{name}" already exists')
        raise SqlError(
            DUPLICATE_OBJECT,
            f'schema "{name}" already exists',
            span=statement.name.span,
            hint=f"CREATE SCHEMA IF NOT EXISTS {quoted(name)} keeps the existing schema",
        )
    _require_fit(snapshot, statement.name, name)
    if inspector.tables.is_users_database(name):
        raise SqlError(
            DUPLICATE_OBJECT,
            f'Spark already has a database "{name}", which is not a schema of this warehouse',
            span=statement.name.span,
            hint=f"use another name: CREATE SCHEMA {quoted(name + '_1')}",
        )
    change = PutObject(record=SchemaRecord(id=snapshot.next_id, name=name, created_at_ms=inspector.clock()))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(kind="CREATE SCHEMA", statement=render(statement), objects=(name,), changes=(change,)),
        changes=(ResultRow(object=name, change="CREATED", detail="schema"),),
        affected=(change.record.id,),
    )


def _require_fit(snapshot: Snapshot, written: ast.Name, name: str) -> None:
    """Raises SqlError INVALID_SCHEMA_NAME for a name that is reserved or that a Spark database cannot have. Also raises
    this error if an existing object's name contains a dot and would look like a name in the new schema."""
    why = None
    if name in _OF_SPARK or name.startswith(("rw_", "pg_")):
        why = "the name is reserved"
    elif not _NAME.match(name):
        why = "a schema is also a Spark database, whose name may contain only lower-case letters, digits and _"
    if why is not None:
        plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "schema"
        plain = f"my_{plain}" if why == "the name is reserved" or plain[0].isdigit() else plain
        raise SqlError(
            INVALID_SCHEMA_NAME,
            f'unacceptable schema name "{name}": {why}',
            span=written.span,
            hint=f"CREATE SCHEMA {plain}",
        )
    taken = next((record for record in snapshot.records.values() if record.name.startswith(f"{name}.")), None)
    if taken is not None:
        raise SqlError(
            INVALID_SCHEMA_NAME,
            f'{spoken(taken.kind)} "{taken.name}" of schema "{PUBLIC}" has a name with a dot, which would look like an '
            f'object of schema "{name}"',
            span=written.span,
            hint=f"CREATE SCHEMA {quoted(name + '_1')}, or rename that object first",
        )


def _schema_name(name: ast.Name) -> str:
    if len(name.parts) > 1:
        raise SqlError(
            NOT_SUPPORTED,
            f"the name of a schema has one part, not {name}",
            span=name.span,
            hint=f"write {quoted(name.last)} without a catalog",
        )
    return object_name(name) if "." not in name.last else name.last


def lower_drop_schema(statement: ast.DropSchema, snapshot: Snapshot) -> Plan:
    """Lowers DROP SCHEMA. The statement is refused while the schema contains objects. With CASCADE, these objects and
    all their dependents are dropped too."""
    name = _schema_name(statement.name)
    if name == PUBLIC:
        raise SqlError(
            INVALID_SCHEMA_NAME,
            f'cannot drop schema "{PUBLIC}": every warehouse has it',
            span=statement.name.span,
            hint="drop its objects one by one: SHOW LINEAGE lists them",
        )
    record = snapshot.find("schema", name)
    if record is None:
        if statement.if_exists:
            return nothing(statement, name, f'schema "{name}" does not exist')
        raise undefined_schema(snapshot, name, statement.name.span)
    inside = objects_in(snapshot, name)
    if inside and not statement.is_cascade:
        listed = ", ".join(f'{spoken(found.kind)} "{found.name}"' for found in inside)
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot drop schema "{name}" because other objects depend on it: {listed}',
            span=statement.name.span,
            hint=f"drop them or move them first (ALTER … SET SCHEMA), or use DROP SCHEMA {quoted(name)} CASCADE",
        )
    changes, rows = cascading_drops(snapshot, inside)
    changes = (*changes, DropObject(id=record.id))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind="DROP SCHEMA",
            statement=render(statement),
            objects=(name, *(row.object for row in rows)),
            changes=changes,
        ),
        changes=(*rows, ResultRow(object=name, change="DROPPED", detail="schema")),
        affected=(record.id, *(change.id for change in changes if isinstance(change, DropObject))),
    )


def cascading_drops(
    snapshot: Snapshot, inside: Iterable[ObjectRecord]
) -> tuple[tuple[Change, ...], tuple[ResultRow, ...]]:
    """The changes that drop the objects and all their dependents. Each drop is planned on the catalog that results from
    the drops before it."""
    then = snapshot
    changes: tuple[Change, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    for record in inside:
        if then.get(record.id) is None:
            continue  # The object was already dropped together with an object on which it depends.
        plan = _dropped(record, then)
        if plan is not None and plan.operation is not None:
            changes = (*changes, *plan.operation.changes)
            rows = (*rows, *plan.changes)
            then = after(then, plan.operation.changes)
    return changes, rows


def _dropped(record: ObjectRecord, snapshot: Snapshot) -> Plan | None:
    name = ast.Name.of(record.name)
    match record.kind:
        case "source":
            return lower_drop_source(ast.DropSource(name=name, is_cascade=True), snapshot)
        case "table":
            return lower_drop_table(ast.DropTable(name=name, is_cascade=True), snapshot)
        case "materialized_view":
            return lower_drop_materialized_view(ast.DropMaterializedView(name=name, is_cascade=True), snapshot)
        case "sink":
            return lower_drop_sink(ast.DropSink(name=name, is_cascade=True), snapshot)
        case "connection":
            return lower_drop_connection(ast.DropConnection(name=name, is_cascade=True), snapshot)
        case "secret":
            return lower_drop_secret(ast.DropSecret(name=name, is_cascade=True), snapshot)
        case _:
            return None


def lower_use_schema(statement: ast.UseSchema, snapshot: Snapshot) -> Plan:
    """Lowers USE s. Afterwards, unqualified names in this session refer to objects of this schema."""
    name = _schema_name(statement.name)
    if not is_schema(snapshot, name):
        raise undefined_schema(snapshot, name, statement.name.span)
    return _path_plan(statement, snapshot, (name,))


def lower_set_search_path(statement: ast.SetParameter, snapshot: Snapshot) -> Plan:
    """Lowers SET search_path, which sets the schemas in which unqualified names are looked up.

    New objects are created in the first schema of the search path that exists.
    """
    return _path_plan(statement, snapshot, path_set(statement))


def _path_plan(statement: ast.Statement, snapshot: Snapshot, path: tuple[str, ...] | None) -> Plan:
    text = PUBLIC if path is None else path_text(path)
    missing = [schema for schema in path or () if not is_schema(snapshot, schema)]
    notices = tuple(
        ResultRow(
            object=SEARCH_PATH,
            change="NOTICE",
            detail=f'schema "{schema}" does not exist; search_path skips it until CREATE SCHEMA {quoted(schema)} '
            "creates it",
        )
        for schema in missing
    )
    return Plan(
        statement=statement,
        changes=(ResultRow(object=SEARCH_PATH, change="SET", detail=text), *notices),
        session=(SEARCH_PATH, None if path in (None, (PUBLIC,)) else text),
    )


def lower_show_search_path(statement: ast.ShowParameter, path: tuple[str, ...]) -> Plan:
    """Lowers SHOW search_path, which shows the schemas of the search path."""
    table = Table(columns=((SEARCH_PATH, "STRING"),), rows=((path_text(path),),))
    return Plan(statement=statement, table=table)
