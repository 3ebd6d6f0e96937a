"""Protobuf messages without a frame whose fields all have their default values: they consist of no bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.schemas.protobuf import compiled
from rw_sql.runtime.decoding.decoder import decode
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STOCK = 'syntax = "proto3"; package shop; message Stock { int32 pieces = 1; }'


def changes(spark: SparkSession, options: str, values: list[bytes | None]) -> list[tuple[int | None, int | None, bool]]:
    """Operation and pieces of each record, and whether it is an error."""
    statement = parse_statement(
        "CREATE SOURCE s (pieces INT, PRIMARY KEY (k)) INCLUDE key AS k WITH (connector = 'kafka') "
        f"FORMAT UPSERT ENCODE PROTOBUF ({options}, message = 'shop.Stock', _rw_schema = '{compiled(STOCK)}')"
    )
    assert isinstance(statement, CreateSource)
    count = len(values)
    table = pa.table(
        {
            "_rw_split": pa.array(["0"] * count),
            "_rw_offset": pa.array(range(count), pa.int64()),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    given = {"schema.registry": "http://127.0.0.1:1", "topic": "t"}
    rows = decode(spark.createDataFrame(table), statement, given, run=1, batch=1, bucket=1).orderBy("_rw_offset")
    return [(row["_rw_op"], row["pieces"], row["_rw_error"] is not None) for row in rows.collect()]


def test_an_empty_message_is_a_row_and_no_value_is_a_tombstone(spark: SparkSession) -> None:
    found = changes(spark, "schema.location = 'file:///stock.pb'", [b"\x08\x05", b"", None, b"\xff"])
    assert found == [(1, 5, False), (1, 0, False), (-1, None, False), (None, None, True)]


def test_in_a_frame_no_bytes_are_a_tombstone(spark: SparkSession) -> None:
    found = changes(spark, "schema.registry = 'http://127.0.0.1:1'", [b"", None])
    assert found == [(-1, None, False), (-1, None, False)]
