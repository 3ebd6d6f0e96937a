"""A process whose source and view come to rest. The process is killed at a fault point while its jobs come to rest, or
while they wake.

Run as ``python -m tests.crash.rest_child``, the process reads its task as JSON from standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.cli.servers.kafka_topics import Record, produce
from rw_sql.runtime.support import faults
from tests.crash.connected import connected
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

GOING = ("rest.before_stop", "rest.after_stop@2")
"""The fault points at which a process is killed while its jobs come to rest."""

WAKING = ("ingest.after_claim", "view.before_query", "batch.after_append")
"""The fault points at which a process is killed while a record wakes its jobs."""


def _is_idle(spark: SparkSession) -> bool:
    return all((row.reason or "").startswith("idle: ") for row in spark.sql("SHOW JOBS").collect())


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the source and the view if they are missing, and writes the view's rows down once all records are
    read."""
    point: str = task["point"]
    if point in GOING:
        faults.arm(point, "both")
    spark.sql("ALTER SYSTEM SET idle_job_timeout = '1s'")
    spark.sql(
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'kafka', topic = '{task['topic']}', "
        f"properties.bootstrap.server = '{task['bootstrap']}') FORMAT PLAIN ENCODE JSON"
    )
    spark.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT count(*) AS n, sum(id) AS total FROM s")
    if point:
        wait_until(lambda: _is_idle(spark), "both rest", look_seconds=0.1)
        faults.arm(point, "both")
        produce(task["bootstrap"], task["topic"], [Record(value=b'{"id": 1000}')])
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    spark.sql("FLUSH")
    rows = [(row.n, row.total) for row in spark.sql("SELECT n, total FROM v").collect()]
    Path(task["dump"]).write_text(json.dumps(rows))


def _main(task: dict[str, Any]) -> None:
    with connected(task["warehouse"], FEW_ROWS) as spark:
        go_on(spark, task)


if __name__ == "__main__":
    _main(json.load(sys.stdin))
