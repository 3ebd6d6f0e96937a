"""The versions that rewind points need: only those of tables that a REWIND would restore."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import PointDependent, RewindPoint
from rw_sql.metastore.records import DropObject, Operation
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.positions.pins import least_needed_version
from rw_sql.runtime.upkeep.table_upkeep import Retention
from tests.runtime.maintained_log import MaintainedLog, put

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


def point_of(log: MaintainedLog, *dependents: PointDependent) -> RewindPoint:
    """A stored rewind point at the log's present version."""
    point = RewindPoint(
        source_id=log.source.id,
        operation=1,
        made_ms=0,
        folder="p",
        log_version=log.output.table.version(),
        dependents=dependents,
    )
    log.context.metastore.jobs.write_rewind_points((point,))
    return point


def drop(log: MaintainedLog, object_id: int) -> None:
    metastore = log.context.metastore
    operation = Operation(kind="TEST", statement="", objects=(), changes=(DropObject(id=object_id),))
    metastore.commit(operation, based_on=metastore.snapshot())


def test_a_log_is_cleaned_up_again_once_its_rewind_point_is_gone(log: MaintainedLog) -> None:
    log.retention = Retention(seconds=3600.0)
    log.later_seconds = 400 * 86_400.0
    log.append(2)
    point = point_of(log)

    def live_on() -> int:
        """A day of batches and upkeep; returns the number of existing commits."""
        for _ in range(2):
            log.hour += 5
            log.append(6)
            log.turn()
        return len(log.versions())

    before = log.output.table.version()
    assert live_on() > log.output.table.version() - before
    # It is too old, but a REWIND that was planned before may still need it.
    old = replace(point, reason="it was older than rewind_point_retention (7d)")
    log.context.metastore.jobs.replace_rewind_points((old,))
    assert least_needed_version(log.context, log.source.id) == point.log_version
    gone = RewindPoint(source_id=log.source.id, operation=1, made_ms=0, reason=old.reason)
    log.context.metastore.jobs.replace_rewind_points((gone,))
    assert least_needed_version(log.context, log.source.id) is None
    assert live_on() < 15
    assert len(log.on_disk()) < 20


def test_a_view_with_another_table_than_at_the_point_needs_no_version(log: MaintainedLog) -> None:
    view, other = log.view("v"), log.view("w")
    point_of(
        log,
        PointDependent(id=view.id, generation=1, version=3, batch=-1, reads=((log.source.id, 1), (other.id, 5))),
        PointDependent(id=other.id, generation=1, version=8, batch=-1),
    )
    log.append(4)
    needed = [least_needed_version(log.context, id_) for id_ in (log.source.id, view.id, other.id)]
    assert needed == [1, 3, 5]
    assert least_needed_version(log.context, view.id, 2) is None  # It is being rebuilt.
    put(log.context.metastore, replace(view, generation=2))
    assert least_needed_version(log.context, view.id, 1) is None
    assert least_needed_version(log.context, view.id, 2) is None
    assert least_needed_version(log.context, other.id) == 8
    # While the old table is kept, UNDO can put it into use again.
    table = log.warehouse.data(view.id, 1)
    log.warehouse.write_text(f"{table}/_delta_log/{0:020d}.json", "{}")
    assert least_needed_version(log.context, other.id) == 5
    assert least_needed_version(log.context, log.source.id) == 1
    assert least_needed_version(log.context, view.id, 2) is None
    log.warehouse.remove(table)
    assert least_needed_version(log.context, other.id) == 8
    # UNDO has put the old table into use again.
    put(log.context.metastore, replace(view, last_generation=2))
    assert least_needed_version(log.context, view.id, 1) == 3
    drop(log, view.id)
    assert least_needed_version(log.context, other.id) == 8


def test_a_point_of_a_dropped_source_needs_no_version(log: MaintainedLog) -> None:
    view = log.view("v")
    point_of(log, PointDependent(id=view.id, generation=1, version=3, batch=-1))
    put(log.context.metastore, replace(view, inputs=()))
    assert least_needed_version(log.context, view.id) == 3
    drop(log, log.source.id)
    assert least_needed_version(log.context, view.id) is None


def test_a_sink_needs_what_it_reads_on_but_no_version_of_its_own_batches(log: MaintainedLog) -> None:
    sink = log.sink()
    log.append(4)
    point_of(log, PointDependent(id=sink.id, generation=1, version=2, batch=-1, reads=((log.source.id, 1),)))
    assert least_needed_version(log.context, sink.id) is None
    # A REWIND has given it a new generation. Another REWIND can return to the same point.
    put(log.context.metastore, replace(sink, generation=2))
    assert least_needed_version(log.context, log.source.id) == 1
