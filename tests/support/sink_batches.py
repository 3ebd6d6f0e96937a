"""Batches for sink writers, as a sink's job hands them over."""

from __future__ import annotations

import json

import pyarrow as pa

from rw_sql.connectors.sink import INSERT, OP, SinkShape

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "word", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
ARROW = pa.schema([("id", pa.int32()), ("word", pa.string()), (OP, pa.string())])


def shape(type_: str = "append-only", *keys: str, encode: str | None = None, **options: str) -> SinkShape:
    """A sink ``k`` with two columns, ``id`` and ``word``."""
    return SinkShape(
        name="k", type=type_, schema=SCHEMA, encode=encode, keys=keys, encode_options=tuple(options.items())
    )


def batch(*rows: tuple[int | None, str | None] | tuple[int | None, str | None, str]) -> pa.Table:
    """Rows (id, word[, operation])."""
    return pa.Table.from_pylist(
        [{"id": row[0], "word": row[1], OP: row[2] if len(row) > 2 else INSERT} for row in rows], ARROW
    )
