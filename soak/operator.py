"""The operator of a soak: a session that runs no jobs. It sends statements, and repeats those that fail because of a
fault."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import rw_sql
from soak.faults import Fault, Faults, Suffering
from soak.processes import Processes
from soak.readings import TOPIC as READINGS
from soak.upstream import ACCOUNTS, CLASSES, TOP, TOPICS, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyspark.sql import SparkSession

_PATIENCE_SECONDS = 1200.0
_RETRY_SECONDS = 2.0
_LARGE = 60_000

_ERRORS = (rw_sql.SqlError, PySparkException, Py4JError, DeltaError, OSError)
"""What a statement may raise while a fault lasts: rw_sql's own errors, Spark's, and those of the libraries below it."""

VIEWS = {
    "all_events": "SELECT topic, part, off FROM s",
    "per_key": "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
    "thirds": "SELECT topic, part, off, v FROM s WHERE v % 3 = 0",
    "classes": f"SELECT id % {CLASSES} AS class, count(*) AS n, sum(v) AS total FROM accounts GROUP BY id % {CLASSES}",
    "highest": f"SELECT v, id FROM accounts ORDER BY v DESC, id LIMIT {TOP}",
}

_COLUMNS = {
    "all_events": "topic, CAST(part AS INT), CAST(off AS BIGINT)",
    "thirds": "topic, CAST(part AS INT), CAST(off AS BIGINT), v",
}
"""The columns to compare, for views in which columns from INCLUDE are text."""


class RefusedError(Exception):
    """A statement was repeated for the maximum time, and was still refused."""


@dataclass(slots=True)
class Operator:
    """Executes random operations one after another, and passes their expected effects to ``upstream``."""

    processes: Processes
    upstream: Upstream
    faults: Faults
    draw: random.Random
    spark: SparkSession | None = None
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0
    _moves: list[tuple[str, dict[tuple[str, int], int], Collection[tuple[str, int]], int]] = field(default_factory=list)

    def begin(self) -> None:
        """Creates the sources, the table and the views."""
        warehouse, settings = self.processes.warehouse, self.processes.place.settings
        self.spark = rw_sql.connect(warehouse, run_jobs=False, config=settings)
        rw_sql.attach(self.spark, warehouse, run_jobs=False).ask = lambda _: True
        if self.processes.place.is_slow:
            self.sql("SET statement_timeout = '300s'")
        bootstrap, readings = self.upstream.bootstrap, self.upstream.readings
        self.say("ALTER SYSTEM SET enable_unsafe_ops = true")
        self.say(
            "CREATE SOURCE s (topic VARCHAR, k BIGINT, v BIGINT) INCLUDE partition AS part INCLUDE offset AS off "
            f"WITH (connector = 'kafka', topic = 'events', properties.bootstrap.server = '{bootstrap}') "
            "FORMAT PLAIN ENCODE JSON"
        )
        self.say(
            f"CREATE TABLE accounts (id INT PRIMARY KEY, v INT) WITH (connector = 'kafka', topic = '{ACCOUNTS}', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT UPSERT ENCODE JSON"
        )
        for name, query in VIEWS.items():
            self.say(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        if readings is not None:
            self.say(
                f"CREATE SOURCE readings (*) WITH (connector = 'kafka', topic = '{READINGS}', "
                f"properties.bootstrap.server = '{bootstrap}') "
                f"FORMAT PLAIN ENCODE AVRO (schema.registry = '{readings.url}')"
            )
            self.say("CREATE MATERIALIZED VIEW every_reading AS SELECT id, v FROM readings")

    def sql(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a statement."""
        assert self.spark is not None
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def _ask(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a statement that changes nothing, which is repeated until it is answered. Raises RefusedError."""
        started, error = time.monotonic(), ""
        while time.monotonic() < started + _PATIENCE_SECONDS:
            try:
                return self.sql(text)
            except _ERRORS as refused:
                error = self._noted(text, refused)
                time.sleep(_RETRY_SECONDS)
        raise RefusedError(self.tell(f"{text}: {error}"))

    def say(self, text: str) -> None:
        """Runs a statement, and repeats it until it is committed; checks that it is committed exactly once. Raises
        RefusedError."""
        started, before = time.monotonic(), self._operations()
        error = ""
        while time.monotonic() < started + _PATIENCE_SECONDS:
            try:
                self.sql(text)
            except _ERRORS as refused:
                error = self._noted(text, refused)
                if self._operations() == before:
                    time.sleep(_RETRY_SECONDS)
                    continue
            self.counts["statements"] += 1
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
            assert self._operations() == before + 1, self.tell(f"{text}: {self._operations() - before} operations")
            return
        raise RefusedError(self.tell(f"{text}: {error}"))

    def flush(self) -> None:
        """Runs FLUSH until it succeeds for all jobs, then counts the rows that must have been read. Raises
        RefusedError."""
        started, error = time.monotonic(), ""
        while time.monotonic() < started + _PATIENCE_SECONDS:
            try:
                rows = self.sql("FLUSH")
            except _ERRORS as refused:
                error = self._noted("FLUSH", refused)
                time.sleep(_RETRY_SECONDS)
                continue
            if any(change != "FLUSHED" for _, change, *_ in rows):  # FLUSH does not wait for a stalled job.
                error = str(rows)
                self.counts["FLUSHes that left a stalled job out"] += 1
                time.sleep(_RETRY_SECONDS)
                continue
            self.upstream.read()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
            return
        raise RefusedError(self.tell(f"FLUSH: {error}"))

    def step(self) -> None:
        """Produces records and sometimes creates or drops a view, then sometimes moves the source.

        Each of the two parts may have a fault, and ends with a FLUSH.
        """
        fault = self.faults.next()
        self._grow(fault)
        with self._suffering(fault):
            if self.draw.random() < 0.3:
                self._another_view()
        self.flush()
        if self.faults.is_first_round or self.draw.random() < 0.6:
            fault = self.faults.next()
            with self._suffering(fault):
                self.draw.choice((self._inject, self._inject, self._move, self._forget, self._undo))()
                # It is not known whether records that are produced before the move are read before it.
                if fault is not None and fault.needs_large:
                    self._grow(fault)
            self.flush()

    def compare(self) -> int:
        """Compares the table and the views with the oracle; returns the number of compared rows. Raises
        AssertionError."""
        compared = 0
        for name, expected in self.upstream.expected_views().items():
            columns = _COLUMNS.get(name, "*")
            found = Counter(self.sql(f"SELECT {columns} FROM {name}"))
            assert found == expected, self.tell(_difference(name, found, expected))
            compared += found.total()
        self.counts["comparisons"] += 1
        self.counts["rows compared"] += compared
        return compared

    def tell(self, what: str) -> str:
        """The text of a failure: the newest events, followed by ``what``."""
        return "\n".join([*self.story[-30:], what])

    def _operations(self) -> int:
        """The number of operations in the catalog. Waits until the warehouse can be read."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                found = self.processes.metastore().operations()
            except _ERRORS:
                if time.monotonic() > deadline:
                    raise
                self.counts["times that the catalog could not be read"] += 1
                time.sleep(_RETRY_SECONDS)
                continue
            return sum(operation.kind != "DISCOVER SPLITS" for operation in found)

    def _noted(self, text: str, refused: Exception) -> str:
        error = f"{type(refused).__name__}: {refused}"
        self.story.append(f"refused: {text[:60]}: {error[:200]}")
        is_own = isinstance(refused, (rw_sql.SqlError, PySparkException))
        self.counts["answers with an error" + ("" if is_own else f" of a library, {type(refused).__name__}")] += 1
        return error

    def _grow(self, fault: Fault | None) -> None:
        is_large = fault is not None and fault.needs_large
        self.upstream.grow(_LARGE if is_large else self.draw.choice((20, 200, 200, 2_000, 20_000)))

    @contextmanager
    def _suffering(self, fault: Fault | None) -> Iterator[None]:
        """A context manager inside which a fault begins, and after which it has ended."""
        if fault is None:
            yield
            return
        suffering = Suffering(fault, self.draw.uniform(0, 6))
        try:
            yield
        finally:
            suffering.end()
        if suffering.has_disturbed:
            self.counts[fault.name] += 1
            self.story.append(f"fault: {fault.name}")
            print(f"           {fault.name}", flush=True)
        else:
            self.faults.put_back(fault)

    def _during(self, move: Callable[[], None]) -> None:
        self.say("PAUSE SOURCE s")
        move()
        self.say("RESUME SOURCE s")

    def _inject(self) -> None:
        topic, upstream = self.upstream.reads, self.upstream
        targets = {
            partition: self.draw.randrange(max(0, end - 3_000), end + 1)
            for partition, end in enumerate(upstream.ends[topic])
            if self.draw.random() < 0.7
        } or {0: 0}
        values = ", ".join(f"'{topic}:{partition}' = {offset}" for partition, offset in targets.items())

        def move() -> None:
            self._remember({(topic, partition) for partition in targets})
            self.say(f"INJECT SOURCE OFFSETS s VALUES ({values}) ALLOW GAPS, DUPLICATES")
            upstream.positions.update({(topic, partition): offset for partition, offset in targets.items()})

        self._during(move)
        self.counts["injections"] += 1

    def _move(self) -> None:
        upstream = self.upstream
        to = next(topic for topic in TOPICS if topic != upstream.reads)
        # The move assigns the partitions that have no position. UNDO takes these partitions away again.
        self._remember({(to, partition) for partition in range(TOPICS[to])} - upstream.positions.keys())
        self.say(f"ALTER SOURCE s UNSAFE SET (topic = '{to}')")
        # The source keeps the positions of the topic that it no longer reads, until RESET SOURCE SPLITS discards them.
        upstream.reads = to
        self.counts["topics moved"] += 1

    def _forget(self) -> None:
        self._remember(tuple(self.upstream.positions))
        self.say("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
        self.upstream.positions.clear()
        self.counts["offsets forgotten"] += 1

    def _undo(self) -> None:
        if not self._moves:
            return
        topic, positions, changed, operations = self._moves.pop()
        number = self._ask("SHOW UNSAFE OPERATIONS FOR s")[0][0]
        assert self._operations() >= operations
        self._during(lambda: self.say(f"UNDO OPERATION {number} ALLOW DUPLICATES, GAPS"))
        self.upstream.reads = topic
        for place in changed:
            self.upstream.positions.pop(place, None)
        self.upstream.positions.update(positions)
        self.counts["operations undone"] += 1
        self._moves.clear()

    def _remember(self, changed: Collection[tuple[str, int]]) -> None:
        """Stores the positions of the partitions in ``changed``, which an operation is about to change, so that the
        operation can be undone. A partition may have no position."""
        positions = self.upstream.positions
        kept = {place: positions[place] for place in changed if place in positions}
        self._moves.append((self.upstream.reads, kept, changed, self._operations()))

    def _another_view(self) -> None:
        if self.counts["views created"] > self.counts["views dropped"]:
            self.say("DROP MATERIALIZED VIEW later")
            self.counts["views dropped"] += 1
        else:
            self.say("CREATE MATERIALIZED VIEW later AS SELECT k, max(v) AS v FROM s GROUP BY k")
            self.counts["views created"] += 1


def _difference(name: str, found: Mapping[Any, Any], expected: Mapping[Any, int]) -> str:
    keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
    shown = "; ".join(f"{key}: {found.get(key, 0)} instead of {expected.get(key, 0)}" for key in keys[:10])
    return f"{name}: {len(keys)} rows differ: {shown}"
