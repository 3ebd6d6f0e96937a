"""A process that reads a folder into a view until all is there, or until it is killed at a fault point.

Run as ``python -m tests.crash.file_child <json>``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import rw_sql
from rw_sql.runtime.support import faults
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS


def main() -> None:
    task = json.loads(sys.argv[1])
    if task["point"]:
        faults.arm(task["point"], "both")
    spark = rw_sql.connect(task["warehouse"], config=FEW_ROWS)
    spark.sql(
        f"CREATE SOURCE IF NOT EXISTS f (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{task['folder']}', "
        # A batch reads a few files.
        "source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    )
    spark.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT id FROM f")
    if task["point"]:
        time.sleep(LAST_RESORT_SECONDS)  # until it dies
        sys.exit("the fault point was not reached")
    spark.sql("ALTER SOURCE f SET source_rate_limit TO 100000")
    spark.sql("FLUSH")
    Path(task["dump"]).write_text(json.dumps([row.id for row in spark.sql("SELECT id FROM v").collect()]))
    rw_sql.detach(spark)
    spark.stop()


if __name__ == "__main__":
    main()
