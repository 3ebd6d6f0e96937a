"""Lowers ALTER … SET SCHEMA. Other objects that read or use the moved object continue to read or use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.object_lookup import (
    bare_name,
    find_connection,
    find_secret,
    is_schema,
    object_name,
    require_free,
    require_free_of_kind,
    undefined_schema,
)
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.table.new_name_plan import new_name_plan
from rw_sql.plan.statements.table.rename import find_named
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord, SecretRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan
    from rw_sql.plan.statements.table.new_names import Named
    from rw_sql.syntax.statements import AlterSetSchema


def lower_alter_set_schema(statement: AlterSetSchema, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SET SCHEMA. The object keeps its rows. The object and its readers continue at their positions."""
    record: Named | ConnectionRecord | SecretRecord
    match statement.kind:
        case "CONNECTION":
            record = find_connection(snapshot, statement.name)
        case "SECRET":
            record = find_secret(snapshot, statement.name)
        case _:
            record = find_named(statement, statement.name, snapshot, "SET SCHEMA")
    schema = object_name(statement.schema)
    if not is_schema(snapshot, schema):
        raise undefined_schema(snapshot, schema, statement.schema.span)
    last = bare_name(snapshot, record.name)
    written = Name(parts=(last,) if schema == PUBLIC else (schema, last), span=statement.schema.span)
    new = object_name(written)
    if new == record.name:
        return nothing(statement, record.name, f'it is already in schema "{schema}"')
    require_free_name(snapshot, record, written)
    return new_name_plan(
        statement,
        snapshot,
        inspector,
        record,
        new,
        kind=f"SET SCHEMA {statement.kind}",
        change="MOVED",
        span=statement.name.span,
    )


def require_free_name(snapshot: Snapshot, record: Named | ConnectionRecord | SecretRecord, name: Name) -> None:
    """Raises SqlError if another object already has the name that ``record`` would get."""
    if record.kind in ("connection", "secret"):
        require_free_of_kind(snapshot, record.kind, name)
    else:
        require_free(snapshot, name, renamed=record.name)
