"""A view during its backfill, in processes that are killed one after the other.

``python -m tests.crash.histories`` is one such process, with its task as JSON on standard input. The process continues
the view from the state in the catalog, and records the ranges that it reads. It is killed at a fault point, or reaches
the end.
"""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.crash.connected import connected
from tests.crash.lives import Lives, replaced
from tests.support.ageing import Pauses
from tests.support.spark_settings import settings_for
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

POINTS = (
    "history.before_append",
    "history.after_append",
    "history.before_finish",
    "history.after_finish",
    "history.before_query",
    "history.after_query",
    "history.before_move",
    "history.after_move",
    "history.before_live",
    "history.after_live",
)
PARTITIONS = 2
GROUPS = 7


class KilledHistory:
    """A topic of records, a source that began at the end of the topic, and two views of all records. One view appends
    rows, and the other view counts rows."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        records: int,
        chunk: int,
        seed: int = 4,
        spark: SparkSession | None = None,
    ) -> None:
        self.folder = folder
        self.lives = Lives(
            module="tests.crash.histories",
            folder=folder,
            seconds=LIFE_SECONDS,
            pauses=Pauses(seed=seed),
            spark=spark,
        )
        self.bootstrap = bootstrap
        self.topic = f"history.{uuid.uuid4().hex[:8]}"
        self.records = records
        self.chunk = chunk
        create_topic(bootstrap, self.topic, PARTITIONS)
        self._produce(0, records)
        self.orphans: list[int] = []

    def run(self, points: Sequence[str]) -> Mapping[str, int]:
        """Kills one process at each of the points, lets the last process finish, and compares the views with the
        records. Raises AssertionError."""
        for number, point in enumerate(points):
            status = self._live(point)
            assert status == -signal.SIGKILL, f"{point} (kill {number}): status {status}\n{self.lives.said()}"
        self._produce(self.records, self.records + 10)
        status = self._live("")
        assert status == 0, f"the last process ended with {status}\n{self.lives.said()}"
        found = json.loads((self.folder / "found.json").read_text())
        expected = Counter(str(number) for number in range(self.records + 10))
        appended = Counter(found["appended"])
        assert appended == expected, f"{_differences(appended, expected)}\n{self.lives.said()}"
        counted = Counter(number % GROUPS for number in range(self.records + 10))
        assert {int(group): n for group, n in found["counted"].items()} == counted
        read = sum(json.loads(line) for line in (self.folder / "read.jsonl").read_text().splitlines())
        # Each of the two views reads the topic once. After a kill, each view reads at most one chunk again.
        again = read - 2 * self.records
        assert 0 <= again <= 2 * self.chunk * len(points), f"{again} records were read again by {len(points)} kills"
        return {"processes killed": len(points), "records read again": again, "records compared": 2 * self.records}

    def _produce(self, start: int, end: int) -> None:
        records = (Record(value=b'{"id":%d}' % number, partition=number % PARTITIONS) for number in range(start, end))
        produce(self.bootstrap, self.topic, list(records))

    def _live(self, point: str) -> int:
        task = {
            "warehouse": str(self.folder / "warehouse"),
            "folder": str(self.folder),
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "records": self.records,
            "chunk": self.chunk,
            "point": point,
        }
        return self.lives.live(task, is_killed=bool(point))


def _differences(found: Counter[str], expected: Counter[str]) -> str:
    return f"lost {sorted((expected - found).elements())[:9]}, repeated {sorted((found - expected).elements())[:9]}"


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the source and the views if they are missing, and writes the views' rows down once all records are
    read."""
    if not spark.sql("SHOW SOURCES").collect():
        spark.sql(
            f"CREATE SOURCE s (id BIGINT) WITH (connector = 'kafka', topic = '{task['topic']}', "
            f"properties.bootstrap.server = '{task['bootstrap']}', scan.startup.mode = 'latest') "
            "FORMAT PLAIN ENCODE JSON"
        )
    spark.sql("SET background_ddl = true")
    begin = "WITH (scan.startup.mode = 'earliest')"
    made = {row[0] for row in spark.sql("SHOW MATERIALIZED VIEWS").collect()}
    for view, query in (
        ("appended", "SELECT id FROM s"),
        ("counted", f"SELECT id % {GROUPS} AS grp, count(*) AS n FROM s GROUP BY id % {GROUPS}"),
    ):
        if view not in made:
            spark.sql(f"CREATE MATERIALIZED VIEW {view} {begin} AS {query}")
    spark.sql("WAIT")
    spark.sql("SET statement_timeout = '120s'")
    # Prints the jobs for which FLUSH did not wait.
    print([tuple(row) for row in spark.sql("FLUSH").collect()], flush=True)
    found = {
        "appended": [str(row[0]) for row in spark.sql("SELECT id FROM appended").collect()],
        "counted": {row[0]: row[1] for row in spark.sql("SELECT grp, n FROM counted").collect()},
    }
    (Path(task["folder"]) / "found.json").write_text(json.dumps(found))


def around(task: Mapping[str, Any]) -> ExitStack:
    """Makes chunks as small as the task requires, and records every chunk that is read upstream, whether or not it is
    committed."""
    from rw_sql.runtime.backfill import job as backfill

    read = backfill.BackfillReader._from_upstream
    file = Path(task["folder"]) / "read.jsonl"

    def noted(filling: Any, spark: Any, options: Any, chunk: Any, table: Any) -> Any:
        with file.open("a") as lines:
            lines.write(f"{sum(portion.end - portion.start for portion in chunk)}\n")
        return read(filling, spark, options, chunk, table)

    stack = ExitStack()
    stack.enter_context(replaced(backfill, CHUNK_RECORDS=task["chunk"]))
    stack.enter_context(replaced(backfill.BackfillReader, _from_upstream=noted))
    return stack


def _main(task: dict[str, Any]) -> None:
    with around(task), connected(task["warehouse"], settings_for(task["records"]), point=task["point"]) as spark:
        go_on(spark, task)


if __name__ == "__main__":
    _main(json.load(sys.stdin))
