"""Renames objects. The module changes the records of the objects and of their readers. It also changes the pauses,
rewinds, rebuilds and refreshes of the objects, because these records contain the objects' names.

:mod:`.named_by_others` renames connections and secrets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import (
    MaterializedViewRecord,
    PauseRecord,
    PutObject,
    RebuildRecord,
    RewindRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.definitions import sink_definition, source_definition, table_definition, view_definition
from rw_sql.model.refresh_states import refresh_of
from rw_sql.plan.statements.common import require_not_read_anew
from rw_sql.plan.statements.table.table import reading
from rw_sql.syntax import render
from rw_sql.syntax.query.rename_relation import renamed_relation
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.syntax.statements import Query

Named = SourceRecord | MaterializedViewRecord | SinkRecord
"""The records that can be renamed. TableRecord, a subclass of MaterializedViewRecord, is one of them. A table is
renamed together with its source."""

_STAND_IN = "__rw_renamed_{}"


def renamed(snapshot: Snapshot, names: Mapping[int, str], span: Span) -> tuple[list[Change], tuple[Named, ...]]:
    """Returns the changes that rename objects, and the objects that read the renamed objects. Each reader continues to
    read the same object under its new name. ``names`` maps ids to new names.

    Raises SqlError at ``span`` if a reader's query cannot be rewritten to the new name.
    """
    changes: list[Change] = []
    relations: dict[str, str] = {}
    readers: dict[int, Named] = {}
    require_not_read_anew(snapshot, names, span)
    for id_, new in names.items():
        record = snapshot.get(id_)
        if not isinstance(record, SourceRecord | MaterializedViewRecord | SinkRecord):
            raise TypeError(f"object {id_} has no name of its own")
        changes += _own(snapshot, record, new)
        relations[record.name] = new
        readers |= {reader.id: reader for reader in snapshot.readers_of(id_)}
    own = {change.record.id: change.record for change in changes if isinstance(change, PutObject)}
    for id_, reader in readers.items():
        known = own.get(id_, reader)
        if not isinstance(known, MaterializedViewRecord | SinkRecord):
            raise TypeError(f"a {known.kind} reads nothing")
        try:
            changes.append(PutObject(record=_reading(known, relations)))
        except SqlError as error:
            error.message = f"{reader.kind.replace('_', ' ')} {reader.name}: {error.message}"
            error.span = span
            raise
    put = {change.record.id: change for change in changes if isinstance(change, PutObject)}
    return list(put.values()), tuple(readers[id_] for id_ in sorted(readers))


def _own(snapshot: Snapshot, record: Named, new: str) -> list[Change]:
    """Returns the changes to all records that contain an object's name: the object's own record, and records such as
    its rebuilds and pauses. The records of readers are not included."""
    match record:
        case TableRecord():
            return _table(snapshot, record, new)
        case MaterializedViewRecord():
            view = replace(view_definition(record.definition), name=Name.of(new))
            changes: list[Change] = [PutObject(record=replace(record, name=new, definition=render(view)))]
            changes += [
                PutObject(record=replace(rebuild, name=new))
                for rebuild in snapshot.all("rebuild")
                if isinstance(rebuild, RebuildRecord) and rebuild.view_id == record.id
            ]
            return changes
        case SinkRecord():
            sink = replace(sink_definition(record.definition), name=Name.of(new))
            return [PutObject(record=replace(record, name=new, definition=render(sink)))]
        case SourceRecord():
            return _source(snapshot, record, new)


def _source(snapshot: Snapshot, source: SourceRecord, new: str) -> list[Change]:
    written = replace(source_definition(source.definition), name=Name.of(new))
    changes: list[Change] = [PutObject(record=replace(source, name=new, definition=render(written)))]
    for kind in ("pause", "rewind"):
        for record in snapshot.all(kind):
            if isinstance(record, PauseRecord | RewindRecord) and record.source_id == source.id:
                changes.append(PutObject(record=replace(record, name=new)))
    return changes


def _table(snapshot: Snapshot, table: TableRecord, new: str) -> list[Change]:
    """Returns the changes to all records that contain a table's name: the table, its source, the source's pauses and
    rewinds, and the table's refresh."""
    definition = replace(table_definition(table.definition), name=Name.of(new))
    kept = table.maintenance
    changed = replace(
        table,
        name=new,
        definition=render(definition),
        # A table of a change data capture source does not have the name of its source, so the table's query does not
        # change.
        query=table.query if definition.cdc_table is not None else reading(table.query, new),
        maintenance=kept if definition.cdc_table is not None else replace(kept, query=reading(kept.query, new)),
    )
    changes: list[Change] = [PutObject(record=changed)]
    source = snapshot.get(table.source_id) if table.source_id is not None else None
    if isinstance(source, SourceRecord):
        changes += _source(snapshot, source, new)
    refresh = refresh_of(snapshot, table.id)
    if refresh is not None:
        changes.append(PutObject(record=replace(refresh, name=new)))
    return changes


def _of_source(table: TableRecord, names: Mapping[str, str]) -> TableRecord:
    """The record of a table of a change data capture source. If ``names`` contains the source, the result refers to its
    new name."""
    written = table_definition(table.definition)
    if written.cdc_table is None or written.cdc_table.source.key not in names:
        return table
    new = names[written.cdc_table.source.key]
    given = replace(written.cdc_table, source=Name.of(new))
    return replace(
        table,
        definition=render(replace(written, cdc_table=given)),
        query=reading(table.query, new),
        maintenance=replace(table.maintenance, query=reading(table.maintenance.query, new)),
    )


def _reading(
    reader: MaterializedViewRecord | SinkRecord, names: Mapping[str, str]
) -> MaterializedViewRecord | SinkRecord:
    """The record of a view or sink whose query refers to its inputs by their new names."""
    if isinstance(reader, SinkRecord):
        sink = sink_definition(reader.definition)
        query = None if sink.query is None else _renamed(sink.query, names, "risingwave")
        relation = sink.relation
        if relation is not None:
            relation = Name.of(names[relation.key]) if relation.key in names else relation
        return replace(
            reader,
            definition=render(replace(sink, query=query, relation=relation)),
            query=_with_names(reader.query, names, "spark", is_stored=True),
        )
    if isinstance(reader, TableRecord) and reader.live_from is not None:
        return _of_source(reader, names)
    if isinstance(reader, TableRecord):  # the only input is the table's own source, which is renamed with the table
        return reader
    view = view_definition(reader.definition)
    kept = reader.maintenance
    return replace(
        reader,
        definition=render(replace(view, query=_renamed(view.query, names, reader.dialect))),
        query=_with_names(reader.query, names, "spark", is_stored=True),
        maintenance=replace(
            kept,
            query=_with_names(kept.query, names, "spark", is_stored=True),
            touched=_with_names(kept.touched, names, "spark", is_stored=True),
            reason=_told(kept.reason, names),
        ),
    )


def _renamed(query: Query, names: Mapping[str, str], dialect: str) -> Query:
    return replace(query, text=_with_names(query.text, names, dialect))


def _with_names(text: str, names: Mapping[str, str], dialect: str, *, is_stored: bool = False) -> str:
    if not text:
        return ""
    if len(names) == 1:
        ((old, new),) = names.items()
        return renamed_relation(text, old, new, dialect, is_stored=is_stored)
    # Two objects may swap their names, so placeholders first replace all old names.
    for at, old in enumerate(names):
        text = renamed_relation(text, old, _STAND_IN.format(at), dialect, is_stored=is_stored)
    for at, new in enumerate(names.values()):
        text = renamed_relation(text, _STAND_IN.format(at), new, dialect, is_stored=is_stored)
    return text


def _told(reason: str, names: Mapping[str, str]) -> str:
    for at, old in enumerate(names):
        reason = reason.replace(f"of {old} ", f"of {_STAND_IN.format(at)} ").replace(
            f"of {old}:", f"of {_STAND_IN.format(at)}:"
        )
    for at, new in enumerate(names.values()):
        reason = reason.replace(_STAND_IN.format(at), new)
    return reason
