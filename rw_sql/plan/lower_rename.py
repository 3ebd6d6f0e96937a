"""Lowers ALTER MATERIALIZED VIEW … RENAME TO: what reads the view goes on reading it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, SinkRecord
from rw_sql.plan.definitions import sink_definition, view_definition
from rw_sql.plan.lower_source import nothing
from rw_sql.plan.names import find_view, object_name, require_free
from rw_sql.plan.plan import ObjectChange, Plan
from rw_sql.plan.requests import Asking
from rw_sql.plan.steps import steps_of
from rw_sql.syntax import render
from rw_sql.syntax.renaming import renamed_relation
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.syntax.statements import AlterRename, Query


def lower_alter_rename(statement: AlterRename, snapshot: Snapshot) -> Asking[Plan]:
    """RENAME TO of a materialized view; its rows and the place where it and its readers stand stay."""
    yield from ()
    if statement.kind != "MATERIALIZED VIEW":
        raise SqlError(
            NOT_SUPPORTED,
            f"ALTER {statement.kind} … RENAME TO is not supported yet",
            span=statement.span,
            hint="ALTER MATERIALIZED VIEW … RENAME TO is",
        )
    view = find_view(snapshot, statement.name)
    new = object_name(statement.new_name)
    if new == view.name:
        return nothing(statement, view.name, "it has this name already")
    require_free(snapshot, statement.new_name)
    definition = replace(view_definition(view.definition), name=Name(parts=(new,)))
    changes: list[Change] = [PutObject(record=replace(view, name=new, definition=render(definition)))]
    rows = [ObjectChange(object=new, change="RENAMED", detail=f"was {view.name}")]
    for reader in snapshot.readers_of(view.id):
        try:
            changes.append(PutObject(record=_reading(reader, view.name, new)))
        except SqlError as error:
            error.message = f"{reader.kind.replace('_', ' ')} {reader.name}: {error.message}"
            error.span = statement.name.span
            raise
        rows.append(ObjectChange(object=reader.name, change="ALTERED", detail=f"reads {new}"))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="RENAME MATERIALIZED VIEW",
            statement=render(statement),
            objects=(new, view.name, *(row.object for row in rows[1:])),
            changes=tuple(changes),
        ),
        changes=tuple(rows),
        affected=(view.id,),
    )


def _reading(reader: MaterializedViewRecord | SinkRecord, old: str, new: str) -> MaterializedViewRecord | SinkRecord:
    """A view or sink as it is when what it reads has another name."""
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
