"""Represents sources, tables, views and Delta tables as relations that queries can read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord, SourceRecord, TableRecord
from rw_sql.model.definitions import (
    UNKNOWN_COLUMN,
    definition_of,
    has_unchanged,
    source_columns,
    source_watermark,
    table_definition,
)
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import ObjectRecord


def relation_of(record: ObjectRecord) -> Relation:
    """The relation for a source, table, view or Delta table."""
    if isinstance(record, SourceRecord):
        statement = definition_of(record)
        return Relation(name=record.name, columns=source_columns(statement), watermark=source_watermark(statement))
    if isinstance(record, MaterializedViewRecord):
        return Relation(name=record.name, columns=schema_columns(record.schema), watermark=kept_watermark(record))
    if isinstance(record, DeltaTableRecord):
        return Relation(name=record.name, columns=schema_columns(record.schema))
    raise TypeError(f"{record.kind} {record.name} is not a relation")


def seen_columns(record: ObjectRecord, by: ObjectRecord) -> tuple[tuple[str, str], ...]:
    """Returns the columns of a relation that the object ``by`` sees: all columns except those that were added after
    ``by`` got its query."""
    until = max(by.id, by.sees) if isinstance(by, MaterializedViewRecord) else by.id
    later = (
        {name for name, since in record.added_columns if since > until}
        if isinstance(record, SourceRecord | TableRecord)
        else set()
    )
    return tuple((name, kind) for name, kind in relation_of(record).columns if name not in later)


def changes_rows(record: ObjectRecord | None) -> bool:
    """True if rows of a relation can be replaced or deleted. Jobs that read the relation then need its change data
    feed."""
    if isinstance(record, DeltaTableRecord):
        return record.has_change_feed
    return isinstance(record, MaterializedViewRecord) and bool(record.keys)


def kept_watermark(record: MaterializedViewRecord) -> tuple[str, str] | None:
    """The watermark with which a query reads a table or view; None for a view. Only append-only tables can have a
    watermark."""
    return source_watermark(table_definition(record.definition)) if isinstance(record, TableRecord) else None


@lru_cache(maxsize=1024)
def schema_columns(schema: str) -> tuple[tuple[str, str], ...]:
    """The columns of a Spark schema in JSON, as pairs (name, type in DDL)."""
    return tuple((field["name"], _ddl(field["type"])) for field in json.loads(schema)["fields"])


def _ddl(kind: object) -> str:
    match kind:
        case {"type": "array", "elementType": element}:
            return f"ARRAY<{_ddl(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"MAP<{_ddl(key)}, {_ddl(value)}>"
        case {"type": "struct", "fields": [*fields]}:
            return "STRUCT<" + ", ".join(f"{quoted_for_spark(f['name'])}: {_ddl(f['type'])}" for f in fields) + ">"
        case str():
            return {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}.get(kind, kind.upper())
        case _:
            raise ValueError(f"not a Spark type in JSON: {kind!r}")


def hidden_columns(view: MaterializedViewRecord) -> tuple[tuple[str, str], ...]:
    """The columns that only the view's stored table has, as pairs (name, type in DDL)."""
    return schema_columns(view.maintenance.hidden) if view.maintenance.hidden else ()


def stored_name(record: ObjectRecord, column: str) -> str:
    """The name of a column in the files of a table or view."""
    return dict(record.stored_names).get(column, column) if isinstance(record, TableRecord) else column


def stored_columns(table: TableRecord) -> tuple[tuple[str, str], ...]:
    """A table's columns, as pairs (name, name in the files)."""
    stored = dict(table.stored_names)
    return tuple((name, stored.get(name, name)) for name, _ in schema_columns(table.schema))


def renamed_schema(schema: str, names: Mapping[str, str]) -> str:
    """A Spark schema in JSON, with columns renamed. ``names`` maps old names to new names."""
    fields = json.loads(schema)["fields"]
    return json.dumps(
        {"type": "struct", "fields": [{**field, "name": names.get(field["name"], field["name"])} for field in fields]}
    )


def table_schema(view: MaterializedViewRecord) -> str:
    """The schema of a view's stored table, as Spark's JSON. The columns have the names that the files use. Hidden
    columns come last."""
    schema = view.schema
    hidden = json.loads(view.maintenance.hidden)["fields"] if view.maintenance.hidden else []
    if isinstance(view, TableRecord):
        schema = renamed_schema(schema, dict(view.stored_names)) if view.stored_names else schema
        if view.primary_key and has_unchanged(table_definition(view.definition)):
            hidden = [*hidden, _UNKNOWN]
    if not hidden:
        return schema
    return json.dumps({"type": "struct", "fields": [*json.loads(schema)["fields"], *hidden]})


_UNKNOWN = {
    "name": UNKNOWN_COLUMN[0],
    "type": {"type": "array", "elementType": "string", "containsNull": True},
    "nullable": True,
    "metadata": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation in a query. The fields are the relation's name, its columns with their types in Spark's DDL, and its
    watermark as (column, delay)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    watermark: tuple[str, str] | None = None
