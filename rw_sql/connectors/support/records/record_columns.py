"""Defines the columns of the records that ``Connector.read_stream`` returns, as an Arrow schema and as Spark's DDL."""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def record_schema(offset: pa.DataType | None = None, more: tuple[tuple[str, pa.DataType], ...] = ()) -> pa.Schema:
    """The Arrow schema of records. ``offset`` is the type of offsets; by default, offsets are 64-bit integers.
    ``more`` are the columns of a single connector; they follow the columns of all connectors."""
    return pa.schema(
        [
            ("_rw_split", pa.string()),
            ("_rw_offset", offset or pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("partition", pa.string()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("headers", HEADERS),
            *more,
        ]
    )


def record_ddl(schema: pa.Schema) -> str:
    """Converts an Arrow schema of records to Spark's DDL."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
    HEADERS: "array<struct<key:string,value:binary>>",
}

RECORD_SCHEMA = record_schema()
RECORDS = record_ddl(RECORD_SCHEMA)
"""The columns of ``RECORD_SCHEMA`` as Spark's DDL."""
