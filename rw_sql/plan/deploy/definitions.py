"""Represents objects of the catalog in the form in which a folder defines objects. In this form, each object has a
kind, a name, and a CREATE statement with its dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import (
    connection_definition,
    sink_definition,
    source_definition,
    table_definition,
    view_definition,
)
from rw_sql.plan.queries.meaning import dialect_of
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSecret

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.statements.replace.least_change import Create
    from rw_sql.plan.statements.replace.normal_form import Dialects


def find_object(snapshot: Snapshot, kind: str, name: str) -> ObjectRecord | None:
    """Returns the object with the given kind and name. Returns None if there is no such object, or if the object is the
    source that a CREATE TABLE created for its table."""
    record = snapshot.find(kind, name)
    if isinstance(record, SourceRecord) and snapshot.table_of(record.id) is not None:
        return None
    return record


def record_to_be(snapshot: Snapshot, record: ObjectRecord) -> ObjectRecord:
    """Returns the record of the object. For a view that is being rebuilt with a new query, returns the record that the
    view will have after the rebuild."""
    made = (rebuild.view for rebuild in snapshot.all("rebuild") if rebuild.view_id == record.id)
    return next((view for view in made if view is not None), record)


def definition_of(record: ObjectRecord) -> Create:
    """The CREATE statement of an object of the catalog."""
    match record.kind:
        case "connection":
            return connection_definition(_text(record))
        case "source":
            return source_definition(_text(record))
        case "table":
            return table_definition(_text(record))
        case "materialized_view":
            return view_definition(_text(record))
        case "sink":
            return sink_definition(_text(record))
        case _:
            made = parse_statement(_text(record))
            if not isinstance(made, CreateSecret):
                raise TypeError(f"a {record.kind} has no definition")
            return made


def dialects(record: ObjectRecord) -> Dialects:
    """Returns two dialects. The first is the dialect of the object's definition in the catalog. The second is the
    dialect of definitions in a folder, which is always Spark's SQL."""
    return dialect_of(record), "spark"


def _text(record: ObjectRecord) -> str:
    text = getattr(record, "definition", None)
    if not isinstance(text, str):
        raise TypeError(f"a {record.kind} has no definition")
    return text
