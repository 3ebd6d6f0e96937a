"""A Spark data source in Python, for connectors whose Python method yields the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rw_sql.connectors.support.arrow_schemas import arrow_schema
from rw_sql.connectors.support.data_sources import register_source
from rw_sql.connectors.support.pickled import frozen, thawed
from rw_sql.connectors.support.private_files import private_file, share_with_executors
from rw_sql.connectors.support.records.record_columns import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rw_sql.connectors.base import Record

_BATCH_ROWS = 10_000


class Records(Protocol):
    """A connector that yields its records in Python, such as :class:`rw_sql.connectors.ranged.PythonConnector`."""

    def records(self, options: Mapping[str, str], split: str, start: int, end: int) -> Iterator[Record]:
        """Yields the records of a split with offsets in ``[start, end)``, in the order of their offsets."""
        ...


class RecordReader(DataSourceReader):
    """Reads ranges of splits. A separate task reads each range."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        config = json.loads(Path(options["config"]).read_text(encoding="utf-8"))
        self._connector: Records = thawed(config["connector"])
        self._options: dict[str, str] = config["options"]
        self._ranges: dict[str, list[int]] = json.loads(options["ranges"])
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark requires at least one partition.
        return [InputPartition((split, *bounds)) for split, bounds in self._ranges.items()] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        split, start, end = partition.value
        held: list[Record] = []
        for record in self._connector.records(self._options, split, start, end):
            held.append(record)
            if len(held) == _BATCH_ROWS:
                yield self._batch(split, held)
                held = []
        if held:
            yield self._batch(split, held)

    def _batch(self, split: str, records: list[Record]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [
                {
                    "_rw_split": split,
                    "_rw_offset": record.offset,
                    "key": record.key,
                    "value": record.value,
                    "partition": split,
                    "timestamp": None if record.timestamp_ms is None else record.timestamp_ms * 1000,
                    "headers": None,
                }
                for record in records
            ],
            schema=self._schema,
        )


class RecordDataSource(DataSource):
    """The data source of ``spark.read.format("rw_sql_records")``."""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_records"

    def schema(self) -> str:
        return RECORDS

    def reader(self, schema: StructType) -> DataSourceReader:
        return RecordReader(self.options, schema)


def read_batch(
    spark: SparkSession, connector: Records, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]
) -> DataFrame:
    """The records of these ranges."""
    config = {"connector": frozen(connector), "options": dict(options)}
    share_with_executors(options.values())
    register_source(spark, RecordDataSource)
    return (
        spark.read.format("rw_sql_records")
        .option("config", str(private_file(json.dumps(config))))
        .option("ranges", json.dumps({split: list(bounds) for split, bounds in ranges.items()}))
        .load()
    )
