"""Lowers ALTER {MATERIALIZED VIEW | TABLE | SOURCE | SINK} … RENAME TO.

The readers of the renamed object continue to read it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, WRONG_KIND, SqlError
from rw_sql.model.object_lookup import (
    find_sink,
    find_source,
    find_table,
    find_view,
    object_name,
    require_free,
    schema_of,
)
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.table.new_name_plan import new_name_plan
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted, sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan
    from rw_sql.plan.statements.table.new_names import Named
    from rw_sql.syntax.statements import AlterRename, AlterSetSchema, AlterSwap, Name


def lower_alter_rename(statement: AlterRename, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers RENAME TO. The object keeps its rows. The object and its readers continue at their positions."""
    record = find_named(statement, statement.name, snapshot, "RENAME TO")
    written = _in_its_schema(snapshot, statement.new_name, record.name)
    new = object_name(written)
    if new == record.name:
        return nothing(statement, record.name, "it already has this name")
    require_free(snapshot, written, renamed=record.name)
    return new_name_plan(
        statement,
        snapshot,
        inspector,
        record,
        new,
        kind=f"RENAME {statement.kind}",
        change="RENAMED",
        span=statement.name.span,
    )


def _in_its_schema(snapshot: Snapshot, new: Name, old: str) -> Name:
    """Returns the name ``new`` in the schema of the object ``old``. If the schema is not ``public``, the result is
    qualified with it. Raises SqlError if ``new`` specifies another schema."""
    schema = schema_of(snapshot, old)
    if new.schema is None and schema != PUBLIC and len(new.parts) == 1:
        return replace(new, parts=(schema, new.last))
    if new.schema is not None and new.schema != schema:
        raise SqlError(
            NOT_SUPPORTED,
            f'RENAME TO cannot move "{old}" from schema "{schema}" to "{new.schema}"',
            span=new.span,
            hint=f"RENAME TO {quoted(new.last)}; then ALTER … SET SCHEMA {quoted(new.schema)}",
        )
    return new


def find_named(
    statement: AlterRename | AlterSetSchema | AlterSwap, name: Name, snapshot: Snapshot, words: str
) -> Named:
    """The object that a statement renames or moves. ``words`` is the clause for messages, such as RENAME TO. Raises
    SqlError if the object does not exist. Also raises SqlError if the object is the source of a table, because a
    table's source is renamed together with the table."""
    match statement.kind:
        case "MATERIALIZED VIEW":
            return find_view(snapshot, name)
        case "TABLE":
            return find_table(snapshot, name)
        case "SINK":
            return find_sink(snapshot, name)
        case "SOURCE":
            source = find_source(snapshot, name)
            if snapshot.table_of(source.id) is not None:
                raise SqlError(
                    WRONG_KIND,
                    f'source "{source.name}" belongs to table "{source.name}", which has the same name',
                    span=name.span,
                    hint=f"ALTER TABLE {sql_name(source.name)} {words} … changes both",
                )
            return source
        case kind:
            raise SqlError(
                NOT_SUPPORTED,
                f"ALTER {kind} … {words} is not supported",
                span=statement.span,
                hint=f"{words} supports SOURCE, TABLE, MATERIALIZED VIEW and SINK",
            )
