"""INCLUDE columns that are text: a header, and the payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, RAW, decode

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
FIRST, LATIN = b'{"id": 1}', "Z\u00fcrich".encode("latin-1")


def decoded(
    spark: SparkSession, included: str, *records: tuple[bytes, list[tuple[str, bytes]] | None], format: str = "PLAIN"
) -> list[Row]:
    key = ", PRIMARY KEY (id)" if format == "UPSERT" else ""
    statement = source_definition(
        f"CREATE SOURCE s (id INT{key}) {included} WITH (connector = 'kafka', topic = 't', "
        f"properties.bootstrap.server = 'h:1') FORMAT {format} ENCODE JSON"
    )
    made: list[tuple[Any, ...]] = [
        ("t:0", at, FIRST, value, "0", None, headers) for at, (value, headers) in enumerate(records)
    ]
    rows = decode(spark.createDataFrame(made, RECORDS), statement, run=0, batch=0, bucket=0)
    return rows.orderBy(OFFSET).collect()


@pytest.mark.parametrize("format", ["PLAIN", "UPSERT"])
def test_a_header_that_is_not_utf_8_makes_the_record_an_error(spark: SparkSession, format: str) -> None:
    good, bad, none, twice = decoded(
        spark,
        "INCLUDE header 'trace' VARCHAR AS trace INCLUDE header 'trace' AS raw",
        (FIRST, [("trace", "Z\u00fcrich".encode())]),
        (FIRST, [("trace", LATIN)]),
        (FIRST, None),
        (FIRST, [("trace", b"a"), ("trace", LATIN)]),
        format=format,
    )
    assert (good["id"], good["trace"], good[ERROR]) == (1, "Z\u00fcrich", None)
    assert (bad["id"], bad["trace"], bytes(bad["raw"])) == (None, None, LATIN)
    assert (bad[ERROR], bytes(bad[RAW])) == ('header "trace" is not UTF-8', FIRST)
    assert [(row["id"], row["trace"], row[ERROR]) for row in (none, twice)] == [(1, None, None), (1, "a", None)]
    if format == "UPSERT":
        assert [row["_rw_op"] is None for row in (good, bad)] == [False, True]


def test_a_payload_that_is_not_utf_8_has_replacement_characters(spark: SparkSession) -> None:
    good, bad = decoded(spark, "INCLUDE payload AS text", (FIRST, None), (LATIN, None))
    assert (good["text"], bad["text"]) == (FIRST.decode(), "Z\ufffdrich")
    assert bad[ERROR] == "the value is not UTF-8"
