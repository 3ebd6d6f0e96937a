"""Capturing the changes of PostgreSQL into a table and a view, on three sides: rw_sql alone, rw_sql behind Debezium and
Kafka, and Debezium's engine alone.

RW_SQL_BENCH_ROWS and RW_SQL_BENCH_CHANGES set smaller numbers of rows and of changes for a trial.
"""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

import psycopg

from bench.captured import COMPARED, SECRET, SERVER, TABLES, Orders, create_source, require_equal, rows_of_events
from bench.debezium import DEBEZIUM, TUNED, ConnectWorker, Engine, connect_worker, debezium_class_path, engine
from bench.harness import Case, NotRunError, Pair
from bench.sql_session import SqlSession, sql_session
from bench.streaming import (
    Child,
    Watched,
    cpu_seconds,
    flights_broker,
    resident_bytes,
    wait_until,
)
from tests.support.postgres import PASSWORD, programs, running_server

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = int(os.environ.get("RW_SQL_BENCH_ROWS", "2000000"))
CHANGES = int(os.environ.get("RW_SQL_BENCH_CHANGES", "500000"))
SECONDS = 15.0
_FEWER_ROWS, _FEWER_CHANGES, _FEWER_SECONDS = 20_000, 5_000, 3.0
_LONGEST = 3600.0
_SAMPLE_SECONDS = 0.25
_CHECK_SECONDS = 5.0
_WAKING_SECONDS = 1.0
_VIEW = "CREATE MATERIALIZED VIEW seen AS SELECT bucket, count(*) AS n FROM fresh GROUP BY bucket"


@dataclass(slots=True)
class _Spent:
    """The CPU time and the greatest memory of processes, counted only inside :meth:`counting`."""

    pids: Sequence[int]
    seconds: float = 0.0
    memory: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """A context manager that adds the CPU time of its block, and samples the memory during the block."""
        self._over.clear()
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        before = sum(map(cpu_seconds, self.pids))
        try:
            yield
        finally:
            self.seconds += sum(map(cpu_seconds, self.pids)) - before
            self._over.set()
            thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.memory = max(self.memory, sum(map(resident_bytes, self.pids)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One measurement of a side: the seconds for the snapshot and for the changes, the ages of commits when a view
    shows them, and the CPU time and memory of the side's processes."""

    snapshot: float
    changes: float
    ages: Sequence[float]
    spent: _Spent


@dataclass(slots=True)
class _Side:
    """One side: a way to read the database. Subclasses implement the start of the side, and the check whether the side
    has all rows."""

    orders: Orders
    number: int = 0

    @abstractmethod
    def pids(self) -> list[int]:
        """The processes whose CPU time and memory count."""

    @abstractmethod
    def children(self) -> list[Child]:
        """The processes that are suspended while changes are written and while another side is measured."""

    def prepare(self) -> None:
        """Does the steps that a user does only once. They are not measured."""

    @abstractmethod
    def begin(self) -> None:
        """Starts to read the database."""

    @abstractmethod
    def wait(self, *, is_changed: bool) -> None:
        """Waits until the side has all rows of the database: the rows before the changes or, if ``is_changed`` is true,
        the rows after the changes."""

    def ages(self, seconds: float) -> Sequence[float]:
        """The ages of commits, in seconds, when a view shows them; empty if the side has no view."""
        return ()

    @abstractmethod
    def rows(self) -> pa.Table:
        """The rows that the side has read, with the compared columns."""

    @abstractmethod
    def end(self) -> None:
        """Removes the side's objects and its slot."""

    @property
    def slot(self) -> str:
        """The name of the slot and of the publication of this measurement."""
        return f"{type(self).__name__.strip('_').lower()}_{self.number}"

    def measure(self, rows: int, changes: int, seconds: float) -> _Measured:
        """Measures one snapshot, one run of changes, and the ages of commits. Compares the side's rows with the
        database's rows."""
        self.number += 1
        orders = self.orders = replace(self.orders, rows=rows, changes=changes)
        orders.create()
        for process in self.children():
            process.resume()
        self.prepare()
        spent = _Spent(self.pids())
        started = time.perf_counter()
        with spent.counting():
            self.begin()
            self.wait(is_changed=False)
            snapshot = time.perf_counter() - started
        for process in self.children():
            process.halt()
        orders.change()
        started = time.perf_counter()
        with spent.counting():
            for process in self.children():
                process.resume()
            self.wait(is_changed=True)
            changed = time.perf_counter() - started
        ages = self.ages(seconds)
        found, wanted = self.rows(), orders.compared()
        require_equal(self.slot, found, wanted)
        self.end()
        self._drop_slot()
        for process in self.children():
            process.halt()
        return _Measured(snapshot=snapshot, changes=changed, ages=ages, spent=spent)

    def _drop_slot(self) -> None:
        run = self.orders.postgres.run
        named = f"slot_name = '{self.slot}'"
        wait_until(
            lambda: not run(f"SELECT 1 FROM pg_replication_slots WHERE {named} AND active"),
            f"the slot {self.slot} is released",
            every=0.1,
        )
        with suppress(psycopg.errors.UndefinedObject):  # A source of rw_sql drops its slot itself.
            run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {named}")
        run(f"DROP PUBLICATION IF EXISTS {self.slot}")


@dataclass(slots=True)
class _Tables(_Side):
    """A side with tables and a view of rw_sql."""

    session: SqlSession = field(kw_only=True)
    _orders: Watched = field(init=False)
    _seen: Watched = field(init=False)

    def watch(self) -> None:
        """Finds the Delta tables of ``orders`` and of the view, after they were created."""
        self._orders = self.session.watched("rw_tables", "orders")
        self._seen = self.session.watched("rw_materialized_views", "seen")

    def wait(self, *, is_changed: bool) -> None:
        wanted = self.orders.last_id if is_changed else self.orders.rows
        checked = time.perf_counter()

        def has_all() -> bool:
            nonlocal checked
            if (now := time.perf_counter()) > checked + _CHECK_SECONDS:
                checked = now
                self.check()
            return (self._orders.greatest("id") if is_changed else self._orders.rows()) >= wanted

        wait_until(has_all, f"{self.slot} has all rows", seconds=_LONGEST)

    def check(self) -> None:
        """Raises NotRunError if the side has failed."""

    def ages(self, seconds: float) -> Sequence[float]:
        def shown() -> int:
            return self._seen.sum_of("n")

        self.orders.ages(_WAKING_SECONDS, shown)  # These commits wake the jobs, which may be at rest.
        return self.orders.ages(seconds, shown)

    def rows(self) -> pa.Table:
        columns = COMPARED.format(text="STRING", micros="unix_micros(ordered_at)")
        return self.session.rows(f"SELECT {columns} FROM orders").sort_by("id")


@dataclass(slots=True)
class _Ours(_Tables):
    """A source of rw_sql that reads the database itself."""

    def pids(self) -> list[int]:
        return [self.session.child.process.pid]

    def children(self) -> list[Child]:
        return [self.session.child]

    def prepare(self) -> None:
        self.session.run(
            create_source(self.orders.postgres, self.slot),
            "CREATE TABLE fresh (*) FROM pg TABLE 'public.fresh'",
            _VIEW,
        )

    def begin(self) -> None:
        self.session.run("CREATE TABLE orders (*) FROM pg TABLE 'public.orders'")
        self.watch()

    def end(self) -> None:
        self.session.run("DROP SOURCE pg CASCADE")


@dataclass(slots=True)
class _Kafka(_Tables):
    """Debezium's connector in Kafka Connect, a broker, and a table of rw_sql that reads Debezium's topic."""

    worker: ConnectWorker = field(kw_only=True)
    bootstrap: str = field(kw_only=True)
    broker: int = field(kw_only=True)

    def pids(self) -> list[int]:
        return [self.session.child.process.pid, self.worker.child.process.pid, self.broker]

    def children(self) -> list[Child]:
        return [self.session.child, self.worker.child]

    def prepare(self) -> None:
        from rw_sql.cli.servers.kafka_topics import create_topic

        for table, columns in TABLES.items():
            create_topic(self.bootstrap, self._topic(table))
            self.session.run(
                f"CREATE TABLE {table} ({columns}) WITH (connector = 'kafka', topic = '{self._topic(table)}', "
                f"properties.bootstrap.server = '{self.bootstrap}') FORMAT DEBEZIUM ENCODE JSON"
            )
        self.session.run(_VIEW)
        self.watch()

    def begin(self) -> None:
        self.worker.create(self.slot, _connector(self, "public.orders,public.fresh"))

    def check(self) -> None:
        self.worker.check(self.slot)

    def end(self) -> None:
        from rw_sql.cli.servers.kafka_topics import delete_topic

        self.worker.delete(self.slot)
        self.session.run("DROP TABLE fresh CASCADE", "DROP TABLE orders CASCADE")
        for table in TABLES:
            delete_topic(self.bootstrap, self._topic(table))

    def _topic(self, table: str) -> str:
        return f"{self.slot}.public.{table}"


@dataclass(slots=True)
class _Engine(_Side):
    """Debezium's engine in a program that appends every row to a file."""

    engine: Engine = field(kw_only=True)
    _file: Path = field(init=False)

    def pids(self) -> list[int]:
        return [self.engine.child.process.pid]

    def children(self) -> list[Child]:
        return [self.engine.child]

    def begin(self) -> None:
        self._file = self.engine.start(self.slot, _connector(self, "public.orders"))

    def wait(self, *, is_changed: bool) -> None:
        self.engine.expect(self.orders.rows + (self.orders.changes if is_changed else 0))

    def rows(self) -> pa.Table:
        self.engine.stop()
        return rows_of_events(self._file)

    def end(self) -> None:
        self._file.unlink()


def _connector(side: _Side, tables: str) -> dict[str, str]:
    postgres = side.orders.postgres
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": postgres.user,
        "database.password": PASSWORD,
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "topic.prefix": side.slot,
        "table.include.list": tables,
        "slot.name": side.slot,
        "publication.name": side.slot,
        "publication.autocreate.mode": "filtered",
        **TUNED,
    }


@contextmanager
def _session(folder: Path) -> Iterator[SqlSession]:
    with sql_session(folder) as made:
        made.run(f"CREATE SECRET pw WITH (backend = 'env', name = '{SECRET}')")
        yield made


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_broker import is_running

    if programs() is None:
        raise NotRunError("PostgreSQL is not installed")
    class_path = debezium_class_path()
    os.environ[SECRET] = PASSWORD
    with ExitStack() as opened:
        server = opened.enter_context(running_server(**SERVER))
        bootstrap, folder = opened.enter_context(flights_broker())
        broker = is_running(folder / "broker")
        assert broker is not None
        orders = Orders(server.info, ROWS, CHANGES)
        ours = _Ours(orders, session=opened.enter_context(_session(folder / "ours")))
        ours.session.child.halt()
        kafka = _Kafka(
            orders,
            session=opened.enter_context(_session(folder / "behind-kafka")),
            worker=opened.enter_context(connect_worker(class_path, folder / "connect", bootstrap)),
            bootstrap=bootstrap,
            broker=broker.pid,
        )
        for process in kafka.children():
            process.halt()
        alone = _Engine(orders, engine=opened.enter_context(engine(class_path, folder / "engine")))
        alone.engine.child.halt()

        def measured(side: _Side) -> _Measured:
            found = side.measure(ROWS, CHANGES, SECONDS)
            told = f"{found.snapshot:.1f} s, then {found.changes:.1f} s; CPU {found.spent.seconds:.1f} s"
            print(f"{side.slot}: {told}, {found.spent.memory / 1e6:,.0f} MB", flush=True)
            return found

        def warmed() -> None:
            for side in (ours, kafka, alone):
                side.measure(_FEWER_ROWS, _FEWER_CHANGES, _FEWER_SECONDS)

        yield Pair(
            ours=lambda: _figures(measured(ours), ("kafka", "engine")),
            peer=lambda: {**_figures(measured(kafka), ("kafka",)), **_figures(measured(alone), ("engine",))},
            warm_up=warmed,
            settings={
                "rows": f"{ROWS:,} rows of six columns, about 100 bytes each; {CHANGES:,} changes in transactions of "
                "1,000: 60 % updates, 20 % deletes, 20 % inserts; written while the reader is suspended",
                "visible": f"ten rows every 50 ms for {SECONDS:g} s, from the commit until a view of groups shows them",
                "CPU, memory": "of the snapshot and the changes: rw_sql's process with its JVM; with Kafka also the "
                "broker and Kafka Connect; resident memory, sampled; PostgreSQL is not counted",
                "both": "local[2], 2 GB; the rows of each side are compared with PostgreSQL's after each run; one side "
                "runs while the others are suspended",
                "ours": "a source, a table, a small table with a view",
                "kafka": f"Debezium {DEBEZIUM} in Kafka Connect (2 GB), JSON without schemas, a topic with one "
                "partition per table, FORMAT DEBEZIUM ENCODE JSON",
                "engine": f"Debezium {DEBEZIUM}'s engine (2 GB); its consumer appends each row as JSON to a file",
                "Debezium": "; ".join(f"{name} = {value}" for name, value in TUNED.items()),
            },
        )


def _figures(found: _Measured, peers: Sequence[str]) -> Mapping[str, float]:
    """The figures of a measurement, by the names of their cases."""
    each = {
        "snapshot": ROWS / found.snapshot,
        "changes": CHANGES / found.changes,
        "cpu": found.spent.seconds,
        "memory": found.spent.memory / 1e6,
    }
    told = {f"capture_{name}_{peer}": value for peer in peers for name, value in each.items()}
    if found.ages:
        hundredths = quantiles(found.ages, n=100, method="inclusive")
        told |= {"capture_visible_p50": hundredths[49] * 1e3, "capture_visible_p99": hundredths[98] * 1e3}
    return told


_PEERS = {"kafka": "Debezium, Kafka, FORMAT DEBEZIUM", "engine": "Debezium's engine alone"}


def _cases() -> Iterator[Case]:
    for short, peer in _PEERS.items():
        yield _case(f"capture_snapshot_{short}", f"snapshot of {ROWS:,} rows of PostgreSQL", peer, "rows/s", 2.0)
        yield _case(f"capture_changes_{short}", f"{CHANGES:,} changes of PostgreSQL", peer, "changes/s", 2.0)
        yield _case(f"capture_cpu_{short}", "snapshot and changes of PostgreSQL: CPU time", peer, "s", None)
        yield _case(f"capture_memory_{short}", "snapshot and changes of PostgreSQL: greatest memory", peer, "MB", None)
    visible, peer = "from a commit in PostgreSQL until a view shows it", _PEERS["kafka"]
    yield _case("capture_visible_p50", f"{visible}, median", peer, "ms", 0.5)
    yield _case("capture_visible_p99", f"{visible}, 99th percentile", peer, "ms", None)


def _case(name: str, title: str, peer: str, unit: str, goal: float | None) -> Case:
    return Case(
        name=name,
        title=title,
        peer=peer,
        unit=unit,
        goal=goal,
        is_more_better=unit.endswith("/s"),
        is_manual=True,
        runs=1,
        open=_open,
    )


CASES = tuple(_cases())
