"""Finds objects by the names that statements use, and makes the errors for unknown names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import tokenize

from rw_sql.errors import (
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    UNDEFINED_OBJECT,
    UNDEFINED_OPERATION,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord, TableRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord, ObjectRecord, OperationRecord, SecretRecord
    from rw_sql.syntax.statements import Name

SCHEMA_ALIAS = "public"
RELATION_KINDS = ("table", "source", "materialized_view")
"""The kinds that a query can read. A table and its source share a name, which refers to the table."""

_LISTED_BY = {
    "source": "SHOW SOURCES",
    "table": "SELECT name FROM rw_catalog.rw_tables",
    "materialized_view": "SHOW MATERIALIZED VIEWS",
    "sink": "SHOW SINKS",
    "connection": "SHOW CONNECTIONS",
    "secret": "SHOW SECRETS",
}


def spoken(kind: str) -> str:
    """The word for a kind of object in messages."""
    return kind.replace("_", " ")


def object_name(name: Name) -> str:
    """The name of an object without its schema. The only schema is ``public``. Raises SqlError for another."""
    if len(name.parts) > 2 or (name.schema is not None and name.schema != SCHEMA_ALIAS):
        raise SqlError(
            NOT_SUPPORTED,
            f'schema "{name.schema}" does not exist: all objects live in one schema',
            span=name.span,
            hint=f'write "{name.last}" or "{SCHEMA_ALIAS}.{name.last}"',
        )
    return name.last


def find_source(snapshot: Snapshot, name: Name) -> SourceRecord:
    """The source of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("source", object_name(name))
    if not isinstance(record, SourceRecord):
        raise undefined(snapshot, "source", name)
    return record


def find_table(snapshot: Snapshot, name: Name) -> TableRecord:
    """The table of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("table", object_name(name))
    if record is None:
        raise undefined(snapshot, "table", name)
    return record


def find_source_of(snapshot: Snapshot, kind: str, name: Name) -> SourceRecord:
    """The source that ``ALTER {SOURCE | TABLE} name`` refers to. Raises SqlError if there is none."""
    if kind != "TABLE":
        return find_source(snapshot, name)
    table = find_table(snapshot, name)
    source = snapshot.get(table.source_id) if table.source_id is not None else None
    if not isinstance(source, SourceRecord):
        raise SqlError(
            INVALID_DEFINITION,
            f'table "{table.name}" has no connector any more',
            span=name.span,
            hint="only a table with a connector has a source that can be altered",
        )
    return source


def find_view(snapshot: Snapshot, name: Name) -> MaterializedViewRecord:
    """The materialized view of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("materialized_view", object_name(name))
    if not isinstance(record, MaterializedViewRecord):
        raise undefined(snapshot, "materialized_view", name)
    return record


def find_sink(snapshot: Snapshot, name: Name) -> SinkRecord:
    """The sink of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("sink", object_name(name))
    if not isinstance(record, SinkRecord):
        raise undefined(snapshot, "sink", name)
    return record


def find_connection(snapshot: Snapshot, name: Name) -> ConnectionRecord:
    """The connection of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("connection", object_name(name))
    if record is None:
        raise undefined(snapshot, "connection", name)
    return record


def find_secret(snapshot: Snapshot, name: Name) -> SecretRecord:
    """The secret of that name. Raises SqlError UNDEFINED_OBJECT with similar names."""
    record = snapshot.find("secret", object_name(name))
    if record is None:
        raise undefined(snapshot, "secret", name)
    return record


def find_relation(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The table, source or view of that name; None if there is none. The three kinds share one namespace."""
    for kind in RELATION_KINDS:
        record = snapshot.find(kind, name)
        if record is not None:
            return record
    return None


def find_operation(records: Iterable[OperationRecord], number: int, span: Span | None, listing: str) -> OperationRecord:
    """The operation with that number. Raises SqlError UNDEFINED_OPERATION; its hint is the statement ``listing``."""
    for record in records:
        if record.epoch == number:
            return record
    raise SqlError(UNDEFINED_OPERATION, f"operation {number} does not exist", span=span, hint=f"{listing} lists them")


def undefined(snapshot: Snapshot, kind: str, name: Name) -> SqlError:
    """The error for a name that no object of that kind has."""
    near = near_names(name.last, (record.name for record in snapshot.all(kind)))
    listing = f"{_LISTED_BY[kind]} lists all"
    other = find_relation(snapshot, name.last) if kind in RELATION_KINDS else None
    if other is not None:
        listing = f'"{name.last}" is a {spoken(other.kind)}; {listing}'
        near = []
    hint = f'did you mean "{near[0]}"? {listing}' if near else listing
    return SqlError(UNDEFINED_OBJECT, f'{spoken(kind)} "{name.last}" does not exist', span=name.span, hint=hint)


def spark_query(text: str, relations: Iterable[str]) -> str:
    """A query that Spark can run: ``public.orders`` becomes ``orders``. Nothing else of the text changes."""
    names = {name.lower() for name in relations}
    cut = []
    tokens = tokenize(text, read="spark")
    for schema, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (schema.text.lower(), dot.text) == (SCHEMA_ALIAS, ".") and name.text.lower() in names:
            cut.append((schema.start, dot.end + 1))
    for start, end in reversed(cut):
        text = text[:start] + text[end:]
    return text


def require_free_of_kind(snapshot: Snapshot, kind: str, name: Name) -> None:
    """Raises SqlError DUPLICATE_OBJECT if an object of that kind has the name."""
    if snapshot.find(kind, object_name(name)) is not None:
        raise SqlError(DUPLICATE_OBJECT, f'{spoken(kind)} "{name.last}" already exists', span=name.span)


def require_free(snapshot: Snapshot, name: Name) -> None:
    """Raises SqlError DUPLICATE_OBJECT if a table, source, view or sink has the name."""
    taken = find_relation(snapshot, object_name(name)) or snapshot.find("sink", object_name(name))
    if taken is not None:
        raise SqlError(DUPLICATE_OBJECT, f'{spoken(taken.kind)} "{name.last}" already exists', span=name.span)
