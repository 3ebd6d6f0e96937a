"""Random schedules: records are produced, views made and dropped, positions moved, partitions added, jobs restarted.

What a view must hold is told by its record in the catalog and by the log, not by what read them: each offset of its
history once, and every row that the log got after the version its history was planned at.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from rw_sql.cli.kafka_topics import Record, add_partitions, create_topic, produce
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.plan.history import History
from tests.integration.attached import AttachedSession, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

Row = tuple[str, str]

_MODES = ("", "scan.startup.mode = 'earliest'", "scan.startup.mode = 'latest'")


@dataclass(slots=True)
class Schedule:
    """One topic, one source ``s``, and views that come and go."""

    spark: SparkSession
    warehouse: str
    bootstrap: str
    topic: str
    draw: random.Random
    session: AttachedSession = field(init=False)
    ends: dict[int, int] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    made: int = 0
    story: list[str] = field(default_factory=list)

    def run(self, steps: int) -> dict[str, int]:
        """So many steps, then all that was produced, and a comparison. Raises AssertionError with the story."""
        create_topic(self.bootstrap, self.topic, 2)
        self.ends = {0: 0, 1: 0}
        self._produce()
        self._attach()
        mode = self.draw.choice(("earliest", "latest"))
        self._say(
            f"CREATE SOURCE s (id BIGINT) INCLUDE partition AS part INCLUDE offset AS place WITH (connector = 'kafka', "
            f"topic = '{self.topic}', properties.bootstrap.server = '{self.bootstrap}', scan.startup.mode = '{mode}') "
            "FORMAT PLAIN ENCODE JSON"
        )
        self._say("CREATE MATERIALIZED VIEW kept AS SELECT part, place FROM s")
        self.views.append("kept")
        acts: tuple[Callable[[], None], ...] = (
            self._produce,
            self._produce,
            self._make,
            self._make,
            self._drop,
            self._inject,
            self._inject,
            self._reset,
            self._grow,
            self._restart,
            self._flush,
        )
        for _ in range(steps):
            self.draw.choice(acts)()
        self._say("WAIT")
        wait_until(self._is_read, "the source has read the topic")
        compared = 0
        for view in self.views:
            self._flush()
            found = self._rows(view)
            expected = self._expected(view)
            assert found == expected, (
                f"{view}: lost {sorted((expected - found).elements())[:9]}, "
                f"repeated {sorted((found - expected).elements())[:9]}\n" + "\n".join(self.story)
            )
            compared += sum(found.values())
        self.session.detach()
        return {"steps": steps, "views compared": len(self.views), "rows compared": compared}

    def _say(self, text: str) -> None:
        self.story.append(text)
        self.session.sql(text)

    def _attach(self) -> None:
        self.session = AttachedSession(self.spark, self.warehouse)
        self.session.allow_unsafe()

    def _restart(self) -> None:
        self.story.append("-- restart")
        self.session.detach()
        self._attach()

    def _produce(self) -> None:
        count = self.draw.randint(1, 60)
        records = [
            Record(value=json.dumps({"id": place}).encode(), partition=number)
            for number, end in self.ends.items()
            for place in range(end, end + count)
        ]
        produce(self.bootstrap, self.topic, records)
        self.ends = {number: end + count for number, end in self.ends.items()}
        self.story.append(f"-- {count} records to each of {len(self.ends)} partitions")

    def _make(self) -> None:
        self.made += 1
        name = f"v{self.made}"
        options = [self.draw.choice(_MODES)]
        if self.draw.random() < 0.5:
            options.append(f"backfill_rate_limit = {self.draw.choice((20, 100))}")
            self._say("SET background_ddl = true")
        given = ", ".join(option for option in options if option)
        keyed = self.draw.random() < 0.4
        query = (
            "SELECT part, place, count(*) AS n FROM s GROUP BY part, place" if keyed else "SELECT part, place FROM s"
        )
        self._say(f"CREATE MATERIALIZED VIEW {name}{f' WITH ({given})' if given else ''} AS {query}")
        self._say("SET background_ddl = false")
        self.views.append(name)

    def _drop(self) -> None:
        if len(self.views) > 2:
            view = self.draw.choice(self.views[1:])
            self._say(f"DROP MATERIALIZED VIEW {view}")
            self.views.remove(view)

    def _inject(self) -> None:
        number = self.draw.choice((0, 1))
        to = self.draw.randint(0, self.ends[number])
        self._say("PAUSE SOURCE s")
        self._say(f"INJECT SOURCE OFFSETS s VALUES ('{number}' = {to}) ALLOW DUPLICATES, GAPS")
        if self.draw.random() < 0.3:
            self._make()
        self._say("RESUME SOURCE s")

    def _reset(self) -> None:
        self._say(f"RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = {self.draw.choice(('true', 'false'))})")

    def _grow(self) -> None:
        if len(self.ends) < 4:
            add_partitions(self.bootstrap, self.topic, len(self.ends) + 1)
            self.ends[len(self.ends)] = 0
            self.story.append("-- a partition more")

    def _flush(self) -> None:
        self._say("FLUSH")

    def _is_read(self) -> bool:
        positions = self.session.positions("s")
        return all(positions.get(f"{self.topic}:{number}") == end for number, end in self.ends.items())

    def _rows(self, view: str) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row in self.session.rows_of(view):
            found[row[0], row[1]] += row[2] if len(row) > 2 else 1
        return found

    def _expected(self, view: str) -> Counter[Row]:
        record = Metastore.open(self.warehouse).snapshot().find("materialized_view", view)
        assert isinstance(record, MaterializedViewRecord)
        (source_id,) = record.inputs
        history = History.from_text(record.histories[0]) if record.histories else None
        expected: Counter[Row] = Counter()
        before: Counter[tuple[str, int, int]] = Counter()
        log = DeltaTable(f"{self.warehouse}/data/{source_id}/1")
        columns = ["_rw_split", "_rw_offset", "_rw_since"]
        rows = Counter(zip(*(column.to_pylist() for column in log.to_pyarrow_table(columns).columns), strict=True))
        guards = {}
        if history is not None:
            if history.log_version >= 0:
                log.load_as_version(history.log_version)
                old = log.to_pyarrow_table(columns).columns
                before = Counter(zip(*(column.to_pylist() for column in old), strict=True))
            guards = {split.split: split for split in history.guarded}
            for split in history.splits:
                for start, end in split.wanted:
                    expected.update((split.split.rpartition(":")[2], str(place)) for place in range(start, end))
        for (split, place, since), times in (rows - before).items():
            guard = guards.get(split)
            if guard is None or since > guard.since or (since == guard.since and place >= guard.start):
                expected[split.rpartition(":")[2], str(place)] += times
        return expected
