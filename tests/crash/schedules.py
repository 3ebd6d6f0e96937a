"""Random schedules. A schedule produces records, creates and drops views, moves positions, adds partitions and kills
processes.

The expected rows of a view are derived from its record in the catalog and from the log, not by the code that reads the
rows. They are each offset of the view's history once, and every row of the log after the version at which the history
was planned. The expected rows of the log are derived from the topic: from each position that a statement has set, every
record exactly once.

``python -m tests.crash.schedules`` is one process of a schedule, with its task as JSON on standard input. The process
continues where the previous process was killed. It is killed at the point that its task names, or reaches the end.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, produce
from rw_sql.connectors.kafka.admin import LATEST, BrokerAdmin
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.runtime.observe import upstream_watcher
from rw_sql.runtime.support import faults
from tests.crash.lives import Lives, replaced
from tests.integration.attached import AttachedSession, wait_until
from tests.support.ageing import Pauses
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

Row = tuple[str, str]

_MODES = ("", "scan.startup.mode = 'earliest'", "scan.startup.mode = 'latest'")
_MOST_SECONDS_TO_KILL = 2.0


@dataclass(slots=True)
class KilledSchedule:
    """One schedule, with its topic, and with the processes that run the schedule to its end, one after the other."""

    folder: Path
    bootstrap: str
    seed: int
    steps: int
    pauses: Pauses = field(default_factory=Pauses)
    spark: SparkSession | None = None
    lives: Lives = field(init=False)
    topic: str = ""

    def __post_init__(self) -> None:
        self.lives = Lives(
            module="tests.crash.schedules",
            folder=self.folder,
            seconds=LIFE_SECONDS,
            pauses=self.pauses,
            spark=self.spark,
        )
        self.topic = f"schedule.{uuid.uuid4().hex[:8]}"
        create_topic(self.bootstrap, self.topic, 2)

    def run(self, kills: int) -> Mapping[str, int]:
        """Kills this number of processes, each in a later step than the one before, and lets the last process compare.
        Raises AssertionError."""
        draw = random.Random(self.seed)
        killed = 0
        for step in sorted(draw.sample(range(self.steps), kills)):
            task = {
                "step": step,
                "after": draw.uniform(0, _MOST_SECONDS_TO_KILL),
                "kills": draw.choice(("python", "both")),
            }
            status = self._live(task)
            if (self.folder / "facts.json").exists():
                # The kill came after the last step.
                break
            assert status == -signal.SIGKILL, f"{task}: status {status}\n{self._told()}"
            killed += 1
        else:
            status = self._live({"step": -1, "after": 0.0, "kills": "both"})
            assert status == 0, f"the last process ended with {status}\n{self._told()}"
        facts: dict[str, int] = json.loads((self.folder / "facts.json").read_text())
        return {"processes killed": killed, **facts}

    def _live(self, kill: Mapping[str, Any]) -> int:
        return self.lives.live(
            {
                "warehouse": str(self.folder / "warehouse"),
                "folder": str(self.folder),
                "bootstrap": self.bootstrap,
                "topic": self.topic,
                "seed": self.seed,
                "steps": self.steps,
                "kill": kill,
            },
            is_killed=kill["step"] >= 0,
        )

    def _told(self) -> str:
        story = self.folder / "story.sql"
        return f"{story.read_text() if story.exists() else ''}\n{self.lives.said()}"


@dataclass(slots=True)
class Schedule:
    """The part of a schedule that one process runs. It has a source ``s`` over the topic, and views that are created
    and dropped."""

    spark: SparkSession
    warehouse: str
    bootstrap: str
    topic: str
    seed: int
    folder: Path
    session: AttachedSession = field(init=False)
    draw: random.Random = field(init=False)
    ends: dict[int, int] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    made: int = 0
    step: int = 0

    def run(self, steps: int, kill: Mapping[str, Any]) -> Mapping[str, int]:
        """Runs the remaining steps, compares the rows, and returns the figures. Raises AssertionError."""
        self._attach()
        first = self._take_up()
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
            self._pause,
            self._restart,
            self._flush,
        )
        for step in range(first, steps):
            if step == kill["step"]:
                threading.Thread(target=self._die, args=(kill["after"],), daemon=True).start()
            self.draw = random.Random(f"{self.seed}/{step}")
            # A step that is in progress when the process dies is not repeated. The next process continues with the
            # following step.
            self.step = step + 1
            self._note()
            self.draw.choice(acts)()
        self._say("WAIT")
        wait_until(self._is_read, "the source has read the topic")
        self._flush()
        compared = 0
        for view in self.views:
            found, expected = self._rows(view), self._expected(view)
            assert found == expected, (
                f"{view}: lost {sorted((expected - found).elements())[:9]}, "
                f"repeated {sorted((found - expected).elements())[:9]}"
            )
            compared += sum(found.values())
        read = self._require_every_record_once()
        self.session.detach()
        return {
            "steps": steps,
            "views compared": len(self.views),
            "rows compared": compared,
            "records of the log compared": read,
        }

    def _take_up(self) -> int:
        """Reads the state that the previous process left: the topic's ends, the views, and whether the source is
        stopped. Returns the next step."""
        file = self.folder / "state.json"
        state = json.loads(file.read_text()) if file.exists() else {"step": 0, "made": 0}
        self.made, self.step = state["made"], state["step"]
        self.draw = random.Random(f"{self.seed}/first")
        with BrokerAdmin({"bootstrap.servers": self.bootstrap}, timeout=30) as admin:
            _, described, _ = admin.describe([self.topic])
            parts = list(described[self.topic].partitions)
            (ends,) = admin.offsets([(self.topic, part) for part in parts], LATEST)
        self.ends = {part: ends[self.topic, part] for part in sorted(parts)}
        if self.step == 0 and not any(self.ends.values()):
            self._produce()
        sources = {row.name: row.state for row in self.session.sql("SHOW SOURCES")}
        if "s" not in sources:
            mode = self.draw.choice(("earliest", "latest"))
            self._say(
                "CREATE SOURCE s (id BIGINT) INCLUDE partition AS part INCLUDE offset AS place "
                f"WITH (connector = 'kafka', topic = '{self.topic}', scan.startup.mode = '{mode}', "
                f"properties.bootstrap.server = '{self.bootstrap}') FORMAT PLAIN ENCODE JSON"
            )
        elif sources["s"] == "PAUSED":
            self._say("RESUME SOURCE s")
        self.views = [row.name for row in self.session.sql("SHOW MATERIALIZED VIEWS")]
        if "kept" not in self.views:
            self._say("CREATE MATERIALIZED VIEW kept AS SELECT part, place FROM s")
            self.views.append("kept")
        return self.step

    def _note(self) -> None:
        new = self.folder / "state.new"
        new.write_text(json.dumps({"step": self.step, "made": self.made}))
        new.replace(self.folder / "state.json")

    def _tell(self, text: str) -> None:
        with (self.folder / "story.sql").open("a", encoding="utf-8") as story:
            story.write(f"{text}\n")

    def _die(self, after: float) -> None:
        time.sleep(after)
        self._tell(f"-- killed after {after:.2f} s")
        faults.kill("time")

    def _say(self, text: str) -> None:
        self._tell(text)
        self.session.sql(text)

    def _attach(self) -> None:
        self.session = AttachedSession(self.spark, self.warehouse)
        self.session.allow_unsafe()

    def _restart(self) -> None:
        self._tell("-- jobs stopped and started")
        self.session.detach()
        self._attach()

    def _pause(self) -> None:
        self._say("PAUSE SOURCE s")
        self._produce()
        self._say("RESUME SOURCE s")

    def _produce(self) -> None:
        count = self.draw.randint(1, 60)
        records = [
            Record(value=json.dumps({"id": place}).encode(), partition=number)
            for number, end in self.ends.items()
            for place in range(end, end + count)
        ]
        produce(self.bootstrap, self.topic, records)
        self.ends = {number: end + count for number, end in self.ends.items()}
        self._tell(f"-- {count} records to each of {len(self.ends)} partitions")

    def _make(self) -> None:
        self.made += 1
        self._note()
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
            view = self.draw.choice(sorted(set(self.views) - {"kept"}))
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
            self._tell("-- a partition more")

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
        rows = Counter(
            zip(*(column.to_pylist() for column in log.to_pyarrow_table(columns=columns).columns), strict=True)
        )
        guards = {}
        if history is not None:
            if history.log_version >= 0:
                log.load_as_version(history.log_version)
                old = log.to_pyarrow_table(columns=columns).columns
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

    def _require_every_record_once(self) -> int:
        """Checks the source's log. From each position that was set, the log must have consecutive records, each exactly
        once. From the newest position, it must have all records up to the topic's end."""
        snapshot = Metastore.open(self.warehouse).snapshot()
        (source,) = snapshot.all("source")
        columns = ["_rw_split", "_rw_since", "_rw_offset"]
        log = DeltaTable(f"{self.warehouse}/data/{source.id}/1").to_pyarrow_table(columns=columns)
        reads: dict[tuple[str, int], list[int]] = {}
        for row in log.to_pylist():
            reads.setdefault((row["_rw_split"], row["_rw_since"]), []).append(row["_rw_offset"])
        for (split, since), offsets in reads.items():
            offsets.sort()
            wrong = [(one, other) for one, other in pairwise(offsets) if other != one + 1]
            assert not wrong, f"{split} as set at epoch {since}: neighbours are {wrong[:9]}"
        for split, state in snapshot.states(f"ingest-{source.id}").items():
            end = self.ends[int(split.rpartition(":")[2])]
            last = max(reads.get((split, state.epoch), [end - 1]))
            assert last == end - 1, f"{split}: read to {last}, the topic ends at {end}"
        return sum(map(len, reads.values()))


def around(_: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Makes the owner look for new partitions twice a second."""
    return replaced(upstream_watcher, DISCOVERY_SECONDS=0.5)


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Runs the remaining steps and the comparison, and writes the figures down."""
    folder = Path(task["folder"])
    schedule = Schedule(spark, task["warehouse"], task["bootstrap"], task["topic"], task["seed"], folder)
    facts = schedule.run(task["steps"], task["kill"])
    (folder / "facts.json").write_text(json.dumps(facts))


def _main(task: dict[str, Any]) -> None:
    import rw_sql

    with around(task):
        faults.arm("", task["kill"]["kills"])
        spark = rw_sql.connect(task["warehouse"], config=FEW_ROWS)
        go_on(spark, task)
        spark.stop()


if __name__ == "__main__":
    _main(json.load(sys.stdin))
