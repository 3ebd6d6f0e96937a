"""A process that captures the tables of a database until the process is killed, or until its copies equal the
database's tables.

Run as ``python -m tests.crash.soak_child``, the process reads its task as JSON from standard input.
"""

from __future__ import annotations

import contextlib
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
    """Creates the source and its tables if they are missing. The source is paused until it has all tables, because its
    reader would restart for each new table."""
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
    """Runs the statements that the reason of a stall names, as an operator does. If a statement is refused, the next
    call runs the statements again."""
    for row in spark.sql("SHOW JOBS").collect():
        if row.state == "STALLED" and "COLUMNS of" in row.reason and "ALTER TABLE" in row.reason:
            for statement in row.reason[row.reason.index("ALTER TABLE") :].split(";"):
                with contextlib.suppress(rw_sql.SqlError):
                    spark.sql(statement.strip())


def dump(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Waits until all present changes have been read, and writes the rows of all tables down as text. Writes nothing if
    a job stalls in the meantime, because the job may need a statement."""
    try:
        spark.sql("FLUSH").collect()
    except rw_sql.SqlError:
        return
    made = {}
    for name in task["tables"]:
        rows = spark.sql(f"SELECT * FROM {name}")
        rows = rows.selectExpr(*(f"CAST(`{column}` AS STRING) AS `{column}`" for column in rows.columns))
        made[name] = [row.asDict() for row in rows.collect()]
    Path(task["dump"]).write_text(json.dumps(made))


def _main(task: dict[str, Any]) -> None:
    spark = rw_sql.connect(task["warehouse"], config=SPARK_SETTINGS)
    # On a busy machine, a batch of a table may take longer than the default time for which FLUSH waits.
    spark.sql(f"SET statement_timeout = '{LAST_RESORT_SECONDS:.0f}s'")
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
