"""A table that applies updates and deletes by key, in processes that are killed one after the other.

``python -m tests.crash.keyed_tables`` is one such process, with its task as JSON on standard input. The process
continues the table and its views, and records the ranges that it reads. It is killed at a fault point, or reaches the
end.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, create_topic, delete_records, produce
from rw_sql.metastore import Metastore
from tests.crash.lives import Lives
from tests.support.ageing import Pauses
from tests.support.spark_settings import settings_for
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

POINTS = (
    "ingest.in_batch",
    "batch.before_append",
    "batch.after_append",
    "view.in_batch",
    "batch.before_merge",
    "batch.after_merge",
    "view.after_batch",
    "view.after_claim",
    "fence.after",
)
"""Fault points that each process passes while it reads."""

PARTITIONS = 2
CLASSES = 7
TOP = 9
_DELETED = 0.2


@dataclass(slots=True)
class KilledTable:
    """A topic of updates and deletes, the expected rows, which a dictionary computes from these records, and the
    processes that maintain the table."""

    folder: Path
    bootstrap: str
    updates: int
    keys: int
    draw: random.Random
    pauses: Pauses = field(default_factory=Pauses)
    spark: SparkSession | None = None
    topic: str = ""
    rows: dict[int, int | None] = field(default_factory=dict)
    lives: Lives = field(init=False)

    def __post_init__(self) -> None:
        self.topic = f"keyed.{uuid.uuid4().hex[:8]}"
        self.lives = Lives(
            module="tests.crash.keyed_tables",
            folder=self.folder,
            seconds=LIFE_SECONDS,
            pauses=self.pauses,
            expire=self._expire,
            spark=self.spark,
        )
        create_topic(self.bootstrap, self.topic, PARTITIONS)

    def run(self, points: Sequence[str]) -> Mapping[str, int]:
        """Kills one process at each of the points, lets the last process finish, and compares the table with the
        dictionary. Raises AssertionError."""
        share = self.updates // (len(points) + 1)
        for number, point in enumerate(points):
            self._produce(share)
            status = self._live(point)
            assert status == -signal.SIGKILL, f"{point} (kill {number}): status {status}\n{self.lives.said()}"
        self._produce(self.updates - share * len(points))
        status = self._live("")
        assert status == 0, f"the last process ended with {status}\n{self.lives.said()}"
        found = json.loads((self.folder / "found.json").read_text())
        table = {int(id_): value for id_, value in found["rows"]}
        assert len(table) == len(found["rows"]), "a key has several rows"
        assert table == self.rows, _differences(table, self.rows)
        counted = Counter(id_ % CLASSES for id_ in self.rows)
        totals: Counter[int] = Counter()
        for id_, value in self.rows.items():
            totals[id_ % CLASSES] += value or 0
        assert {row[0]: (row[1], row[2] or 0) for row in found["classes"]} == {
            number: (counted[number], totals[number]) for number in counted
        }
        values = [(id_, value) for id_, value in self.rows.items() if value is not None]
        odd = {id_: value for id_, value in values if value % 2}
        assert dict(found["odd"]) == odd, _differences(dict(found["odd"]), odd)
        # Two views that are recomputed: one view recomputes only the groups that a change affects, and the other view
        # recomputes all rows.
        greatest = {
            number: max((v for id_, v in values if id_ % CLASSES == number), default=None) for number in counted
        }
        assert dict(found["greatest"]) == greatest, "the greatest value of each class"
        highest = sorted(values, key=lambda row: (-row[1], row[0]))[:TOP]
        assert sorted(map(tuple, found["highest"])) == sorted((v, id_) for id_, v in highest), "the highest values"
        return {"processes killed": len(points), "updates": self.updates, "rows compared": len(self.rows)}

    def _produce(self, count: int) -> None:
        records = []
        for _ in range(count):
            id_ = self.draw.randrange(self.keys)
            key = b'{"id":%d}' % id_
            if self.draw.random() < _DELETED:
                self.rows.pop(id_, None)
                records.append(Record(value=None, key=key, partition=id_ % PARTITIONS))
                continue
            value = self.draw.choice((None, self.draw.randrange(1_000_000)))
            self.rows[id_] = value
            body = json.dumps({"id": id_, "v": value}).encode()
            records.append(Record(value=body, key=key, partition=id_ % PARTITIONS))
        produce(self.bootstrap, self.topic, records)

    def _expire(self) -> None:
        """Removes the records that the table's log contains from the topic, as a broker does whose records expire
        within a week."""
        source = Metastore.open(str(self.folder / "warehouse")).snapshot().find("source", "t")
        log = self.folder / "warehouse" / "data" / str(source.id if source is not None else 0) / "1"
        if not log.is_dir():
            return
        read = DeltaTable(str(log)).to_pyarrow_table(columns=["_rw_split", "_rw_offset"])
        ends = read.group_by("_rw_split").aggregate([("_rw_offset", "max")]).to_pylist()
        if ends:
            before = {int(row["_rw_split"].rpartition(":")[2]): row["_rw_offset_max"] + 1 for row in ends}
            delete_records(self.bootstrap, self.topic, before)

    def _live(self, point: str) -> int:
        task = {
            "warehouse": str(self.folder / "warehouse"),
            "folder": str(self.folder),
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "updates": self.updates,
            "point": point,
        }
        return self.lives.live(task, is_killed=bool(point))


def _differences(found: Mapping[int, int | None], expected: Mapping[int, int | None]) -> str:
    lost, more = expected.keys() - found.keys(), found.keys() - expected.keys()
    other = [id_ for id_ in found.keys() & expected.keys() if found[id_] != expected[id_]]
    return f"lost {sorted(lost)[:9]}, not deleted {sorted(more)[:9]}, not updated {sorted(other)[:9]}"


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the table and the views if they are missing, and writes their rows down once all records are read."""
    spark.sql("SET statement_timeout = '600s'")
    made = {row[2] for row in spark.sql("SHOW JOBS").collect()}
    for name, statement in (
        (
            "t",
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (connector = 'kafka', "
            f"topic = '{task['topic']}', properties.bootstrap.server = '{task['bootstrap']}') "
            "FORMAT UPSERT ENCODE JSON",
        ),
        (
            "classes",
            f"CREATE MATERIALIZED VIEW classes AS SELECT id % {CLASSES} AS class, count(*) AS n, sum(v) AS total "
            f"FROM t GROUP BY id % {CLASSES}",
        ),
        ("odd", "CREATE MATERIALIZED VIEW odd AS SELECT id, v FROM t WHERE v % 2 = 1"),
        (
            "greatest",
            f"CREATE MATERIALIZED VIEW greatest AS SELECT id % {CLASSES} AS class, max(v) AS v FROM t "
            f"GROUP BY id % {CLASSES}",
        ),
        (
            "highest",
            "CREATE MATERIALIZED VIEW highest AS SELECT v, id FROM t WHERE v IS NOT NULL "
            f"ORDER BY v DESC, id LIMIT {TOP}",
        ),
    ):
        if name not in made:
            spark.sql(statement)
    spark.sql("FLUSH")
    found = {
        name: [list(row) for row in spark.sql(query).collect()]
        for name, query in (
            ("rows", "SELECT id, v FROM t"),
            ("classes", "SELECT class, n, total FROM classes"),
            ("odd", "SELECT id, v FROM odd"),
            ("greatest", "SELECT class, v FROM greatest"),
            ("highest", "SELECT v, id FROM highest"),
        )
    }
    (Path(task["folder"]) / "found.json").write_text(json.dumps(found))


def _main(task: dict[str, Any]) -> None:
    import rw_sql
    from rw_sql.runtime.support import faults

    # The fault point is armed before the jobs continue, because the jobs may have read all records before the first
    # statement runs.
    faults.arm(task["point"], "both")
    spark = rw_sql.connect(task["warehouse"], config=settings_for(task["updates"]))
    go_on(spark, task)
    rw_sql.detach(spark)
    spark.stop()


if __name__ == "__main__":
    _main(json.load(sys.stdin))
