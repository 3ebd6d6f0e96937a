"""The rows and errors of records do not depend on how many records are decoded together.

Arrow decodes most batches of JSON from Kafka, in blocks whose size is that of the batch; Spark decodes the others.
Spark itself interprets the expressions for a few rows and compiles them for many.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import Schema

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, RAW, decode, log_schema
from rw_sql.runtime.jobs import arrow_batches
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from tests.integration.json_reference import Texts
from tests.runtime.decoding.registry_reference import read_values
from tests.support.avro_records import AvroWriter
from tests.support.avro_reference import Evolving, written_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.cli.servers.schema_registry import RegistryInfo
    from rw_sql.syntax.statements import CreateSource

pytestmark = [pytest.mark.spark, pytest.mark.long]

RECORDS = 50_000
DRAWN = 12
"""The number of single records, and of batches of 100 records, that Spark decodes; Arrow decodes all of them."""

COLUMNS = (
    "id BIGINT, name VARCHAR, userid INT, ratio DOUBLE, ison BOOLEAN, no SMALLINT, day DATE, bare TIMESTAMP, "
    "zoned TIMESTAMPTZ"
)
_DAYS = (
    *("2024-02-29", "2023-02-29", "0001-01-01", "0002-01-01", "9998-12-31", "9999-12-31", "1582-10-10", "1899-12-31"),
    *(
        "2024-2-3",
        "20240203",
        "2024-02-29Z",
        "",
        " 2024-02-29",
        "2024-02-29\u00a0",
        "10000-01-01",
        "-0001-01-01",
        "now",
    ),
)
_TIMES = ("", "", "T00:00:00", " 23:59:59.999999", "T24:00:00", " 12:00", "T01:02:03.1234567", "T1:02:03", " 12:00:60")
_ZONES = ("", "", "Z", "+05:30", "-18:00", "+18:01", " UTC", "+0200", "[Europe/Berlin]")


class Values:
    """Random values of records, right and broken ones."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self._texts = Texts(self._random)

    def json(self, count: int) -> list[bytes]:
        """JSON objects: a thousand plain ones, then a thousand of which most are odd or broken, and so on.

        Arrow decodes no block of which most records are broken.
        """
        return [self._odd() if at // 1_000 % 2 else self._plain() for at in range(count)]

    def _odd(self) -> bytes:
        raw, choice = self._texts.draw(), self._random.choice
        if not raw.startswith(b"{") or self._random.random() < 0.3:
            return raw
        names = self._random.sample(("day", "bare", "zoned", "no", "Day", "NO"), self._random.randint(1, 3))
        members = ",".join(f'"{name}":{choice((self._quoted_time, self._number))()}' for name in names)
        return b"{" + members.encode() + (b"}" if raw.strip() in (b"{}", b"") else b"," + raw[1:])

    def csv(self) -> bytes:
        """A line with about as many fields as the source has columns."""
        good = ("7", '"a,b"', "-1", "1.5", "true", "5", "2024-02-29", "0002-01-01 00:00:00", "9998-12-31T23:59:59Z")
        odd = (self._number, self._time, self._word)
        fields = [self._random.choice(odd)() if self._random.random() < 0.06 else field for field in good]
        end = self._random.choice((b"", b"\n", b"\r\n", b"")) if self._random.random() < 0.95 else b"\xff"
        return ",".join(fields[: 9 if self._random.random() < 0.97 else 8]).encode() + end

    def any_bytes(self) -> bytes:
        """Any bytes."""
        return self._random.randbytes(self._random.randint(0, 40))

    def spoiled(self, value: bytes) -> bytes:
        """The value, or the value with a fault."""
        at = self._random.randrange(len(value) + 1)
        faults = (value[:at], value[:at] + b"\xff" + value[at:], value + b"\0", b"", b"\0\xff\xff\xff\xff" + value[5:])
        return self._random.choice(faults) if self._random.random() < 0.2 else value

    def _time(self) -> str:
        choice = self._random.choice
        return choice(_DAYS) + choice(_TIMES) + choice(_ZONES)

    def _quoted_time(self) -> str:
        return f'"{self._random.choice(_DAYS) if self._random.random() < 0.4 else self._time()}"'

    def _number(self) -> str:
        numbers = (
            "0",
            "-0",
            "7",
            "32767",
            "32768",
            "1.5",
            "1e400",
            "true",
            "null",
            "NaN",
            "-1",
            "007",
            "1577836800000",
        )
        return self._random.choice(numbers)

    def _plain(self) -> bytes:
        """A JSON object without a fault, as most programs write them; rarely one that Arrow leaves to Spark."""
        choice, number = self._random.choice, self._random.randint
        members = {
            "id": str(number(-(2**63), 2**63 - 1)),
            "name": choice(('"a"', '"é 漢 😀"', '"a\\n\\"b"', '""', '"}{"', '"NaN"', "null")),
            "userid": str(number(-(2**31), 2**31 - 1)),
            "ratio": choice(("0", "1.5", "-2.5e-7", "1e308", "0.1", "9007199254740993", "null")),
            "ison": choice(("true", "false", "null")),
            "no": str(number(-(2**15), 2**15 - 1)),
            "day": choice(('"2024-02-29"', '"0002-01-01"', '"9998-12-31"', '"1582-10-10"', "null")),
            "bare": choice(('"1899-12-31T23:59:59"', '"2024-02-29 00:00:00.000001"', '"0999-01-01 01:02:03.5"')),
            "zoned": choice(
                ('"1890-01-01T00:00:00Z"', '"2024-03-31 01:59:59.25+05:30"', '"1582-10-10 00:00:00-17:59"')
            ),
            "other": choice(("[1, {}]", '{"id": 7}', "1e3")),
        }
        if self._random.random() < 0.002:
            members[choice(list(members))] = choice(('"5"', "-0", "-0.0", '"2024-02-30"', "{}", '"\\u0041"', "1e3"))
        names = self._random.sample(list(members), self._random.randint(1, len(members)))
        space = choice(("", "", "", " "))
        return ("{" + ",".join(f'"{name}":{space}{members[name]}' for name in names) + "}").encode()

    def _word(self) -> str:
        words = ("", '""', '"a,b"', '"a""b"', "é", '"x', 'x"y', " ", "\0", "Infinity", "TRUE", "0", "\u212a")
        return self._random.choice(words)


@pytest.fixture(autouse=True)
def _code(spark: SparkSession) -> Iterator[None]:
    """Spark compiles code, as in users' sessions."""
    keys = ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")
    before = {key: spark.conf.get(key) for key in keys}
    spark.conf.set(keys[0], "FALLBACK")
    spark.conf.set(keys[1], "true")
    yield
    for key, value in before.items():
        spark.conf.set(key, str(value))


def source(columns: str, encode: str) -> CreateSource:
    return source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        f"FORMAT PLAIN ENCODE {encode}"
    )


def records_of(values: Sequence[bytes | None]) -> pa.Table:
    """Records at consecutive offsets, as a reader returns them."""
    count = len(values)
    return pa.table(
        {
            "_rw_split": pa.array(["t:0"] * count),
            OFFSET: pa.array(range(count), pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(["0"] * count),
            "timestamp": pa.nulls(count, pa.timestamp("us", "UTC")),
        }
    )


def rows_of(rows: pa.Table, statement: CreateSource) -> list[str]:
    """Each row's columns, error and bytes, in the order of the offsets."""
    rows = rows.sort_by(OFFSET)
    columns = []
    for name in (*(column.name for column in statement.columns), ERROR, RAW):
        values = rows.column(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        columns.append(values.cast(pa.int32()).to_pylist() if pa.types.is_date(values.type) else values.to_pylist())
    return [repr(row) for row in zip(*columns, strict=True)]


def by_spark(frame: DataFrame, statement: CreateSource) -> list[str]:
    return rows_of(decode(frame, statement, run=0, batch=0, bucket=0).toArrow(), statement)


def require_same_in_spark(
    spark: SparkSession, statement: CreateSource, values: Sequence[bytes | None], folder: Path, seed: str
) -> list[str]:
    """The rows of all records; asserts that Spark makes the same rows of them in other batches."""
    records = records_of(values)
    spark.createDataFrame(records).coalesce(1).write.parquet(str(folder))
    wanted = by_spark(spark.read.parquet(str(folder)), statement)
    assert len(wanted) == len(values)
    assert by_spark(spark.createDataFrame(records), statement) == wanted
    random = Random(seed)
    for size in (1, 100):
        for at in random.sample(range(len(values) - size), DRAWN):
            found = by_spark(spark.createDataFrame(records.slice(at, size)), statement)
            assert found == wanted[at : at + size], (size, at, values[at : at + size])
    return wanted


def test_json(spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "_REST_BATCHES", 0)
    made = Values(f"json {seed}")
    values = made.json(RECORDS)
    statement = source(COLUMNS, "JSON")
    wanted = require_same_in_spark(spark, statement, values, tmp_path / "records", f"json {seed}")
    place: Any = SimpleNamespace(is_local=True)
    arrow = ArrowBatches.of(place, statement, 0)
    assert arrow is not None
    records, schema = records_of(values), pa.schema(Schema.from_json(log_schema(statement).json()).to_arrow())
    for size, count in ((1, RECORDS // 10), (100, RECORDS)):
        decoded = 0
        for at in range(0, count, size):
            found = arrow.rows(records.slice(at, size), schema, batch=0, bucket=0, since={})
            if found is not None:
                decoded += size
                assert rows_of(found, statement) == wanted[at : at + size], (size, at, values[at : at + size])
        assert decoded > count // 10
    rows, known = arrow.reader.read(arrow_batches._texts(records))
    assert known.sum() > 1_000
    places = pa.array(known.nonzero()[0])
    as_log = arrow._with_log_columns(rows, records.take(places), schema, batch=0, bucket=0, since={})
    assert rows_of(as_log, statement) == [wanted[at] for at in places.to_pylist()]
    assert sum(row.endswith(", None, None)") for row in wanted) > RECORDS // 20


@pytest.mark.parametrize(("encode", "columns"), [("CSV", COLUMNS), ("BYTES", "raw BYTEA")])
def test_csv_and_bytes(spark: SparkSession, tmp_path: Path, seed: int, encode: str, columns: str) -> None:
    made = Values(f"{encode} {seed}")
    draw: Callable[[], bytes] = made.csv if encode == "CSV" else made.any_bytes
    values = [None if at % 1_000 == 7 else draw() for at in range(RECORDS)]
    clause = "CSV (without_header = 'true', delimiter = ',')" if encode == "CSV" else encode
    wanted = require_same_in_spark(spark, source(columns, clause), values, tmp_path / "records", f"{encode} {seed}")
    assert sum(row.endswith(", None, None)") for row in wanted) > RECORDS // 1_000


@pytest.mark.registry
def test_avro(spark: SparkSession, schema_registry: RegistryInfo, seed: int) -> None:
    """Records of several schemas; the schemas of a batch are fetched before its records are decoded."""
    writer, random = AvroWriter(schema_registry.url), Random(f"avro {seed}")
    versions = Evolving(random).grow(4)
    records = written_records(random, versions, versions[-1], RECORDS // 25)
    topic = f"sizes-{seed}-{random.getrandbits(32)}"
    ids = [writer.register(f"{topic}-{at}", version) for at, version in enumerate(versions)]
    spoil = Values(f"avro {seed}").spoiled
    values = [spoil(b"\0" + ids[each.version].to_bytes(4, "big") + each.data) for each in records]

    def read(part: list[bytes]) -> list[str]:
        return [repr(row) for row in read_values(spark, schema_registry.url, topic, versions[-1], part)]

    wanted = read(values)
    assert 0 < sum(row.endswith(", None)") for row in wanted) < len(values)
    for size in (1, 100):
        for at in random.sample(range(len(values) - size), DRAWN):
            assert read(values[at : at + size]) == wanted[at : at + size], (size, at)
