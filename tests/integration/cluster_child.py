"""A process whose Spark uses a standalone cluster. At the path of the warehouse, one of the executors sees another
folder.

Run as ``python -m tests.integration.cluster_child <folder>``. The last line of the output contains the findings as
JSON. The process is separate, because a process has only one Spark.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import rw_sql
from rw_sql.runtime.delta.delta_log import last_batch
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.spark.shared_folder import CHECK_VARIABLE
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.integration.attached import AttachedSession, Job, wait_until
from tests.integration.cluster import Cluster
from tests.support.java import java_options

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, FILES = 100_000, 4


def main(folder: Path) -> dict[str, object]:
    """Runs a view's job with a worker that does not share the warehouse's folder. At first, the check of the folder
    refuses the job. Then the check is disabled, and a batch stalls. At last, the worker shares the folder, and the job
    succeeds."""
    warehouse, given = folder / "warehouse", folder / "given"
    warehouse.mkdir()
    for part in range(FILES):
        ids = pa.array(range(part * ROWS // FILES, (part + 1) * ROWS // FILES), pa.int64())
        write_deltalake(str(given), pa.table({"id": ids}), mode="append")
    with Cluster(folder) as cluster:
        cluster.add_worker("seeing")
        cluster.add_worker("blind", blind_to=warehouse)
        spark = rw_sql.connect(
            str(warehouse),
            config={
                "spark.master": cluster.master,
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.memory": "768m",
                "spark.driver.extraJavaOptions": java_options(),
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.ui.enabled": "false",
            },
        )
        session = AttachedSession(spark, str(warehouse))
        # Waits for both executors, because otherwise the first batch might use only the executor that sees the folder.
        cluster.wait_for_workers("seeing", "blind")
        wait_until(lambda: len(_executors(session)) == 2, "both executors are there")
        session.run(f"CREATE MATERIALIZED VIEW kept AS SELECT id FROM delta.`{given}`")
        refused = _job(session, lambda job: job.state == "STALLED", "the view is refused")
        view = int(refused.job.removeprefix("mv-"))
        table = warehouse / "data" / str(view) / "1"
        was_written = table.exists()
        # In the worst case, the worker sees the files of other processes, but no other process sees the files that the
        # worker writes.
        cluster.give_own_copy("blind", warehouse)
        one_way = _job(session, lambda job: "the driver does not see" in job.reason, "the view is refused again")
        os.environ[CHECK_VARIABLE] = "off"
        stalled = _job(session, lambda job: job.reason.startswith("MISCOUNT"), "the batch stalls")
        committed = DeltaTable(str(table)).count()
        session.detach()
        merged = _merge(session, folder / "warehouse" / "merged")
        del os.environ[CHECK_VARIABLE]
        session = AttachedSession(spark, str(warehouse))
        _job(session, lambda job: job.reason.startswith("UNSHARED"), "the view is refused once more")
        cluster.give_sight("blind", warehouse)
        wait_until(lambda: table.exists() and DeltaTable(str(table)).count() == ROWS, "all rows are there")
        found = DeltaTable(str(table)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        left = [path.name for path in warehouse.iterdir() if path.name.startswith("_rw_shared")]
        session.detach()
        spark.stop()
    return {
        "refused": refused.reason,
        "was_written": was_written,
        "stalled": stalled.reason,
        "committed": committed,
        "one_way": one_way.reason,
        "merged": merged,
        "is_whole": sorted(found) == list(range(ROWS)),
        "left": left,
    }


def _merge(session: AttachedSession, path: Path) -> tuple[str, int, int]:
    """Commits a large keyed batch. Returns the error, the number of rows in the table afterwards, and the newest batch
    number in the table."""
    own = SparkSessions(session.spark, is_local=True).new()
    rows = own.range(20_000, numPartitions=4).selectExpr("id", "id AS n")
    warehouse = Warehouse.at(session.warehouse)
    output = JobOutput.open(warehouse, str(path), rows.schema.json(), job="mv-900", run=1, epoch=1)
    output.append_rows(pa.table({"id": pa.array([7], pa.int64()), "n": pa.array([0], pa.int64())}), 0)
    reason = ""
    try:
        output.upsert_frame(rows, ["id"], 1, rows=20_000)
    except StalledError as error:
        reason = error.reason
    return reason, DeltaTable(str(path)).count(), last_batch(warehouse, str(path), 1)


def _executors(session: AttachedSession) -> list[str]:
    context = session.spark.sparkContext
    return [one for one in str(context._jsc.sc().getExecutorIds().mkString(",")).split(",") if one]


def _job(session: AttachedSession, is_met: Callable[[Job], bool], what: str) -> Job:
    """The view's job, once it meets the condition."""
    wait_until(lambda: is_met(session.job("kept")), what)
    return session.job("kept")


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
