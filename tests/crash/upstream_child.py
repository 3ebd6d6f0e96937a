"""A process that reads a source into a view until all records are read, or until the process is killed at a fault
point.

``python -m tests.crash.upstream_child`` reads its task as JSON from standard input. The task contains the path
``warehouse``. ``create`` are the statements that create the source ``s`` if it is missing, with a ``source_rate_limit``
for small batches. ``point`` is the fault point, or an empty text. ``dump`` is the file for the ids in the view.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.connected import connected
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

POINTS = (
    "ingest.in_batch@2",
    "batch.before_append@2",
    "batch.after_append@2",
    "batch.after_append@3",
)
"""The fault points at which a process may be killed."""


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the source and the view if they are missing, and writes the view's ids down once all records are read."""
    for statement in task["create"]:
        spark.sql(statement)
    spark.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT id FROM s")
    if task["point"]:
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    spark.sql("ALTER SOURCE s SET source_rate_limit TO 100000")
    spark.sql("FLUSH")
    Path(task["dump"]).write_text(json.dumps([row.id for row in spark.sql("SELECT id FROM v").collect()]))


def _main(task: dict[str, Any]) -> None:
    with connected(task["warehouse"], FEW_ROWS, point=task["point"]) as spark:
        go_on(spark, task)


if __name__ == "__main__":
    _main(json.load(sys.stdin))
