"""Rewind points go when they are too old or too many, and no REWIND loses its point."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease, QuiesceLock, RewindPoint
from rw_sql.metastore.records import Operation, ParameterRecord, PutObject, RewindRecord, SourceRecord
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.downtime import note_downtime
from rw_sql.runtime.rewind import pruning
from rw_sql.runtime.rewind.pruning import ERASE_AFTER_SECONDS, EVERY_SECONDS, PointPruning
from rw_sql.runtime.support.processes import now_ms, process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rw_sql.metastore.records import ObjectRecord

DAY = 24 * 3_600_000
HOUR = ERASE_AFTER_SECONDS / 86_400
TOO_OLD = "it was older than rewind_point_retention (7d)"


@dataclass(slots=True)
class Clock:
    """The two clocks of the pruning: the wall clock in milliseconds, and the monotonic clock in seconds."""

    ms: int
    seconds: float = 0.0


class Points:
    """A source with rewind points, in a process that holds the lease."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        warehouse = Warehouse.at(str(folder / "warehouse"))
        metastore = Metastore.open(warehouse.uri)
        self.clock = clock
        self.context = Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")
        self.jobs = metastore.jobs
        self.put(SourceRecord(id=1, name="s", definition="", connector="datagen", options=(), is_shared=True))
        lease = Lease(
            owner="a test",
            host=this_machine(),
            python_pid=os.getpid(),
            jvm_pid=0,
            python_start=process_start(os.getpid()),
            jvm_start="",
            taken_at_ms=clock.ms,
            heartbeat_ms=clock.ms,
            expires_ms=clock.ms + 1000 * DAY,
            applied_epoch=0,
        )
        assert self.jobs.take_lease(lease, None)
        self.lease = lease
        self.pruning = PointPruning(self.context)

    def put(self, record: ObjectRecord) -> None:
        operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),))
        self.context.metastore.commit(operation, based_on=self.context.metastore.snapshot())

    def set(self, name: str, value: str) -> None:
        snapshot = self.context.metastore.snapshot()
        known = snapshot.find("parameter", name)
        self.put(ParameterRecord(id=snapshot.next_id if known is None else known.id, name=name, value=value))

    def make(self, *operations: int, source_id: int = 1) -> None:
        """A point for each operation, with copies, made now."""
        for operation in operations:
            point = RewindPoint(
                source_id=source_id,
                operation=operation,
                made_ms=self.clock.ms,
                folder=f"rewind-{source_id}/{operation}-0",
                log_version=operation,
            )
            self.jobs.write_rewind_points((point,))
            self.context.warehouse.write_text(f"{self.folder(operation, source_id)}/mv-2/metadata", "{}")

    def folder(self, operation: int, source_id: int = 1) -> str:
        return f"{self.context.warehouse.uri}/checkpoints/rewind-{source_id}/{operation}-0"

    def copies(self) -> list[int]:
        """The operations whose copies exist."""
        names = self.context.warehouse.list_names(f"{self.context.warehouse.uri}/checkpoints/rewind-1")
        return sorted(int(name.partition("-")[0]) for name in names)

    def pass_time(self, days: float, *, is_awake: bool = True) -> None:
        """Lets time pass. If the owner is awake, its heartbeat follows."""
        self.clock.ms += int(days * DAY)
        self.clock.seconds += days * 86_400
        if is_awake:
            self.lease = replace(self.lease, heartbeat_ms=self.clock.ms)
            assert self.jobs.renew_lease(self.lease)

    def prune(self, busy: Collection[int] = ()) -> dict[int, str | None]:
        """The next search; returns the reason of each stored point."""
        self.clock.seconds += EVERY_SECONDS
        self.prune_if_due(busy)
        return {point.operation: point.reason for point in self.jobs.rewind_points()}

    def prune_if_due(self, busy: Collection[int] = ()) -> None:
        self.pruning.run_if_due(self.context.metastore.snapshot(), busy)
        self.pruning.wait()

    def prune_twice(self) -> dict[int, str | None]:
        """A search, and another after the time for which the data of an old point are kept."""
        self.prune()
        self.prune()
        self.pass_time(HOUR)
        return self.prune()


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Points:
    clock = Clock(ms=now_ms())
    monkeypatch.setattr(pruning, "now_ms", lambda: clock.ms)
    monkeypatch.setattr(pruning, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    return Points(tmp_path, clock)


def test_an_old_point_first_gets_a_reason_and_loses_its_data_an_hour_later(points: Points) -> None:
    points.make(5)
    points.pass_time(4)
    points.make(6)
    assert points.prune() == {5: None, 6: None}
    points.pass_time(3.5)
    assert points.prune() == {5: TOO_OLD, 6: None}
    first = points.jobs.rewind_points()[0]
    assert (first.has_data, first.log_version) == (True, 5)
    points.pass_time(HOUR * 0.9)
    points.prune()
    assert points.copies() == [5, 6]
    points.pass_time(HOUR * 0.2)
    assert points.prune() == {5: TOO_OLD, 6: None}
    first = points.jobs.rewind_points()[0]
    assert (first.has_data, first.log_version) == (False, -1)
    assert points.copies() == [6]


def test_time_without_an_owner_does_not_make_a_point_old(points: Points) -> None:
    points.make(5)
    points.pass_time(6)
    slept = points.lease
    points.pass_time(14, is_awake=False)
    # The next heartbeat has not recorded the period yet.
    assert points.prune() == {5: None}
    note_downtime(points.context.warehouse, slept, points.clock.ms)
    points.pass_time(0)
    assert points.prune() == {5: None}
    points.pass_time(0.5)
    assert points.prune() == {5: None}
    points.pass_time(1)
    assert points.prune() == {5: TOO_OLD}


def test_a_point_that_was_made_while_the_clock_was_ahead_grows_old_all_the_same(points: Points) -> None:
    points.make(5)
    points.clock.ms -= 400 * DAY
    points.pass_time(0)
    assert points.prune() == {5: None}
    points.pass_time(8)
    assert points.prune() == {5: TOO_OLD}


def test_a_rewind_that_is_not_carried_out_keeps_its_point(points: Points) -> None:
    points.make(5, 6)
    points.pass_time(8)
    assert points.prune() == {5: TOO_OLD, 6: TOO_OLD}
    # It was planned before the point got too old.
    points.put(RewindRecord(id=9, name="s", source_id=1, operation=5, epoch=2))
    assert points.prune_twice() == {5: TOO_OLD, 6: TOO_OLD}
    assert [point.has_data for point in points.jobs.rewind_points()] == [True, False]
    assert points.copies() == [5]
    points.jobs.note_rewound(2, 1)
    points.prune()
    assert points.copies() == []


def test_a_rewind_keeps_its_point_from_getting_too_old(points: Points) -> None:
    points.make(5)
    points.put(RewindRecord(id=9, name="s", source_id=1, operation=5, epoch=2))
    points.pass_time(8)
    assert points.prune() == {5: None}


def test_fewer_points_stay_as_soon_as_rewind_points_is_lowered(points: Points) -> None:
    points.make(5, 6, 7)
    points.prune_if_due()
    points.set("rewind_points", "1")
    points.prune_if_due()
    assert [point.operation for point in points.jobs.rewind_points()] == [7]
    assert points.copies() == [7]


def test_a_longer_shorter_or_unlimited_age_applies_to_the_points_that_exist(points: Points) -> None:
    points.make(5)
    points.pass_time(8)
    points.set("rewind_point_retention", "-1")
    assert points.prune() == {5: None}
    points.set("rewind_point_retention", f"{30 * DAY}ms")
    assert points.prune() == {5: None}
    points.set("rewind_point_retention", "60000ms")
    points.prune_if_due()
    (point,) = points.jobs.rewind_points()
    assert point.reason == "it was older than rewind_point_retention (1min)"


def test_the_points_of_a_source_stay_while_a_point_or_a_preview_is_made(points: Points) -> None:
    points.make(5)
    points.pass_time(8)
    assert points.prune(busy={1}) == {5: None}
    lock = QuiesceLock(
        hold="h",
        source_id=1,
        epoch=points.context.metastore.snapshot().epoch,
        host="here",
        pid=1,
        process_start="",
        expires_ms=points.clock.ms + 1000,
    )
    points.jobs.add_locks([lock])
    assert points.prune() == {5: None}
    points.clock.ms += 2000
    assert points.prune() == {5: TOO_OLD}


def test_an_owner_prunes_only_its_own_group_and_only_with_the_lease(points: Points) -> None:
    points.put(
        SourceRecord(
            id=2, name="t", definition="", connector="datagen", options=(), is_shared=True, resource_group="nightly"
        )
    )
    points.make(5)
    points.make(6, source_id=2)
    points.pass_time(8)
    assert points.prune() == {5: TOO_OLD, 6: None}
    points.make(7)
    points.pass_time(8)
    points.jobs.release_lease(points.lease)
    assert points.prune()[7] is None


def test_copies_that_a_killed_owner_left_go_at_the_first_search(points: Points) -> None:
    points.make(5)
    points.jobs.claim_run("ingest-1", 6, "a test")
    points.jobs.drop_rewind_points(points.jobs.rewind_points())
    assert points.copies() == [5]
    points.prune()
    assert points.copies() == []


def test_owners_that_live_less_than_an_hour_erase_old_points_too(points: Points) -> None:
    points.make(5)
    points.pass_time(8)
    points.prune()
    for _ in range(3):
        points.pruning = PointPruning(points.context)
        points.pass_time(HOUR / 2)
        points.prune()
    assert points.copies() == []


def test_a_pass_of_the_owner_does_not_wait_until_copies_are_removed(
    points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    points.make(5, 6)
    points.set("rewind_points", "1")
    begun, may_end = threading.Event(), threading.Event()
    real = Warehouse.remove

    def remove(warehouse: Warehouse, path: str) -> None:
        begun.set()
        assert may_end.wait(10)
        real(warehouse, path)

    monkeypatch.setattr(Warehouse, "remove", remove)
    woken = threading.Event()
    points.pruning = PointPruning(points.context, woken.set)
    points.clock.seconds += EVERY_SECONDS
    points.pruning.run_if_due(points.context.metastore.snapshot(), ())
    assert begun.wait(10)
    # No point of this source can be made now, but points of others can.
    assert (points.pruning.reserve(1), points.pruning.reserve(2)) == (False, True)
    assert not woken.is_set()
    may_end.set()
    points.pruning.wait()
    assert woken.is_set()
    assert points.pruning.reserve(1)
    assert points.copies() == [6]


def test_a_source_that_moved_to_another_group_keeps_the_downtime_of_its_former_group(points: Points) -> None:
    points.make(1)
    points.pass_time(1)
    source = points.context.metastore.snapshot().get(1)
    assert isinstance(source, SourceRecord)
    before = points.clock.ms - 20 * DAY
    point = replace(points.jobs.rewind_points()[0], made_ms=before - DAY)
    points.jobs.replace_rewind_points([point])
    former = replace(points.lease, group="nightly", heartbeat_ms=before)
    note_downtime(points.context.warehouse, former, now_ms() - 1000)
    points.put(replace(source, group_since=points.context.metastore.snapshot().epoch + 1))
    assert points.prune() == {1: None}
    points.pass_time(6)
    assert points.prune() == {1: TOO_OLD}
