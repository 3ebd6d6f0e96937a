"""A process that captures two tables of a database until its copies have the expected rows, or until the process is
killed.

Run as ``python -m tests.crash.cdc_child``, the process reads its task as JSON from standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.connected import connected
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

TABLES = ("a", "b")


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the source and its tables if they are missing. Waits until the rows of the tables equal the rows of the
    database, and writes the rows of the source down."""
    listed = ", ".join(f"{key} = '{value}'" for key, value in task["options"].items())
    spark.sql(f"CREATE SECRET IF NOT EXISTS pw WITH (backend = 'file', path = '{task['password']}')")
    connector = task.get("connector", "postgres-cdc")
    spark.sql(f"CREATE SOURCE IF NOT EXISTS db WITH (connector = '{connector}', {listed}, password = SECRET pw)")
    for name in TABLES:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} (*) WITH (snapshot.batch_size = '10') "
            f"FROM db TABLE '{task['schema']}.{name}'"
        )
    if task["point"]:
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    wanted = task["rows"]

    def rows() -> dict[str, list[list[Any]]]:
        return {
            name: sorted([row.id, row.word] for row in spark.sql(f"SELECT id, word FROM {name}").collect())
            for name in TABLES
        }

    wait_until(lambda: rows() == wanted, "the tables to equal the database's", look_seconds=0.2)
    changes = spark.sql("SELECT table_name, op, key, row FROM db").collect()
    Path(task["dump"]).write_text(json.dumps([list(row) for row in changes]))


def _main(task: dict[str, Any]) -> None:
    with connected(task["warehouse"], FEW_ROWS, point=task["point"]) as spark:
        go_on(spark, task)


if __name__ == "__main__":
    _main(json.load(sys.stdin))
