"""A process with a Spark session that reads through connectors. A separate session leaves the sessions of other tests
unchanged.

Each input line is a request as JSON: ``{connector, options, positions, …}``. Each output line is the answer:
``{batches, end, types, beginning}`` or ``{error}``. The process reads until no record is left. ``beginning`` is the
start of the source according to the checkpoint. If a request contains ``beginning``, this value is stored in the
checkpoint before the read.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(spark, json.loads(line))) + "\n")
        answers.flush()
    spark.stop()


def _answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    reader = connector(asked["connector"])
    for package in reader.spark_packages():
        spark.sql(f"ADD JAR '{package}'")
    stream = reader.read_stream(
        spark,
        asked["options"],
        {split: SplitState(split=split, offset=offset) for split, offset in asked["positions"].items()},
        max_records=asked["max_records"],
        with_headers=asked["with_headers"],
        columns=asked["columns"],
    )
    batches: list[list[Any]] = []

    def collect(batch: DataFrame, _number: int) -> None:
        batches.append([_row(row) for row in batch.collect()])

    with tempfile.TemporaryDirectory() as checkpoint:
        first = Path(checkpoint, "sources", "0", "0")
        if asked.get("beginning") is not None:
            first.parent.mkdir(parents=True)
            first.write_text(asked["beginning"])
        query = (
            stream.writeStream.foreachBatch(collect)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException as error:
            return {"error": str(error)}
        offsets = sorted(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        end = reader.read_positions(offsets[-1].read_text().splitlines()[2]) if offsets else asked["positions"]
        beginning = first.read_text() if first.exists() else None
    return {"batches": batches, "end": end, "types": dict(stream.dtypes), "beginning": beginning}


def _row(row: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.asDict(recursive=True).items()}


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return bytes(value).decode()
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case None | int() | str():
            return value
        case _:
            return str(value)


if __name__ == "__main__":
    main()
