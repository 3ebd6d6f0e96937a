"""The query of a view or sink: what it reads, and what Spark makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, INVALID_QUERY, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.plan.definitions import definition_of, source_columns, source_watermark
from rw_sql.plan.names import find_relation, spark_query
from rw_sql.plan.requests import Asking, Relation, analysis
from rw_sql.syntax.dialect import to_spark
from rw_sql.syntax.queries import table_names

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.syntax.statements import Query

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What Delta Lake takes in no column name (Delta protocol, without column mapping)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query as Spark runs it, the ids of what it reads, its schema as Spark's JSON, and the columns a row is replaced
    by (none: rows are appended)."""

    text: str
    inputs: tuple[int, ...]
    schema: str
    keys: tuple[str, ...]


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


def require_log(source: SourceRecord, span: Span) -> None:
    """Raises SqlError where a sink would read a source that is not shared: nothing would keep what it has sent."""
    if not source.is_shared:
        raise SqlError(
            NOT_SUPPORTED,
            f'source "{source.name}" is not shared: only views read it, each by itself',
            span=span,
            hint=f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {source.name}, and the sink FROM v",
        )


def plan_query(
    snapshot: Snapshot, query: Query, what: str, dialect: str, *, closes_windows: bool
) -> Asking[PlannedQuery]:
    """The query of ``what`` (a kind and a name, as messages say it), checked. Raises SqlError."""
    if dialect == "risingwave":
        translated = to_spark(query, is_emit_on_window_close=closes_windows)
        written, tables = translated.text, translated.tables
    else:
        written, tables = query.text, table_names(query.text)
    read = [find_relation(snapshot, table) for table in tables]
    inputs = tuple(dict.fromkeys(record.id for record in read if record is not None))
    if not inputs:
        raise SqlError(
            INVALID_QUERY,
            f"the query of {what} reads no source or materialized view",
            span=query.span,
            hint="SHOW SOURCES lists what can be read",
        )
    records = tuple(record for record in (snapshot.get(id_) for id_ in inputs) if record is not None)
    for record in records:
        if isinstance(record, SourceRecord) and what.startswith("sink "):
            require_log(record, query.span)
        if isinstance(record, MaterializedViewRecord) and record.keys:
            over, instead = (
                ("queries of sinks", f"FROM {record.name} takes its changes as they are; or read its source")
                if what.startswith("sink ")
                else ("views", "read its source instead")
            )
            raise SqlError(
                NOT_SUPPORTED,
                f'materialized view "{record.name}" replaces its rows; {over} over it are not supported yet',
                span=query.span,
                hint=instead,
            )
    text = spark_query(written, [record.name for record in records])
    found = yield from analysis(text, tuple(relation_of(record) for record in records), closes_windows=closes_windows)
    if found.refusal is not None:
        raise SqlError(INVALID_QUERY, found.refusal, hint=found.hint, span=query.span)
    names = [column for column, _ in schema_columns(found.schema)]
    unnamed = next((column for column in names if set(column) & _NOT_IN_NAMES), None)
    if unnamed is not None:
        raise SqlError(
            INVALID_QUERY,
            f'column "{unnamed}" of {what} needs a name',
            span=query.span,
            hint=f"{unnamed} AS a_name: Delta Lake takes no spaces, brackets, commas, semicolons or = in column names",
        )
    twice = next((column for column in names if [n.lower() for n in names].count(column.lower()) > 1), None)
    if twice is not None:
        raise SqlError(
            DUPLICATE_OBJECT,
            f'column "{twice}" occurs more than once in {what}',
            span=query.span,
            hint="rename one of them with AS",
        )
    return PlannedQuery(text=text, inputs=inputs, schema=found.schema, keys=found.keys)
