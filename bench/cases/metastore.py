"""The times of the metastore. The goals are absolute, because a user has no other program to compare with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import perf_counter

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

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
_STEADY_BY = {"rounds": "compared with an append of one row by delta-rs, measured as often beside each run"}


def source(id: int) -> PutObject:
    """A Kafka source with this id."""
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
        metastore.flush(with_upkeep=True)
    finally:
        shutil.rmtree(warehouse)


def _timed(run: Callable[[], object]) -> float:
    started = perf_counter()
    run()
    return (perf_counter() - started) * 1e3


def _median(run: Callable[[], object]) -> float:
    return median(_timed(run) for _ in range(REPEATS))


@contextmanager
def _appends() -> Iterator[Callable[[], float]]:
    """Yields the yardstick for cases that write or read a commit: a function that returns the milliseconds of an append
    of one row by delta-rs."""
    folder = mkdtemp(prefix="rw_sql_bench_")
    row = pa.table({"id": [1], "definition": ["CREATE SOURCE orders"]})
    table = DeltaTable.create(folder, row.schema)
    try:
        yield lambda: median(_timed(lambda: write_deltalake(table, row, mode="append")) for _ in range(REPEATS))
    finally:
        shutil.rmtree(folder)


@contextmanager
def _open_few() -> Iterator[Pair]:
    """A metastore of ten sources, for the cases of a statement's commit and of the lease."""
    with metastore_of(10) as metastore, _appends() as append:
        reader = Metastore.open(str(Path(metastore.directory).parent)).jobs
        lease = _lease(0)
        metastore.jobs.take_lease(lease, None)

        def renew() -> bool:
            nonlocal lease
            lease = replace(lease, heartbeat_ms=lease.heartbeat_ms + 1)
            return metastore.jobs.renew_lease(lease)

        def read() -> float:
            renew()
            return _timed(reader.lease)

        reader.lease()
        yield Pair(
            ours=lambda: {
                "ddl_commit_10": _median(lambda: commit(metastore, source(metastore.snapshot().next_id))),
                "lease_renew": _median(renew),
                "lease_read": median(read() for _ in range(REPEATS)),
            },
            beside=append,
            settings={"sources": "10", "repeats": f"a run's figure is the median of {REPEATS}", **_STEADY_BY},
        )


@contextmanager
def _open_many_splits() -> Iterator[Pair]:
    """A metastore of ten sources, one of them with MANY splits, for the cases that change all splits in one commit."""
    reset = (
        UnassignSplits(fragment="1", splits=SPLITS),
        AssignSplits(fragment="1", splits=SPLITS),
        PutSplitStates(fragment="1", states=STATES),
    )
    versions = count(1)
    with metastore_of(10, MANY) as metastore:

        def note() -> object:
            at = next(versions)
            positions = [
                NotedPosition(fragment="1", split=split, state=state, epoch=1, run=1, log_version=at)
                for split, state in STATES.items()
            ]
            return metastore.jobs.note_positions(positions)

        yield Pair(
            ours=lambda: {
                "inject_commit_10000": _timed(lambda: commit(metastore, PutSplitStates(fragment="1", states=STATES))),
                "reset_commit_10000": _timed(lambda: commit(metastore, *reset)),
                "note_10000": _timed(note),
            },
            settings={"sources": "10", "splits": f"{MANY:,}"},
        )


@contextmanager
def _open_many() -> Iterator[Pair]:
    """A metastore of MANY sources and split states, for the cases of a statement's commit, of opening the metastore,
    and of reading another process's commit."""
    with metastore_of(MANY, MANY) as metastore, _appends() as append:
        warehouse = str(Path(metastore.directory).parent)
        reader = Metastore.open(warehouse)

        def look() -> float:
            commit(metastore, source(metastore.snapshot().next_id))
            return _timed(reader.snapshot)

        yield Pair(
            ours=lambda: {
                "ddl_commit_10000": _median(lambda: commit(metastore, source(metastore.snapshot().next_id))),
                "metastore_open_10000": _timed(lambda: Metastore.open(warehouse)),
                "snapshot_10000": median(look() for _ in range(REPEATS)),
                "metastore_poll": _median(metastore.version) * 1e3,
            },
            beside=append,
            settings={
                "sources": f"{MANY:,}",
                "split states": f"{MANY:,}",
                "repeats": f"a run's figure is the median of {REPEATS}, except for opening",
                **_STEADY_BY,
            },
        )


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


_RUNS = 15
"""The number of runs of these cases. Cases with a peer need fewer runs, because a slow second affects both sides of a
ratio alike."""

_OF_SHORT_RUNS = 45
"""The number of runs of the cases whose runs take only a few seconds together. With fewer runs, one slow second could
affect all runs."""


def _case(
    name: str,
    title: str,
    goal: float,
    opened: Callable[[], AbstractContextManager[Pair]],
    *,
    unit: str = "ms",
    runs: int = _RUNS,
) -> Case:
    return Case(name=name, title=title, peer="", unit=unit, goal=goal, open=opened, is_quick=True, runs=runs)


CASES = (
    _case("ddl_commit_10", "commit a DDL statement, 10 sources", 50, _open_few),
    _case("lease_renew", "renew the lease", 50, _open_few),
    _case("lease_read", "read a renewed lease", 3, _open_few),
    _case("inject_commit_10000", "commit an INJECT of 10,000 splits", 1_000, _open_many_splits, runs=_OF_SHORT_RUNS),
    _case("reset_commit_10000", "commit a RESET of 10,000 splits", 1_000, _open_many_splits, runs=_OF_SHORT_RUNS),
    _case("note_10000", "store 10,000 positions", 1_000, _open_many_splits, runs=_OF_SHORT_RUNS),
    _case("ddl_commit_10000", "commit a DDL statement, 10,000 sources and split states", 50, _open_many),
    _case("metastore_open_10000", "open a metastore of 10,000 sources and split states", 1_000, _open_many),
    _case("snapshot_10000", "see another process's commit, 10,000 sources", 20, _open_many),
    _case("metastore_poll", "check whether anything was committed", 1_000, _open_many, unit="µs"),
)
