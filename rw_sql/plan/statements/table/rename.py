"""Lowers ALTER {MATERIALIZED VIEW | TABLE} … RENAME TO; readers of the object continue to read it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import (
    MaterializedViewRecord,
    Operation,
    PauseRecord,
    PutObject,
    RewindRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.definitions import sink_definition, source_definition, table_definition, view_definition
from rw_sql.model.names import find_table, find_view, object_name, require_free
from rw_sql.model.refresh_states import refresh_of
from rw_sql.plan.requests.catalog import Asking
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.table.table import reading
from rw_sql.syntax import render
from rw_sql.syntax.query.rename_relation import renamed_relation
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.syntax.statements import AlterRename, Query


def lower_alter_rename(statement: AlterRename, snapshot: Snapshot) -> Asking[Plan]:
    """RENAME TO of a materialized view or table; rows and positions stay."""
    yield from ()
    if statement.kind not in ("MATERIALIZED VIEW", "TABLE"):
        raise SqlError(
            NOT_SUPPORTED,
            f"ALTER {statement.kind} … RENAME TO is not supported yet",
            span=statement.span,
            hint="ALTER MATERIALIZED VIEW … RENAME TO and ALTER TABLE … RENAME TO are",
        )
    is_table = statement.kind == "TABLE"
    view = find_table(snapshot, statement.name) if is_table else find_view(snapshot, statement.name)
    new = object_name(statement.new_name)
    if new == view.name:
        return nothing(statement, view.name, "it has this name already")
    require_free(snapshot, statement.new_name)
    changes = _renamed_table(snapshot, view, new) if isinstance(view, TableRecord) else [_renamed_view(view, new)]
    rows = [ResultRow(object=new, change="RENAMED", detail=f"was {view.name}")]
    for reader in snapshot.readers_of(view.id):
        try:
            changes.append(PutObject(record=_reading(reader, view.name, new)))
        except SqlError as error:
            error.message = f"{reader.kind.replace('_', ' ')} {reader.name}: {error.message}"
            error.span = statement.name.span
            raise
        rows.append(ResultRow(object=reader.name, change="ALTERED", detail=f"reads {new}"))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=f"RENAME {statement.kind}",
            statement=render(statement),
            objects=(new, view.name, *(row.object for row in rows[1:])),
            changes=tuple(changes),
        ),
        changes=tuple(rows),
        affected=(view.id,),
    )


def _renamed_view(view: MaterializedViewRecord, new: str) -> Change:
    definition = replace(view_definition(view.definition), name=Name(parts=(new,)))
    return PutObject(record=replace(view, name=new, definition=render(definition)))


def _renamed_table(snapshot: Snapshot, table: TableRecord, new: str) -> list[Change]:
    """The table, its source, and the source's pauses, which all have the same name."""
    definition = replace(table_definition(table.definition), name=Name(parts=(new,)))
    kept = table.maintenance
    renamed = replace(
        table,
        name=new,
        definition=render(definition),
        query=reading(table.query, new),
        maintenance=replace(kept, query=reading(kept.query, new)),
    )
    changes: list[Change] = [PutObject(record=renamed)]
    source = snapshot.get(table.source_id) if table.source_id is not None else None
    if isinstance(source, SourceRecord):
        written = replace(source_definition(source.definition), name=Name(parts=(new,)))
        changes.append(PutObject(record=replace(source, name=new, definition=render(written))))
        for kind in ("pause", "rewind"):
            for record in snapshot.all(kind):
                if isinstance(record, PauseRecord | RewindRecord) and record.source_id == source.id:
                    changes.append(PutObject(record=replace(record, name=new)))
    refresh = refresh_of(snapshot, table.id)
    if refresh is not None:
        changes.append(PutObject(record=replace(refresh, name=new)))
    return changes


def _reading(reader: MaterializedViewRecord | SinkRecord, old: str, new: str) -> MaterializedViewRecord | SinkRecord:
    """A view or sink whose input has been renamed."""
    if isinstance(reader, SinkRecord):
        sink = sink_definition(reader.definition)
        query = None if sink.query is None else _renamed(sink.query, old, new, "risingwave")
        relation = sink.relation if sink.relation is None else Name(parts=(new,))
        return replace(
            reader,
            definition=render(replace(sink, query=query, relation=relation)),
            query=renamed_relation(reader.query, old, new, "spark") if reader.query else "",
        )
    view = view_definition(reader.definition)
    kept = reader.maintenance
    return replace(
        reader,
        definition=render(replace(view, query=_renamed(view.query, old, new, reader.dialect))),
        query=renamed_relation(reader.query, old, new, "spark"),
        maintenance=replace(
            kept,
            query=renamed_relation(kept.query, old, new, "spark") if kept.query else "",
            touched=renamed_relation(kept.touched, old, new, "spark") if kept.touched else "",
            reason=kept.reason.replace(f"of {old} ", f"of {new} ").replace(f"of {old}:", f"of {new}:"),
        ),
    )


def _renamed(query: Query, old: str, new: str, dialect: str) -> Query:
    return replace(query, text=renamed_relation(query.text, old, new, dialect))
