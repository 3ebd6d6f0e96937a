"""A process that reads a Kinesis stream into a view until all is there, or until it is killed at a fault point.

Run as ``python -m tests.crash.kinesis_child`` it takes its task as JSON on the standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.runtime.support import faults
from tests.crash.nats_child import POINTS as POINTS
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """The source and the view, made where they are missing, and the view's rows once all records are read."""
    spark.sql("CREATE SECRET IF NOT EXISTS kinesis_key WITH (backend = 'meta') AS 'tests-secret'")
    spark.sql(
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'kinesis', stream = '{task['stream']}', "
        f"endpoint = '{task['endpoint']}', aws.region = 'eu-central-1', aws.credentials.access_key_id = 'tests', "
        "aws.credentials.secret_access_key = SECRET kinesis_key, kinesis.reader.eof_retry_interval_ms = '50', "
        # A batch reads a few records.
        "source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    )
    spark.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT id FROM s")
    if task["point"]:
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    spark.sql("ALTER SOURCE s SET source_rate_limit TO 100000")
    spark.sql("FLUSH")
    Path(task["dump"]).write_text(json.dumps([row.id for row in spark.sql("SELECT id FROM v").collect()]))


def _main(task: dict[str, Any]) -> None:
    faults.arm(task["point"], "both")
    spark = rw_sql.connect(task["warehouse"], config=FEW_ROWS)
    go_on(spark, task)
    rw_sql.detach(spark)
    spark.stop()


if __name__ == "__main__":
    _main(json.load(sys.stdin))
