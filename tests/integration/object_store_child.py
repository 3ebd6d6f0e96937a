"""A process that writes large batches to tables in an object store, and that suspends itself at given fault points.

Each line of standard input is a task as JSON, and each line of standard output its result. ``pause`` names a fault
point. At this point, the process reports the pause, and suspends itself and its JVM (SIGSTOP). The parent process
resumes them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.runtime.delta import job_output as module
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.session.attach import Attached


def main(warehouse: str) -> None:
    """Serves tasks until standard input ends. Only the environment contains the address and the keys of the store."""
    first = rw_sql.connect(f"{warehouse}/live", run_jobs=False, config=FEW_ROWS)
    rw_sql.detach(first)
    sessions = SparkSessions(first)
    spark = sessions.new()
    outputs: dict[str, JobOutput] = {}
    live: dict[str, Attached] = {}
    say({"ready": True})
    for line in sys.stdin:
        task = json.loads(line)
        pause = task.get("pause")

        def pass_fault(name: str, pause: str | None = pause) -> None:
            if name == pause:
                say({"paused": [os.getpid(), sessions.jvm_pid]})
                os.kill(sessions.jvm_pid, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)

        vars(module)["fault"] = pass_fault
        if task["do"] == "sql":
            if "attached" not in live:
                live["attached"] = rw_sql.attach(first, f"{warehouse}/live")
                live["attached"].ask = lambda _: True
            say({"rows": [[*row] for row in first.sql(task["text"]).collect()]})
            continue
        try:
            do(spark, Warehouse.at(warehouse), outputs, task)
        except FencedError:
            say({"done": "fenced"})
        else:
            say({"done": "committed"})
    rw_sql.detach(first)


def do(spark: SparkSession, warehouse: Warehouse, outputs: dict[str, JobOutput], task: dict[str, Any]) -> None:
    """Carries out a task on a table: opens the table (``open``), appends or merges rows, or reads the table's change
    feed (``feed``)."""
    path = f"{warehouse.uri}/{task['table']}"
    frame = spark.createDataFrame([tuple(row) for row in task["rows"]], task["schema"]).coalesce(1).persist()
    match task["do"]:
        case "open":
            outputs[path] = JobOutput.open(
                warehouse,
                path,
                frame.schema.json(),
                job="mv-1",
                run=1,
                epoch=1,
                has_change_feed=task["feed"],
                partition_by=task["partition"],
            )
        case "append":
            outputs[path].append_frame(frame, task["batch"], partition=task.get("values"))
        case "merge":
            outputs[path].upsert_frame(frame, task["keys"], task["batch"])
        case "feed":
            changes = (
                spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", task["since"])
            )
            rows = changes.load(path).drop("_commit_timestamp").collect()
            say({"rows": sorted(([*row] for row in rows), key=str)})


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
