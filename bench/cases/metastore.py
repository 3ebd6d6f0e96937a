"""The metastore's promises: figures of its own, since a user would have nothing instead."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import perf_counter

from bench.harness import Case, Pair
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease, NotedPosition
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    Operation,
    PutObject,
    PutSplitStates,
    SourceRecord,
    UnassignSplits,
)

MANY = 10_000
REPEATS = 25
SPLITS = tuple(f"orders:{number}" for number in range(MANY))
STATES = {split: f'{{"cluster":"lkc-7x2p","incarnation":"q0B2v3","offset":{at}}}' for at, split in enumerate(SPLITS)}


def source(id: int) -> PutObject:
    """A source of Kafka's with this id."""
    name = f"source_{id}"
    definition = (
        f"CREATE SOURCE {name} (id BIGINT, at TIMESTAMPTZ) WITH (connector = 'kafka', topic = 'orders', "
        "properties.bootstrap.server = 'localhost:9092') FORMAT PLAIN ENCODE JSON"
    )
    options = (("topic", "'orders'"), ("properties.bootstrap.server", "'localhost:9092'"))
    return PutObject(
        record=SourceRecord(id=id, name=name, definition=definition, connector="kafka", options=options, is_shared=True)
    )


def commit(metastore: Metastore, *changes: Change) -> None:
    """Commits these changes as one operation."""
    operation = Operation(kind="BENCH", statement="bench", objects=("bench",), changes=changes, actor="bench")
    metastore.commit(operation, based_on=metastore.snapshot())


@contextmanager
def metastore_of(sources: int, splits: int = 0) -> Iterator[Metastore]:
    warehouse = mkdtemp(prefix="rw_sql_bench_")
    try:
        metastore = Metastore.open(warehouse)
        commit(metastore, *(source(id) for id in range(1, sources + 1)))
        if splits:
            commit(metastore, AssignSplits(fragment="1", splits=SPLITS), PutSplitStates(fragment="1", states=STATES))
        yield metastore
        metastore.settle(with_upkeep=True)
    finally:
        shutil.rmtree(warehouse)


def _timed(run: Callable[[], object]) -> float:
    started = perf_counter()
    run()
    return (perf_counter() - started) * 1e3


def _median(run: Callable[[], object]) -> float:
    return median(_timed(run) for _ in range(REPEATS))


def _ddl(sources: int, splits: int = 0) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        with metastore_of(sources, splits) as metastore:
            yield Pair(
                ours=lambda: _median(lambda: commit(metastore, source(metastore.snapshot().next_id))),
                settings={"sources": str(sources), "split states": str(splits), "commits per run": str(REPEATS)},
            )

    return opened


@contextmanager
def _open_inject() -> Iterator[Pair]:
    with metastore_of(10, MANY) as metastore:
        yield Pair(ours=lambda: _timed(lambda: commit(metastore, PutSplitStates(fragment="1", states=STATES))))


@contextmanager
def _open_reset() -> Iterator[Pair]:
    reset = (
        UnassignSplits(fragment="1", splits=SPLITS),
        AssignSplits(fragment="1", splits=SPLITS),
        PutSplitStates(fragment="1", states=STATES),
    )
    with metastore_of(10, MANY) as metastore:
        yield Pair(ours=lambda: _timed(lambda: commit(metastore, *reset)))


@contextmanager
def _open_opening() -> Iterator[Pair]:
    with metastore_of(MANY, MANY) as metastore:
        warehouse = str(Path(metastore.directory).parent)
        yield Pair(ours=lambda: _timed(lambda: Metastore.open(warehouse)))


@contextmanager
def _open_snapshot() -> Iterator[Pair]:
    with metastore_of(MANY, MANY) as metastore:
        reader = Metastore.open(str(Path(metastore.directory).parent))

        def look() -> float:
            commit(metastore, source(metastore.snapshot().next_id))
            return _timed(reader.snapshot)

        yield Pair(ours=lambda: median(look() for _ in range(REPEATS)))


@contextmanager
def _open_poll() -> Iterator[Pair]:
    with metastore_of(MANY) as metastore:
        yield Pair(ours=lambda: _median(metastore.version) * 1e3)


def _lease(heartbeat: int) -> Lease:
    return Lease(
        owner="bench",
        host="localhost",
        python_pid=1,
        jvm_pid=2,
        python_start="1",
        jvm_start="2",
        taken_at_ms=1,
        heartbeat_ms=heartbeat,
        expires_ms=heartbeat + 10_000,
        applied_epoch=1,
    )


@contextmanager
def _leases() -> Iterator[tuple[Callable[[], bool], Callable[[], Lease | None]]]:
    """Renewing the lease, and reading it in another process's place."""
    with metastore_of(10) as metastore:
        reader = Metastore.open(str(Path(metastore.directory).parent)).runtime
        lease = _lease(0)
        metastore.runtime.take_lease(lease, None)

        def renew() -> bool:
            nonlocal lease
            lease = replace(lease, heartbeat_ms=lease.heartbeat_ms + 1)
            return metastore.runtime.renew_lease(lease)

        reader.lease()
        yield renew, reader.lease


@contextmanager
def _open_renew() -> Iterator[Pair]:
    with _leases() as (renew, _):
        yield Pair(ours=lambda: _median(renew))


@contextmanager
def _open_lease() -> Iterator[Pair]:
    with _leases() as (renew, read):

        def after_a_renewal() -> float:
            renew()
            return _timed(read)

        yield Pair(ours=lambda: median(after_a_renewal() for _ in range(REPEATS)))


@contextmanager
def _open_note() -> Iterator[Pair]:
    at = 0
    with metastore_of(10) as metastore:

        def note() -> object:
            nonlocal at
            at += 1
            positions = [
                NotedPosition(fragment="1", split=split, state=state, epoch=1, run=1, log_version=at)
                for split, state in STATES.items()
            ]
            return metastore.runtime.note_positions(positions)

        yield Pair(ours=lambda: _timed(note))


_RUNS = 15
"""Of a bare time more than of a ratio, whose sides a slow second meets alike."""


def _case(
    name: str, title: str, goal: float, opened: Callable[[], AbstractContextManager[Pair]], *, unit: str = "ms"
) -> Case:
    return Case(name=name, title=title, peer="none", unit=unit, goal=goal, open=opened, is_quick=True, runs=_RUNS)


CASES = (
    _case("ddl_commit_10", "commit a DDL statement, 10 sources", 50, _ddl(10)),
    _case("ddl_commit_10000", "commit a DDL statement, 10,000 sources and split states", 50, _ddl(MANY, MANY)),
    _case("inject_commit_10000", "commit an INJECT of 10,000 splits", 1_000, _open_inject),
    _case("reset_commit_10000", "commit a RESET of 10,000 splits", 1_000, _open_reset),
    _case("metastore_open_10000", "open a metastore of 10,000 sources and split states", 1_000, _open_opening),
    _case("snapshot_10000", "see another process's commit, 10,000 sources", 20, _open_snapshot),
    _case("metastore_poll", "ask whether anything was committed", 1_000, _open_poll, unit="µs"),
    _case("lease_renew", "renew the lease", 50, _open_renew),
    _case("lease_read", "read a lease that was renewed", 3, _open_lease),
    _case("note_10000", "note 10,000 positions", 1_000, _open_note),
)
