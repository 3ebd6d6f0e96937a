"""The documented records of every change format, and their rows: one Spark job for each definition."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, RAW, SPLIT, decode, log_schema
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.conftest import FIXTURES
from tests.integration import change_reference

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset bigint, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
OP = "_rw_op"
SEED = 8
FILES = sorted((FIXTURES / "formats").glob("*.json"))


def definition(text: str) -> CreateSource:
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource)
    return statement


def as_bytes(given: Any) -> bytes | None:
    """The bytes of a record for the description in a fixture."""
    if given is None:
        return None
    if isinstance(given, dict) and set(given) == {"text"}:
        return str(given["text"]).encode()
    return json.dumps(given, ensure_ascii=False).encode()


def records_of(spark: SparkSession, records: list[tuple[bytes | None, bytes | None]]) -> DataFrame:
    """Records as a reader returns them, all of one split."""
    rows = [("t:0", at, key, value, "0", None, None) for at, (key, value) in enumerate(records)]
    return spark.createDataFrame(rows, RECORDS).coalesce(1)


def plain(value: Any) -> Any:
    """A value as the fixtures write it."""
    match value:
        case bytes():
            return value.hex()
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return str(value)


def decoded(spark: SparkSession, statement: CreateSource, records: list[tuple[bytes | None, bytes | None]]) -> Any:
    """The result of each record, in order: the log's rows without their hidden columns, in the form of the fixtures."""
    frame = decode(records_of(spark, records), statement, run=1, batch=0, bucket=0)
    assert frame.schema == log_schema(statement) or frame.dtypes == [
        (field.name, field.dataType.simpleString()) for field in log_schema(statement)
    ]
    told: dict[int, list[Any]] = defaultdict(list)
    for row in frame.toArrow().to_pylist():
        assert row[SPLIT] == "t:0"
        at = row[OFFSET]
        if row[ERROR] is not None:
            key, value = records[at]
            assert row[RAW] == (key if value is None else value)
            assert row[OP] is None
            told[at].append({"error": row[ERROR]})
        else:
            assert row[RAW] is None
            visible = {name: plain(row[name]) for name in row if not name.startswith("_rw_") and row[name] is not None}
            unchanged = row.get("_rw_unchanged")
            told[at].append(
                {"op": row[OP], "row": visible} | ({} if unchanged is None else {"unchanged": list(unchanged)})
            )
    return [told[at] for at in range(len(records))]


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_documented_records(spark: SparkSession, path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for case in json.loads(path.read_text(encoding="utf-8")):
        statement = definition(case["source"])
        records = [(as_bytes(given["key"]), as_bytes(given["value"])) for given in case["records"]]
        for given, came in zip(case["records"], decoded(spark, statement, records), strict=True):
            assert came == given["gives"], given["form"]


@pytest.mark.long
@pytest.mark.parametrize("format", ["UPSERT", "DEBEZIUM", "MAXWELL", "CANAL"])
def test_random_records_against_a_decoder_in_plain_python(spark: SparkSession, format: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    statement = definition(
        f"CREATE SOURCE t ({change_reference.COLUMNS}) WITH (connector = 'kafka', topic = 't', "
        f"properties.bootstrap.server = 'b:9092') FORMAT {format} ENCODE JSON"
    )
    random = Random(f"{SEED} {format}")
    records = [change_reference.record(random, format) for _ in range(500)]
    outcomes: Counter[int | None] = Counter()
    for (key, value), came in zip(records, decoded(spark, statement, records), strict=True):
        wanted = change_reference.changes_of(format, key, value)
        outcomes.update(op for op, _ in wanted)
        told = [(change.get("op"), change.get("row", {})) for change in came]
        assert told == [(op, plain(row)) for op, row in wanted], (key, value, came)
    # Enough of each kind: a run with only errors would prove nothing.
    assert all(outcomes[op] >= 40 for op in (1, -1, None)), outcomes
