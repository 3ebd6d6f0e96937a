"""Batches for sink writers, as a sink's job hands them over."""

from __future__ import annotations

import json

import pyarrow as pa

from rw_sql.connectors.sink import INSERT, OP, SinkShape
from rw_sql.model.job_specs import SinkSpec

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


def sink_spec(shape: SinkShape, connector: str = "jdbc", **options: str) -> SinkSpec:
    """The specification of a sink with the id 2 and without inputs."""
    return SinkSpec(
        job="sink-2",
        sink_id=2,
        name=shape.name,
        connector=connector,
        options=tuple(options.items()),
        shape=shape,
        query="",
        replaces=False,
        inputs=(),
        starts=(),
        identity="me",
        generation=1,
    )


def batch(*rows: tuple[int | None, str | None] | tuple[int | None, str | None, str]) -> pa.Table:
    """Rows (id, word[, operation])."""
    return pa.Table.from_pylist(
        [{"id": row[0], "word": row[1], OP: row[2] if len(row) > 2 else INSERT} for row in rows], ARROW
    )
