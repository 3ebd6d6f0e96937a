"""A Spark data source in Python, for connectors that read an upstream in parts, as Arrow tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rw_sql.connectors.support.data_sources import register_source
from rw_sql.connectors.support.pickled import frozen, thawed
from rw_sql.connectors.support.private_files import private_file, share_with_executors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class PartReader(Protocol):
    """Reads parts of an upstream. A reader must be serializable, because Spark's Python processes also use it."""

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the records of a part, as tables with the columns of the data source."""
        ...


class _TableReader(DataSourceReader):
    """Lets a separate task read each part."""

    def __init__(self, options: Mapping[str, str]) -> None:
        config = json.loads(Path(options["config"]).read_text(encoding="utf-8"))
        self._reader: PartReader = thawed(config["reader"])
        self._options: dict[str, str] = config["options"]
        self._parts: list[Any] = json.loads(options["parts"])

    def partitions(self) -> Sequence[InputPartition]:
        # Spark requires at least one partition.
        return [InputPartition(json.dumps(part)) for part in self._parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            for table in self._reader.read(self._options, json.loads(partition.value)):
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)


_BATCH_ROWS = 10_000


class TableDataSource(DataSource):
    """The data source of ``spark.read.format("rw_sql_tables")``."""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_tables"

    def schema(self) -> str | StructType:
        from pyspark.sql.types import StructType

        columns = str(self.options["columns"])
        return StructType.fromJson(json.loads(columns)) if columns.startswith("{") else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TableReader(self.options)


def read_parts(
    spark: SparkSession, reader: PartReader, options: Mapping[str, str], parts: Sequence[Any], columns: str
) -> DataFrame:
    """Returns the records of all parts. Each part is a JSON value that ``reader`` understands. ``columns`` is the
    schema of the records, as Spark's DDL or JSON."""
    config = {"reader": frozen(reader), "options": dict(options)}
    share_with_executors(options.values())
    register_source(spark, TableDataSource)
    return (
        spark.read.format("rw_sql_tables")
        .option("config", str(private_file(json.dumps(config))))
        .option("parts", json.dumps(list(parts)))
        .option("columns", columns)
        .load()
    )
