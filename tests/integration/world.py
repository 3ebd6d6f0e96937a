"""The state that a refused statement must not change, read without the session."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import SourceRecord
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore.records import ObjectRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldState:
    """The catalog, the number of its operations, the runs and states of the jobs, and the positions of each source."""

    epoch: int
    operations: int
    objects: tuple[ObjectRecord, ...]
    splits: Mapping[str, tuple[str, ...]]
    runs: Mapping[str, int]
    states: Mapping[str, str]
    positions: Mapping[str, Mapping[str, SplitState]]


def state_of(warehouse: str) -> WorldState:
    """The present state of a warehouse."""
    metastore = Metastore.open(warehouse)
    snapshot = metastore.snapshot()
    kinds = ("source", "materialized_view", "connection", "secret", "pause", "parameter")
    sources = [record for record in snapshot.all("source") if isinstance(record, SourceRecord)]
    return WorldState(
        epoch=snapshot.epoch,
        operations=len(metastore.operations()),
        objects=tuple(record for kind in kinds for record in snapshot.all(kind)),
        splits={f"ingest-{source.id}": tuple(snapshot.splits(f"ingest-{source.id}")) for source in sources},
        runs={run.job: run.run for run in metastore.jobs.last_runs().values()},
        states={job: status.state for job, status in metastore.jobs.job_statuses().items()},
        positions={
            source.name: read_positions(Warehouse.at(warehouse), metastore, snapshot, source).states
            for source in sources
        },
    )


@contextmanager
def nothing_changes(warehouse: str) -> Iterator[None]:
    """A context manager that asserts that the code inside it does not change the warehouse."""
    before = state_of(warehouse)
    yield
    assert state_of(warehouse) == before
