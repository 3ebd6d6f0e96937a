"""Random histories of two tables and recomputed views, with pauses of an hour or a week.

Rows are inserted and deleted, sometimes with a wait and sometimes without a wait. In a pause, all stored data becomes
old. The jobs continue to run during the pause, or were stopped before, possibly in the middle of a batch. Before some
pauses, and at the end, every view is compared with the result of its query for the rows of a dictionary.
"""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.runtime.spark.sessions import plain_sql
from tests.support.ageing import HOUR, WEEK, age_files, grow_old

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.integration.attached import AttachedSession

QUERIES: Mapping[str, str] = {
    "inner_join": "SELECT a.id, a.v AS x, b.v AS y FROM a JOIN b ON a.id = b.id",
    "left_join": "SELECT a.id, a.v AS x, b.v AS y FROM a LEFT JOIN b ON a.id = b.id",
    "full_join": "SELECT coalesce(a.id, b.id) AS id, a.v AS x, b.v AS y FROM a FULL JOIN b ON a.id = b.id",
    "joined_groups": "SELECT a.id % 3 AS g, count(*) AS n, sum(b.v) AS total FROM a JOIN b ON a.id = b.id "
    "GROUP BY a.id % 3",
    "greatest": "SELECT id % 3 AS g, max(v) AS v FROM a GROUP BY id % 3",
    "distinct_values": "SELECT id % 2 AS g, count(DISTINCT v) AS n FROM b GROUP BY id % 2",
    "highest": "SELECT v, id FROM a ORDER BY v DESC, id LIMIT 4",
    "in_both": "SELECT id FROM a WHERE id IN (SELECT id FROM b WHERE v > 20)",
    "either": "SELECT id, v FROM a UNION SELECT id, v FROM b",
}
"""The queries of the views. The views read their inputs at the versions at which a batch ends."""

VIEWS, KEYS, ROWS = 3, 8, 5
_DELETED = 0.25


@dataclass(slots=True)
class OldHistory:
    """One history, drawn by a seed. Most of its steps have a pause.

    ``pause`` is a function that lets a number of seconds pass while the jobs run. By default, it makes the files older
    instead.
    """

    session: AttachedSession
    bootstrap: str
    seed: int
    tables: dict[str, dict[int, int]] = field(default_factory=lambda: {"a": {}, "b": {}})
    facts: dict[str, int] = field(default_factory=lambda: {"pauses": 0, "restarts": 0, "rows compared": 0})
    story: list[str] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    pause: Callable[[float], object] | None = None
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        if self.pause is None:
            self.pause = partial(age_files, Path(self.session.warehouse))

    def run(self, steps: int) -> Mapping[str, int]:
        """Runs the whole history. Raises AssertionError with the history if a view differs from its expected rows."""
        self._create()
        for _ in range(steps):
            for name in self.draw.choice((["a"], ["b"], ["a", "b"], ["b", "a"])):
                self._put(name)
            if self.draw.random() < 0.5:
                self._compare()
            self.draw.choice((self._pause, self._pause, self._stop_for_a_while, lambda: None))()
        self._compare()
        return self.facts

    def run_quiet(self) -> Mapping[str, int]:
        """Runs a history with all views. The views read existing rows, a pause follows, and then both tables are
        written at the same time, several times."""
        self._create(sorted(QUERIES))
        for _ in range(3):
            for name in self.tables:
                self._put(name)
            self._compare()
        self._pause()
        for _ in range(3):
            for name in self.tables:
                self._put(name)
            self._compare()
        return self.facts

    def _create(self, views: Sequence[str] = ()) -> None:
        for name in self.tables:
            self.topics[name] = f"old.{name}.{uuid.uuid4().hex[:8]}"
            create_topic(self.bootstrap, self.topics[name], 1)
            self.session.sql(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) WITH (connector = 'kafka', "
                f"topic = '{self.topics[name]}', properties.bootstrap.server = '{self.bootstrap}') "
                "FORMAT UPSERT ENCODE JSON"
            )
        self.views = list(views) or self.draw.sample(sorted(QUERIES), VIEWS)
        for name in self.views:
            self.session.sql(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")

    def _put(self, name: str) -> None:
        records = []
        for _ in range(self.draw.randint(1, ROWS)):
            id_ = self.draw.randrange(KEYS)
            key = json.dumps({"id": id_}).encode()
            if self.draw.random() < _DELETED:
                self.tables[name].pop(id_, None)
                records.append(Record(key=key, value=None))
            else:
                value = self.tables[name][id_] = self.draw.randrange(50)
                records.append(Record(key=key, value=json.dumps({"id": id_, "v": value}).encode()))
        produce(self.bootstrap, self.topics[name], records)
        self.story.append(f"{len(records)} records to {name}")

    def _pause(self) -> None:
        """Makes all files that the jobs have written so far old, while the jobs continue to run."""
        seconds = self.draw.choice((HOUR, WEEK))
        assert self.pause is not None
        self.pause(seconds)
        self.facts["pauses"] += 1
        self.story.append(f"-- {seconds:.0f} s pass")

    def _stop_for_a_while(self) -> None:
        """Stops the jobs at an arbitrary point, possibly with a batch that is planned but not committed. The jobs
        continue after a pause."""
        seconds = self.draw.choice((HOUR, WEEK + HOUR))
        self.session.detach()
        grow_old(Path(self.session.warehouse), seconds)
        jvm: Any = self.session.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.session.attached = rw_sql.attach(self.session.spark, self.session.warehouse)
        self.facts["restarts"] += 1
        self.story.append(f"-- stopped, and started again {seconds:.0f} s later")

    def _compare(self) -> None:
        self.session.sql("SET statement_timeout = '300s'")
        answers = {row[0]: row[2] for row in self.session.sql("FLUSH")}
        stalled = {name: said for name, said in answers.items() if said and "stalled" in said}
        assert not stalled, f"{stalled}\n{self._told()}"
        wanted = self._wanted()
        for name in self.views:
            found = self.session.rows_of(name)
            assert found == wanted[name], f"{name}: {found}, not {wanted[name]}\n{self._told()}"
            self.facts["rows compared"] += len(found)
        self.story.append("-- compared")

    def _wanted(self) -> dict[str, list[tuple[Any, ...]]]:
        """The results of the queries for the rows of the dictionaries, computed in a session without rw_sql's
        tables."""
        spark = self.session.spark.newSession()
        for name, rows in self.tables.items():
            spark.createDataFrame(sorted(rows.items()), "id INT, v INT").createOrReplaceTempView(name)
        rows_of = {name: [tuple(row) for row in plain_sql(spark, QUERIES[name]).collect()] for name in self.views}
        return {
            name: sorted(rows, key=lambda row: [(value is not None, value) for value in row])
            for name, rows in rows_of.items()
        }

    def _told(self) -> str:
        return "\n".join([f"seed {self.seed}: {', '.join(self.views)}", *self.story])
