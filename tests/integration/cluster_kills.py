"""Kills of executors and workers while records of Kafka are read into two views, in a separate process.

Run as ``python -m tests.integration.cluster_kills``, with the task as JSON on standard input; see
:func:`kill_and_count`.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.cluster import Cluster
from tests.integration.cluster_session import WORKERS, run_in_child, session_on_cluster

PARTITIONS = 4
KINDS = 97
_BATCHES, _SECONDS = 5, 25
_AWAY_SECONDS = 3.0


def kill_and_count(
    folder: Path, bootstrap: str, *, seed: int, records: int, kills: int, is_backlog: bool
) -> dict[str, int]:
    """Starts a new process, which reads ``records`` records of a new topic into a view of rows and a view of groups.
    Meanwhile, kills executors and workers alternately, ``kills`` times in total. Returns the numbers of kills and of
    other events.

    With ``is_backlog``, the source may read all records in one batch. Otherwise, it reads a fifth of the records every
    5 s. Raises AssertionError if a row is missing, repeated or wrong.
    """
    task = {
        "folder": str(folder),
        "bootstrap": bootstrap,
        "seed": seed,
        "records": records,
        "kills": kills,
        "is_backlog": is_backlog,
    }
    return {name: int(number) for name, number in run_in_child("tests.integration.cluster_kills", task).items()}


@dataclass(slots=True)
class _Views:
    """The tables of the two views."""

    every: DeltaTable
    per_kind: DeltaTable

    def rows(self) -> int:
        """The number of records that both views contain."""
        for table in (self.every, self.per_kind):
            table.update_incremental()
        grouped: int = sum(self.per_kind.to_pyarrow_table(columns=["c"])["c"].to_pylist())
        return min(self.every.count(), grouped)


@dataclass(slots=True)
class _Killer:
    """Kills executors and workers while Spark's tasks run."""

    session: AttachedSession
    cluster: Cluster
    views: _Views
    draw: random.Random
    kills: int
    is_backlog: bool
    counts: Counter[str] = field(default_factory=Counter)
    _never: threading.Event = field(default_factory=threading.Event)

    def run(self, records: int) -> None:
        """Returns after all kills, or when both views have all records."""
        for number in range(self.kills):
            # The kills are spread over the batches if there are several.
            before = 0 if self.is_backlog else records * number // (self.kills + 1)
            wait_until(partial(self._is_reading, before, records), "records are read")
            self._never.wait(self.draw.uniform(0, 1))
            if self.views.rows() >= records:
                return
            name = self.draw.choice([name for name in WORKERS if self.cluster.executors(name)] or WORKERS)
            if number % 2 == 0:
                self.counts["executors killed"] += self.cluster.kill_executor(name)
            else:
                self.cluster.kill_worker(name)
                self.counts["workers killed"] += 1
                self._never.wait(self.draw.uniform(0, _AWAY_SECONDS))
                self.cluster.start_worker(name)

    def _is_reading(self, before: int, records: int) -> bool:
        """True if ``before`` records were read and an executor is running tasks. Also true if all records were read."""
        rows = self.views.rows()
        return rows >= records or (rows >= before and self._has_tasks() and any(map(self.cluster.executors, WORKERS)))

    def _has_tasks(self) -> bool:
        tracker = self.session.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def _records(records: int) -> Iterator[Record]:
    for number in range(records):
        text = f'{{"id": {number}, "kind": {number % KINDS}, "n": {number * 7 % 1000}}}'
        yield Record(value=text.encode(), partition=number % PARTITIONS)


def _table(session: AttachedSession, name: str) -> DeltaTable:
    (found,) = session.sql(f"SELECT id FROM rw_catalog.rw_materialized_views WHERE name = '{name}'")
    path = Path(session.warehouse) / "data" / str(found.id) / "1"
    wait_until(lambda: (path / "_delta_log").exists() and DeltaTable.is_deltatable(str(path)), f"{name} has a table")
    return DeltaTable(str(path))


def main(task: Mapping[str, object]) -> dict[str, int]:
    """See :func:`kill_and_count`."""
    folder, bootstrap, records = Path(str(task["folder"])), str(task["bootstrap"]), int(str(task["records"]))
    topic = f"kills-{task['seed']}-{folder.name}"
    create_topic(bootstrap, topic, PARTITIONS)
    produce(bootstrap, topic, _records(records))
    limit = f", source_rate_limit = '{records // _SECONDS}', barrier_interval_ms = '{1000 * _SECONDS // _BATCHES}'"
    with session_on_cluster(folder) as (session, cluster):
        session.run(
            f"CREATE SOURCE s (id BIGINT, kind INT, n BIGINT) WITH (connector = 'kafka', topic = '{topic}', "
            f"paused = 'true', properties.bootstrap.server = '{bootstrap}'{'' if task['is_backlog'] else limit}) "
            "FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW every AS SELECT id, kind, n FROM s",
            "CREATE MATERIALIZED VIEW per_kind AS SELECT kind, count(*) AS c, sum(id) AS ids, sum(n) AS n FROM s "
            "GROUP BY kind",
        )
        views = _Views(*(_table(session, name) for name in ("every", "per_kind")))
        killer = _Killer(
            session,
            cluster,
            views,
            random.Random(int(str(task["seed"]))),
            int(str(task["kills"])),
            is_backlog=bool(task["is_backlog"]),
        )
        session.run("RESUME SOURCE s")
        killer.run(records)
        left = records - views.rows()
        session.sql("FLUSH")
        every = views.every
        every.update_incremental()
        rows = every.to_pyarrow_table(columns=["id", "kind", "n"])
        ids = rows["id"].to_pylist()
        assert sorted(ids) == list(range(records)), f"{len(ids)} rows, {len(set(ids))} different, of {records}"
        assert all(
            (kind, n) == (id_ % KINDS, id_ * 7 % 1000)
            for id_, kind, n in zip(ids, rows["kind"].to_pylist(), rows["n"].to_pylist(), strict=True)
        )
        assert session.rows_of("per_kind", "kind, c, ids, n") == _groups(records)
        restarts = sum(job.restarts for job in session.jobs().values())
        batches = len(every.history())
    return {
        "records": records,
        "rows left after the last kill": left,
        "commits of the view": batches,
        "restarts of jobs": restarts,
        **killer.counts,
    }


def _groups(records: int) -> list[tuple[int, int, int, int]]:
    counts: list[list[int]] = [[0, 0, 0] for _ in range(KINDS)]
    for number in range(records):
        group = counts[number % KINDS]
        group[0] += 1
        group[1] += number
        group[2] += number * 7 % 1000
    return [(kind, c, ids, n) for kind, (c, ids, n) in enumerate(counts) if c]


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
