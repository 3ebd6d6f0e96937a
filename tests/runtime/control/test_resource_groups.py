"""Resource groups: moves of jobs, sources and REWINDs between groups, without Spark."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import JobStatus, Lease
from rw_sql.metastore.records import (
    AssignSplits,
    DropObject,
    MaterializedViewRecord,
    Operation,
    PauseRecord,
    PutObject,
    PutSplitStates,
    RewindRecord,
    SourceRecord,
)
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import desired_jobs
from rw_sql.plan.statements.session.resource_group import lower_alter_resource_group
from rw_sql.runtime.control import reconciler as module
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.applied_epoch import Applied
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import is_held
from rw_sql.runtime.rewind import scheduler
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement
from tests.runtime.controlled_jobs import FakeJob, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import JobSpec

GROUPS = ("default", "a", "b")
LATER_MS = 10**10


@dataclass
class Owner:
    """The owner of a group in a simulated process of another machine: only its heartbeat shows whether it lives."""

    context: Context
    world: World
    lease: Lease
    reconciler: Reconciler = field(init=False)
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    is_dead: bool = False

    def __post_init__(self) -> None:
        self.reconciler = Reconciler(self.context)

    def turn(self) -> None:
        """One pass; then the lease tells what is applied."""
        self.reconciler.reconcile()
        applied = max(self.lease.applied_epoch, self.reconciler.applied_epoch)
        later = replace(self.lease, applied_epoch=applied, let_go_epoch=max(applied, self.reconciler.let_go_epoch))
        assert self.context.metastore.jobs.renew_lease(later)
        self.lease = later

    def running(self) -> set[str]:
        """The jobs that may commit."""
        return set() if self.is_dead else {job for job, fake in self.jobs.items() if not fake.is_stopped}

    def release_stops(self) -> None:
        """Lets jobs that are being stopped end."""
        for fake in self.jobs.values():
            if fake.is_stopping.is_set():
                fake.may_stop.set()

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more, and its lease runs out."""
        self.is_dead = True
        for fake in self.jobs.values():
            fake.may_stop.set()
        assert self.context.metastore.jobs.renew_lease(replace(self.lease, expires_ms=0, heartbeat_ms=0))


class World:
    """Several owners on one warehouse, and the record of jobs that ran twice."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.metastore = Metastore.open(self.warehouse.uri)
        self.owners: list[Owner] = []
        self.wrong: list[str] = []
        self.number = 0
        self._lock = threading.Lock()
        monkeypatch.setattr(module, "_start", self._start)

    def _start(self, context: Context, spec: JobSpec, *_: object) -> FakeJob:
        with self._lock:
            own = next(owner for owner in self.owners if owner.context is context)
            others = [owner.context.owner for owner in self.owners if owner is not own and spec.job in owner.running()]
            if others and not own.is_dead:
                self.wrong.append(f"{spec.job} starts at {context.owner} and runs at {others}")
            own.jobs[spec.job] = job = FakeJob(spec=spec)
            return job

    def alive(self) -> list[Owner]:
        return [owner for owner in self.owners if not owner.is_dead]

    def take(self, group: str) -> None:
        """A new process takes a group's lease, if it is free."""
        self.number += 1
        metastore = Metastore.open(self.warehouse.uri)
        old = metastore.jobs.lease(group)
        if is_held(old, is_local=True, now_ms=now_ms()):
            return
        at = now_ms()
        lease = Lease(
            owner=f"{group}-{self.number}",
            host=f"machine {self.number}",
            python_pid=1,
            jvm_pid=1,
            python_start="1",
            jvm_start="1",
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + LATER_MS,
            applied_epoch=old.applied_epoch if old is not None else 0,
            let_go_epoch=old.let_go if old is not None else 0,
            version="1",
            group=group,
        )
        assert metastore.jobs.take_lease(lease, replacing=old)
        context = Context(
            warehouse=self.warehouse,
            metastore=metastore,
            sessions=cast("Any", None),
            owner=lease.owner,
            group=group,
            applied=Applied(),
        )
        context.owning.set()
        self.owners.append(Owner(context=context, world=self, lease=lease))

    def commit(self, *changes: Any) -> None:
        operation = Operation(kind="TEST", statement="", objects=(), changes=changes)
        self.metastore.commit(operation, based_on=self.metastore.snapshot())

    def put(self, group: str) -> None:
        id_ = self.metastore.snapshot().next_id
        definition = f"CREATE MATERIALIZED VIEW v{id_} WITH (resource_group = '{group}') AS SELECT 1"
        self.commit(
            PutObject(
                record=MaterializedViewRecord(
                    id=id_,
                    name=f"v{id_}",
                    definition=definition,
                    query="SELECT 1",
                    schema="",
                    inputs=(),
                    resource_group=group,
                )
            )
        )

    def move(self, name: str, group: str) -> None:
        snapshot = self.metastore.snapshot()
        statement = cast("Any", parse_statement(f"ALTER MATERIALIZED VIEW {name} SET RESOURCE_GROUP TO '{group}'"))
        plan = lower_alter_resource_group(statement, snapshot)
        if plan.operation is not None:
            self.metastore.commit(plan.operation, based_on=snapshot)

    def settle(self) -> None:
        """Turns until every living owner has applied the newest epoch."""
        epoch = self.metastore.snapshot().epoch

        def is_settled() -> bool:
            for owner in self.alive():
                owner.release_stops()
                owner.turn()
            return all(owner.lease.applied_epoch >= epoch for owner in self.alive())

        wait_until(is_settled, "every owner has applied the newest epoch")

    def wanted(self, group: str) -> set[str]:
        return {job for job, spec in desired_jobs(self.metastore.snapshot()).items() if spec.group == group}


def step(world: World, chance: random.Random) -> None:
    names = [view.name for view in world.metastore.snapshot().kept]
    match chance.choice(
        ("put", "move", "move", "move", "turn", "turn", "turn", "turn", "stop", "kill", "take", "drop")
    ):
        case "put":
            world.put(chance.choice(GROUPS))
        case "move" if names:
            world.move(chance.choice(names), chance.choice(GROUPS))
        case "turn" if world.alive():
            chance.choice(world.alive()).turn()
        case "stop" if world.alive():
            chance.choice(world.alive()).release_stops()
        case "kill" if world.alive():
            chance.choice(world.alive()).kill()
        case "take":
            world.take(chance.choice(GROUPS))
        case "drop" if len(names) > 3:
            record = world.metastore.snapshot().find("materialized_view", chance.choice(names))
            assert record is not None
            world.commit(DropObject(id=record.id))


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 22))])
def test_random_moves_and_kills_never_run_a_job_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, world = random.Random(seed), World(tmp_path / "warehouse", monkeypatch)
    for group in GROUPS:
        world.take(group)
    for group in (*GROUPS, *GROUPS):
        world.put(group)
    world.settle()
    for _ in range(60):
        step(world, chance)
        assert world.wrong == []
    world.settle()
    assert world.wrong == []
    living = {owner.context.group: owner for owner in world.alive()}
    assert all(owner.running() == world.wanted(group) for group, owner in living.items())
    for group in GROUPS:
        world.take(group)
    world.settle()
    for owner in world.alive():
        assert owner.running() == world.wanted(owner.context.group)
    assert world.wrong == []


def test_a_moved_job_starts_when_the_other_owner_has_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "warehouse", monkeypatch)
    world.take("a")
    world.take("b")
    world.put("a")
    world.settle()
    first, second = world.owners
    assert first.running() == {"mv-1"}
    world.move("v1", "b")
    for _ in range(3):
        second.turn()
    moved = world.metastore.snapshot().get(1)
    assert isinstance(moved, MaterializedViewRecord)
    assert (moved.resource_group, moved.group_since) == ("b", world.metastore.snapshot().epoch)
    assert second.jobs == {}
    assert second.lease.applied_epoch < moved.group_since
    # Its pause is no proof either that nobody runs it.
    world.commit(PutObject(record=PauseRecord(id=2, name="all", source_id=None)))
    second.turn()
    assert second.lease.applied_epoch < moved.group_since

    def is_being_stopped() -> bool:
        first.turn()
        return first.jobs["mv-1"].is_stopping.is_set()

    wait_until(is_being_stopped, "the first stops it")
    second.turn()
    assert second.jobs == {}
    world.settle()
    assert (first.running(), second.running()) == (set(), {"mv-1"})
    # Back and forth before anybody looks: each hop waits for the newest.
    world.move("v1", "a")
    world.move("v1", "b")
    second.turn()
    second.turn()
    world.settle()
    assert world.wrong == []
    assert (first.running(), second.running()) == (set(), {"mv-1"})


def test_an_owner_lets_a_job_go_only_when_it_has_reported_that_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat may tell at any moment what is let go: the next owner would then report RUNNING before STOPPED."""
    world = World(tmp_path / "warehouse", monkeypatch)
    world.take("a")
    world.take("b")
    world.put("a")
    world.settle()
    first = world.owners[0]
    told: list[tuple[str, int]] = []
    write = first.context.metastore.jobs.write_job_status

    def watched(statuses: Sequence[JobStatus]) -> None:
        told.extend((status.state, first.reconciler.let_go_epoch) for status in statuses if status.job == "mv-1")
        write(statuses)

    monkeypatch.setattr(first.context.metastore.jobs, "write_job_status", watched)
    world.move("v1", "b")
    since = world.metastore.snapshot().epoch
    world.settle()
    assert first.reconciler.let_go_epoch == since
    assert told
    assert all(let_go < since for _, let_go in told)
    assert told[-1][0] == "STOPPED"


def put_source(world: World, id_: int, group: str) -> None:
    """A source with one split, and a view of it with the next id."""
    options = (("topic", "t"), ("properties.bootstrap.server", "h:1"))
    written = ", ".join(f"{key} = '{value}'" for key, value in options)
    definition = f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', {written}) FORMAT PLAIN ENCODE JSON"
    record = SourceRecord(
        id=id_,
        name="s",
        definition=definition,
        connector="kafka",
        options=options,
        is_shared=True,
        resource_group=group,
    )
    fragment = ingest_fragment(id_)
    world.commit(
        PutObject(record=record),
        PutObject(
            record=MaterializedViewRecord(
                id=id_ + 1, name="v", definition="", query="SELECT 1", schema="", inputs=(id_,), resource_group=group
            )
        ),
        AssignSplits(fragment=fragment, splits=("t:0",)),
        PutSplitStates(fragment=fragment, states={"t:0": '{"offset":0}'}),
    )


def move_source(world: World, id_: int, group: str) -> int:
    """Moves a source and its view without a statement, which is refused while a REWIND is pending; the epoch."""
    snapshot = world.metastore.snapshot()
    changes = []
    for record in (snapshot.get(id_), snapshot.get(id_ + 1)):
        assert isinstance(record, SourceRecord | MaterializedViewRecord)
        changes.append(PutObject(record=replace(record, resource_group=group, group_since=snapshot.epoch + 1)))
    world.commit(*changes)
    return snapshot.epoch + 1


@dataclass
class Rewinds:
    """REWINDs that last until ``may_end``, instead of their work on tables: the owners that have begun one."""

    begun: list[str] = field(default_factory=list)
    may_end: threading.Event = field(default_factory=threading.Event)

    def carry_out(self, context: Context, _: Snapshot, rewind: RewindRecord) -> None:
        self.begun.append(context.owner)
        assert self.may_end.wait(60)
        context.metastore.jobs.note_rewound(rewind.epoch, rewind.source_id)


@pytest.fixture
def rewinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rewinds]:
    made = Rewinds()
    monkeypatch.setattr(scheduler, "carry_out", made.carry_out)
    yield made
    made.may_end.set()


def put_rewind(world: World, source_id: int) -> None:
    epoch = world.metastore.snapshot().epoch + 1
    world.commit(PutObject(record=RewindRecord(id=9, name="s", source_id=source_id, operation=1, epoch=epoch)))


def test_a_source_starts_in_another_group_only_when_its_rewind_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewinds: Rewinds
) -> None:
    world = World(tmp_path / "warehouse", monkeypatch)
    world.take("a")
    world.take("b")
    first, second = world.owners
    put_source(world, 1, "a")
    put_rewind(world, 1)
    first.turn()
    wait_until(lambda: rewinds.begun == [first.context.owner], "the REWIND is being carried out")
    moved = move_source(world, 1, "b")
    for _ in range(5):
        first.turn()
        second.turn()
    assert first.lease.let_go_epoch is not None
    assert first.lease.let_go_epoch < moved
    assert first.lease.applied_epoch < moved
    assert second.jobs == {}
    assert len(rewinds.begun) == 1
    rewinds.may_end.set()
    world.settle()
    assert second.running() == {"ingest-1", "mv-2"}


def test_a_rewind_is_not_carried_out_before_the_other_owner_has_stopped_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewinds: Rewinds
) -> None:
    world = World(tmp_path / "warehouse", monkeypatch)
    world.take("a")
    world.take("b")
    first, second = world.owners
    put_source(world, 1, "a")
    world.settle()
    assert first.running() == {"ingest-1", "mv-2"}
    move_source(world, 1, "b")
    put_rewind(world, 1)
    for _ in range(5):
        second.turn()
    assert rewinds.begun == []
    rewinds.may_end.set()
    world.settle()
    assert rewinds.begun == [second.context.owner]
    assert second.running() == {"ingest-1", "mv-2"}
