"""Creates placeholder records for objects whose CREATE statements have errors. A placeholder has only a name, but this
is sufficient for later statements to find the object to which they refer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.metastore.records import (
    ConnectionRecord,
    MaterializedViewRecord,
    PutObject,
    SchemaRecord,
    SecretRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.plan.offline.query_answers import schema_json
from rw_sql.plan.result.steps import after
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.lexing.identifiers import quoted_for_spark, sql_name
from rw_sql.syntax.lexing.statement_ends import starts_in_block
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord

_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_CREATES = re.compile(
    r"(?:\A|;|\n)\s*(?:EXPLAIN\s+)?(?P<create>CREATE)\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+|TEMP\s+)?"
    r"(?P<kind>SOURCE|TABLE|MATERIALIZED\s+VIEW|SINK|CONNECTION|SECRET|SCHEMA)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    rf"(?P<name>{_NAME}(?:\s*\.\s*{_NAME})?)",
    re.IGNORECASE,
)
_SPARKS = re.compile(
    rf"{BLANK}*+CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:GLOBAL\s+)?TEMP(?:ORARY)?\s+|EXTERNAL\s+)*"
    r"(?P<kind>TABLE|VIEW|FUNCTION|DATABASE|SCHEMA|NAMESPACE)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[`\w.]+)",
    re.IGNORECASE,
)

RELATION, FUNCTION, DATABASE = "RELATION", "FUNCTION", "DATABASE"

MADE = "source", "table", "materialized_view", "sink", "connection", "secret", "schema"


def created_in(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields the objects that the CREATE statements in ``text`` would create, as (kind, name, position of the word
    CREATE). The statements need not parse."""
    for found in _CREATES.finditer(text):
        parts = re.split(r"\.(?=(?:[^\"]*\"[^\"]*\")*[^\"]*\Z)", found["name"])
        name = Name(parts=tuple(_folded(part.strip()) for part in parts)).key
        yield re.sub(r"\s+", "_", found["kind"].lower()), name, found.start("create")


def _folded(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()


def made_by_spark(text: str) -> Iterator[tuple[str, str]]:
    """Yields the objects that a Spark statement creates, as pairs (kind, name). The kind is RELATION, FUNCTION or
    DATABASE. The name is in lower case and has no quotes. A block ``BEGIN … END`` may create several objects."""
    for start in (0, *starts_in_block(text)):
        found = _SPARKS.match(text, start)
        if found is not None:
            kind = found["kind"].upper()
            made = RELATION if kind in ("TABLE", "VIEW") else FUNCTION if kind == FUNCTION else DATABASE
            yield made, found["name"].replace("`", "").lower()


def with_placeholder(snapshot: Snapshot, kind: str, name: str) -> tuple[Snapshot, tuple[int, ...]]:
    """Adds a placeholder with the given name to the catalog. Returns the new catalog and the ids of the added records.

    Changes nothing if the name is in use.
    """
    kinds = MADE[:4] if kind in MADE[:4] else (kind,)
    if any(snapshot.find(other, name) is not None for other in kinds):
        return snapshot, ()
    records = _records(snapshot.next_id, kind, name)
    return after(snapshot, tuple(PutObject(record=record) for record in records)), tuple(r.id for r in records)


def _records(id_: int, kind: str, name: str) -> tuple[ObjectRecord, ...]:
    schema = schema_json(())
    columns = f"{sql_name(name)} (unknown INT) WITH (connector = 'datagen')"
    match kind:
        case "source":
            return (_source(id_, name),)
        case "table":
            table = TableRecord(
                id=id_ + 1,
                name=name,
                definition=f"CREATE TABLE {columns} FORMAT PLAIN ENCODE JSON",
                query=f"SELECT unknown FROM {quoted_for_spark(name)}",
                inputs=(id_,),
                schema=schema,
                source_id=id_,
            )
            return (_source(id_, name), table)
        case "materialized_view":
            view = f"CREATE MATERIALIZED VIEW {sql_name(name)} AS SELECT 1 AS unknown"
            return (
                MaterializedViewRecord(
                    id=id_, name=name, definition=view, query="SELECT 1 AS unknown", inputs=(), schema=schema
                ),
            )
        case "sink":
            sink = f"CREATE SINK {sql_name(name)} FROM {sql_name(name)} WITH (connector = 'fs')"
            return (
                SinkRecord(
                    id=id_,
                    name=name,
                    definition=sink,
                    connector="fs",
                    options=(),
                    inputs=(),
                    schema=schema,
                    type="append-only",
                ),
            )
        case "connection":
            made = f"CREATE CONNECTION {sql_name(name)} WITH (type = 'kafka')"
            return (ConnectionRecord(id=id_, name=name, definition=made, connector="kafka"),)
        case "secret":
            made = f"CREATE SECRET {sql_name(name)} WITH (backend = 'meta')"
            return (SecretRecord(id=id_, name=name, definition=made, backend="meta", sealed="sealed"),)
        case "schema":
            return (SchemaRecord(id=id_, name=name),)
        case _:
            raise ValueError(f"no statement creates a {kind}")


def _source(id_: int, name: str) -> SourceRecord:
    return SourceRecord(
        id=id_,
        name=name,
        definition=f"CREATE SOURCE {sql_name(name)} (unknown INT) WITH (connector = 'datagen') "
        "FORMAT PLAIN ENCODE JSON",
        connector="datagen",
        options=(("connector", "datagen"),),
        is_shared=True,
    )
