"""A process that follows the tables of a database until it is killed, or until they equal the database's.

Run as ``python -m tests.crash.soak_child`` it takes its task as JSON on the standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from tests.support.spark_settings import SPARK_SETTINGS
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_LOOK_SECONDS = 1.0


def create(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """The source and its tables, where they are missing. The source is paused until it has all of them, because its
    reader restarts with each."""
    listed = ", ".join(f"{key} = '{value}'" for key, value in task["options"].items())
    spark.sql(f"CREATE SECRET IF NOT EXISTS pw WITH (backend = 'file', path = '{task['password']}')")
    spark.sql(
        f"CREATE SOURCE IF NOT EXISTS pg WITH (connector = 'postgres-cdc', auto.schema.change = 'true', {listed}, "
        "password = SECRET pw, paused = 'true')"
    )
    spark.sql("SET background_ddl = 'true'")
    for name, table in task["tables"].items():
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({table['columns']}) FROM pg TABLE '{table['upstream']}'")
    spark.sql("RESUME SOURCE pg")


def mend(spark: SparkSession) -> None:
    """Types the statements that a stall shows, as an operator does."""
    for row in spark.sql("SHOW JOBS").collect():
        if row.state == "STALLED" and "COLUMNS of" in row.reason and "ALTER TABLE" in row.reason:
            for statement in row.reason[row.reason.index("ALTER TABLE") :].split(";"):
                spark.sql(statement.strip())


def dump(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """The rows of all tables as texts, once all that is there now has been read."""
    spark.sql("FLUSH").collect()
    made = {}
    for name in task["tables"]:
        rows = spark.sql(f"SELECT * FROM {name}")
        rows = rows.selectExpr(*(f"CAST(`{column}` AS STRING) AS `{column}`" for column in rows.columns))
        made[name] = [row.asDict() for row in rows.collect()]
    Path(task["dump"]).write_text(json.dumps(made))


def _main(task: dict[str, Any]) -> None:
    spark = rw_sql.connect(task["warehouse"], config=SPARK_SETTINGS)
    create(spark, task)
    Path(task["ready"]).touch()
    ended, go_on = time.monotonic() + LAST_RESORT_SECONDS, Path(task["dump"])
    while not task["is_last"] or time.monotonic() < ended:
        mend(spark)
        if task["is_last"] and not go_on.exists():  # The parent removes it as long as the rows differ.
            dump(spark, task)
        if Path(task["end"]).exists():
            break
        time.sleep(_LOOK_SECONDS)
    rw_sql.detach(spark)
    spark.stop()


if __name__ == "__main__":
    _main(json.load(sys.stdin))
