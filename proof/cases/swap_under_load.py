"""A view's query is changed while its source gets a thousand records a second and readers query the view by its
name."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

import rw_sql
from proof.harness import Facts, Proof
from proof.live import broker, spark
from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.metastore import Metastore
from rw_sql.plan.statements.view.rebuild import SWAP
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.live_project import LiveProject
from tests.support.waits import wait_until

RATE = 1_000
POLL_SECONDS = 0.01
_TICK_SECONDS = 0.01
_KEYS = 20
_LEAST_RECORDS = 3_000
"""The minimum number of records that are produced before the change, and after it."""

_LOOK_MS = 500
"""The time in milliseconds after the swap within which a read may still see the old rows: an attached session checks
the catalog for changes five times a second."""

_TOPIC = "swap-under-load"
_SOURCE = (
    "CREATE SOURCE s (id BIGINT, k INT, v BIGINT) WITH (connector = 'kafka', topic = '{topic}', "
    "properties.bootstrap.server = '${{BROKER}}') FORMAT PLAIN ENCODE JSON;\n"
)
_BEFORE = "CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n FROM s GROUP BY k;\n"
_AFTER = "CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;\n"
_OLD: tuple[str, ...] = ("k", "n")
_NEW: tuple[str, ...] = ("k", "n", "total")


class _Records:
    """Produces ``RATE`` records a second until it is stopped, and counts them. The expected rows of the view are
    derived from these counts."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        made: Any = Producer
        self._producer = made({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records")
        self.count = 0
        self.counts: Counter[int] = Counter()
        self.sums: Counter[int] = Counter()
        self.seconds = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops producing; returns when the broker has all records."""
        self._is_over.set()
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._is_over.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * RATE)
            while self.count < due:
                key, value = self.count % _KEYS, self.count % 7
                row = {"id": self.count, "k": key, "v": value}
                self._producer.produce(self._topic, json.dumps(row).encode())
                self.count += 1
                self.counts[key] += 1
                self.sums[key] += value
            self._producer.poll(0)
        self.seconds = time.monotonic() - began


@dataclass(slots=True)
class _Poll:
    """One read of the view: when it began and ended, and the columns and counts that it returned."""

    began_ms: float
    ended_ms: float
    columns: tuple[str, ...]
    counts: dict[int, int] | None


@dataclass(slots=True)
class _Poller:
    """Reads the view by its name until it is stopped. Each read begins ten milliseconds after the end of the previous
    read."""

    name: str
    look: Callable[[], tuple[tuple[str, ...], dict[int, int] | None]]
    polls: list[_Poll] = field(default_factory=list)
    error: Exception | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(POLL_SECONDS):
                began = time.time() * 1000
                columns, counts = self.look()
                self.polls.append(_Poll(began, time.time() * 1000, columns, counts))
        except Exception as error:  # noqa: BLE001 - reported by require
            self.error = error

    def require(self, swapped_ms: float, undone_ms: float) -> None:
        """Raises AssertionError unless the reads returned the old rows before the swap, the new rows after it, and the
        old rows after the rollback."""
        assert self.error is None, f"{self.name}: the view could not be read: {self.error}"
        last: dict[int, int] = {}
        before = _OLD
        for poll in self.polls:
            assert poll.columns in (_OLD, _NEW), f"{self.name}: columns {poll.columns}"
            seen = {
                columns for at, columns in ((0, _OLD), (swapped_ms, _NEW), (undone_ms, _OLD)) if at <= poll.ended_ms
            }
            late = max((at for at in (0, swapped_ms, undone_ms) if at + _LOOK_MS < poll.began_ms), default=0)
            if late == swapped_ms and poll.ended_ms < undone_ms:
                seen = {_NEW}
            elif late == undone_ms:
                seen = {_OLD}
            assert poll.columns in seen, (
                f"{self.name}: {poll.columns} {poll.began_ms - swapped_ms:.0f} ms after the swap"
            )
            is_back = (before, poll.columns) == (_NEW, _OLD)
            assert not is_back or poll.ended_ms >= undone_ms, f"{self.name}: the old rows came back"
            before = poll.columns
            if poll.counts is None:
                continue
            assert len(poll.counts) == _KEYS, f"{self.name}: {len(poll.counts)} rows of {_KEYS}"
            fewer = {key: (last[key], n) for key, n in poll.counts.items() if n < last.get(key, 0)}
            # After a rollback, counts may be lower, because the old query continues at the position at which it
            # stopped.
            assert not fewer or is_back, f"{self.name}: counts went back: {fewer}"
            last = poll.counts
        assert any(poll.columns == _NEW for poll in self.polls), f"{self.name}: never saw the new rows"

    def first_ms(self, columns: tuple[str, ...], since_ms: float) -> float:
        """The milliseconds from a time to the end of the first read that returned these columns."""
        return next(p.ended_ms - since_ms for p in self.polls if p.began_ms >= since_ms and p.columns == columns)

    def gap_ms(self) -> float:
        """The median time in milliseconds from the beginning of one read to the beginning of the next."""
        begins = [poll.began_ms for poll in self.polls]
        return statistics.median(later - earlier for earlier, later in pairwise(begins))


def _columns_by_spark(session: SparkSession) -> Callable[[], tuple[tuple[str, ...], None]]:
    return lambda: (tuple(session.table("totals").columns), None)


def _rows_by_spark(session: SparkSession) -> Callable[[], tuple[tuple[str, ...], dict[int, int]]]:
    def look() -> tuple[tuple[str, ...], dict[int, int]]:
        frame = session.sql("SELECT * FROM totals")
        return tuple(frame.columns), {row.k: row.n for row in frame.collect()}

    return look


def _rows_by_delta(warehouse: str) -> Callable[[], tuple[tuple[str, ...], dict[int, int]]]:
    """A reader without Spark: it follows the name through the catalog to the Delta table."""
    metastore, place = Metastore.open(warehouse), Warehouse.at(warehouse)

    def look() -> tuple[tuple[str, ...], dict[int, int]]:
        view: Any = metastore.snapshot().find("materialized_view", "totals")
        rows = DeltaTable(place.data(view.id, view.generation)).to_pyarrow_table().to_pylist()
        columns = tuple(name for name in rows[0] if name in _NEW)
        return columns, {row["k"]: row["n"] for row in rows}

    return look


def _operations(warehouse: str, kind: str) -> list[tuple[int, int]]:
    """The epochs of all operations of a kind, and the times at which they were committed."""
    return [(found.epoch, found.at_ms) for found in Metastore.open(warehouse).operations() if found.kind == kind]


def _check(seed: int, folder: Path) -> Facts:
    bootstrap, topic = broker().bootstrap, f"{_TOPIC}-{seed}"
    create_topic(bootstrap, topic, 1 + seed)
    source = _SOURCE.format(topic=topic)
    records = _Records(bootstrap, topic)
    with ExitStack() as left:
        project = LiveProject(spark(), folder / "warehouse", bootstrap)
        left.callback(project.close)
        project.session.run("SET statement_timeout = '5min'")
        project.apply({"all.sql": source + _BEFORE})
        records.start()
        left.callback(records.stop)
        wait_until(lambda: records.count >= _LEAST_RECORDS, "records came before the change")
        project.session.run("FLUSH")
        pollers = [_Poller("delta-rs", _rows_by_delta(project.session.warehouse))]
        for name, look in (("columns", _columns_by_spark), ("rows", _rows_by_spark)):
            session = spark().newSession()
            rw_sql.attach(session, project.session.warehouse)
            left.callback(rw_sql.detach, session)
            pollers.append(_Poller(name, look(session)))
        for poller in pollers:
            poller.start()
            left.callback(poller.stop)
        wait_until(lambda: all(len(p.polls) > 2 or p.error for p in pollers), "the view is polled")
        before, began = records.count, time.monotonic()
        project.apply({"all.sql": source + _AFTER})
        changed = time.monotonic() - began
        after = records.count
        wait_until(lambda: records.count >= after + _LEAST_RECORDS, "records came after the change")
        records.stop()
        project.session.run("FLUSH")
        rows = {row.k: (row.n, row.total) for row in project.session.sql("SELECT * FROM totals")}
        ((swap, swapped_ms),) = _operations(project.session.warehouse, SWAP)
        undo_ms = time.time() * 1000
        project.session.run(f"UNDO OPERATION {swap}")
        undone = time.time() * 1000 - undo_ms
        wait_until(lambda: all(p.error or p.polls[-1].columns == _OLD for p in pollers), "the old rows are seen")
        for poller in pollers:
            poller.stop()
        ((_, undone_ms),) = _operations(project.session.warehouse, "UNDO OPERATION")
        project.session.run("FLUSH")
        old_rows = {row.k: row.n for row in project.session.sql("SELECT * FROM totals")}
    oracle = {key: (records.counts[key], records.sums[key]) for key in records.counts}
    assert rows == oracle, f"the view has {rows}, the records give {oracle}"
    assert old_rows == records.counts, f"after the rollback the view has {old_rows}, the records give {records.counts}"
    for poller in pollers:
        poller.require(swapped_ms, undone_ms)
    return {
        "records": records.count,
        "records while the new view was made": after - before,
        f"seed {seed}: seconds from the command to the new rows": round(changed, 1),
        **{f"reads by {poller.name}": len(poller.polls) for poller in pollers},
        **{f"seed {seed}: median ms between two reads by {p.name}": round(p.gap_ms()) for p in pollers},
        f"seed {seed}: records a second": round(records.count / records.seconds),
        f"seed {seed}: ms from the rollback's statement to its commit": round(undone_ms - undo_ms),
        f"seed {seed}: ms until the statement returned, with its jobs changed": round(undone),
        **{f"seed {seed}: ms to the old rows by {p.name}": round(p.first_ms(_OLD, undo_ms)) for p in pollers},
    }


PROOF = Proof(
    name="swap-under-load",
    claim=(
        "If a view's query is changed while 1,000 records a second arrive, readers of its name see the old rows until "
        "the swap and the correct new rows after it; a rollback restores the old ones."
    ),
    method=(
        "The warehouse has a Kafka source and a view that counts; `rw-sql apply` gives the view another query with "
        f"one more column. Meanwhile {RATE:,} records a second arrive, and three readers read the view by its name "
        f"{POLL_SECONDS * 1000:.0f} ms after each answer: the columns by Spark, the rows by Spark, and the rows by "
        "delta-rs through the catalog. Every read must return the rows of all keys, the old columns if it ended "
        f"before the swap and the new ones if it began {_LOOK_MS} ms after it. No count may be lower than in the "
        "previous read, even if the swap is between the two reads. In the end the view is compared with the "
        "records, and rolled back by `UNDO OPERATION` while the readers continue."
    ),
    seeds=range(3),
    check=_check,
)
