"""Compares the rows of Avro records with the rows that Avro's own library reads."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.connectors.schemas import avro
from rw_sql.runtime.decoding.decoder import decode
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.spark_jars import installed_jars
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import CreateSource
from tests.support.avro_reference import Evolving, written_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.avro_records import AvroWriter


def compare_values(spark: SparkSession, writer: AvroWriter, seed: int, records: int) -> int:
    """Reads random records of several versions of a random schema with one of these versions. Returns the number of
    versions.

    Raises AssertionError at the first row that differs.
    """
    rng = random.Random(seed)
    versions = Evolving(rng).grow(rng.randint(2, 5))
    reader = rng.choice(versions)
    made = written_records(rng, versions, reader, records)
    topic = f"values-{seed}-{rng.getrandbits(32)}"
    ids = [writer.register(f"{topic}-{at}", version) for at, version in enumerate(versions)]
    values = [b"\0" + ids[each.version].to_bytes(4, "big") + each.data for each in made]
    rows = read_values(spark, writer.url, topic, reader, values)
    for each, (row, fault) in zip(made, rows, strict=True):
        assert fault is None, (fault, each, versions[each.version], reader)
        assert row == each.row, (versions[each.version], reader)
    return len(versions)


def read_values(
    spark: SparkSession,
    url: str,
    topic: str,
    reader: dict[str, Any],
    values: list[bytes],
    *,
    columns: str | None = None,
    options: str = "",
) -> list[tuple[dict[str, Any], str | None]]:
    """Returns, for each value in order, the row that a source with this schema makes from the value, and the decode
    error.

    By default, ``columns`` are the columns of the schema. ``options`` are further options of ENCODE, each preceded by a
    comma.
    """
    SparkSessions(spark).load((installed_jars().avro,))
    schema = avro.normal_form(json.dumps(reader))
    columns = columns or ", ".join(f'"{name}" {kind}' for name, kind in avro.columns_of(schema))
    quoted = "'" + json.dumps(schema).replace("'", "''") + "'"
    statement = parse_statement(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka') FORMAT PLAIN ENCODE AVRO "
        f"(schema.registry = '{url}', _rw_schema = {quoted}{options})"
    )
    assert isinstance(statement, CreateSource)
    assert parse_statement(render(statement)) == statement
    count = len(values)
    table = pa.table(
        {
            "_rw_split": pa.array(["0"] * count),
            "_rw_offset": pa.array(range(count), pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    given = {"schema.registry": url, "topic": topic}
    made = decode(spark.createDataFrame(table), statement, given, run=1, batch=1, bucket=1)
    names = [each["name"] for each in schema["fields"]]
    rows = made.select("_rw_offset", "_rw_error", *names).toArrow().sort_by("_rw_offset").to_pylist()
    return [({name: _plain(row[name]) for name in names}, row["_rw_error"]) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        # Arrow returns a map as a list of pairs.
        return sorted(items) if items and all(isinstance(item, tuple) for item in items) else items
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value
