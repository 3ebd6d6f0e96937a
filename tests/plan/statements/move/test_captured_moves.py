"""UNDO and blocks where the tables of a captured database are read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.metastore.records import DISCOVERY, Operation
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.plan.statements.common import take_up_new_topics
from rw_sql.runtime.ingest.capture import is_new_upstream
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan import canned_inspector
from tests.plan.canned_inspector import positions_in
from tests.plan.statements.move.test_block import commit
from tests.plan.statements.move.test_undo import undo
from tests.plan.statements.table.test_cdc_tables import TABLE, cdc_world, ingest, source

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.jobs.context import Context
    from tests.plan.canned import CannedWorld

FORGET = "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)"
MOVE = ("PAUSE SOURCE pg", "ALTER SOURCE pg UNSAFE SET (hostname = 'b')", FORGET, "RESUME SOURCE pg")
AGAIN = "public.orders is read again; queries see the existing rows until then"


def reset_world() -> CannedWorld:
    """A source whose tables were read again by the newest operation but one."""
    world = cdc_world(TABLE)
    world.moved["shop"] = 0x4800
    world.read.add("shop")
    world.run("PAUSE SOURCE pg", FORGET)
    return world


def connected_world() -> CannedWorld:
    """A source that has read the database of its connection."""
    world = cdc_world()
    world.run(
        "DROP SOURCE pg",
        "CREATE CONNECTION c WITH (type = 'postgres', hostname = 'a', username = 'u', database.name = 'shop')",
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', connection = c, slot.name = 'rw', publication.name = 'rw')",
        TABLE,
    )
    world.read.add("shop")
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    return world


def discovered(world: CannedWorld, *, reads: bool = True) -> None:
    """The owner assigns the databases that the source does not read yet; then the source reads something, or not."""
    changes, _ = take_up_new_topics(world.snapshot, world.inspector, source(world))
    assert changes
    world.commit(Operation(kind=DISCOVERY, statement="-- discovery", objects=("pg",), changes=changes))
    world.log_version += reads


def is_new(world: CannedWorld, path: Path) -> bool:
    """True if the next run may create a slot."""
    found = {record.epoch: record for record in world.operations}
    context = SimpleNamespace(warehouse=Warehouse.at(str(path)), metastore=SimpleNamespace(operation=found.get))
    positions = positions_in(world, source(world).id)
    return is_new_upstream(cast("Context", cast("Any", context)), world.snapshot, source(world), positions)


def test_undo_of_a_reset_reads_the_tables_again_and_says_so() -> None:
    world = reset_world()
    reset = undo(world)
    world.run("RESUME SOURCE pg")
    world.log_version += 1
    (read,) = ingest(world).tables
    plan = world.run(reset)
    (again,) = ingest(world).tables
    assert again.repeats
    assert again.snapshot != read.snapshot
    assert plan.preview is not None
    assert AGAIN in plan.preview.notices
    assert ("NOTICE", AGAIN) in [(row.change, row.detail) for row in plan.changes]


def test_undo_of_a_reset_after_which_nothing_was_read_reads_no_table_again() -> None:
    world = cdc_world(TABLE)
    before = ingest(world).tables
    world.moved["shop"] = 0x4800
    world.read.add("shop")
    world.run("PAUSE SOURCE pg", FORGET)
    plan = world.run(undo(world))
    world.run("RESUME SOURCE pg")
    assert ingest(world).tables == before
    assert world.states("pg") == {"shop": 0x4800}
    assert AGAIN not in (plan.preview.notices if plan.preview is not None else ())


def test_undo_of_an_option_leaves_the_snapshots_of_a_later_reset_and_its_undo() -> None:
    world = cdc_world(TABLE)
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.run("ALTER SOURCE pg UNSAFE SET (auto.schema.change = 'true')")
    option = undo(world)
    world.run("PAUSE SOURCE pg", FORGET)
    world.log_version += 1
    world.run(undo(world), "RESUME SOURCE pg")
    before = ingest(world).tables
    world.run(option)
    assert ingest(world).tables == before
    assert source(world).snapshot > 0
    assert "auto.schema.change" not in dict(source(world).options)


def test_an_undone_reset_that_is_done_again_reads_the_tables_once_more() -> None:
    world = reset_world()
    world.run(undo(world))
    undone = source(world).snapshot
    world.run(undo(world))
    assert source(world).snapshot == world.snapshot.epoch > undone


def test_undo_of_a_move_in_a_block_reads_the_former_server_again() -> None:
    world = cdc_world(TABLE)
    moved = commit(world, *MOVE)
    assert moved.preview is not None
    assert AGAIN in moved.preview.notices
    (elsewhere,) = ingest(world).tables
    world.log_version += 1
    plan = world.run(undo(world))
    assert AGAIN in (plan.preview.notices if plan.preview is not None else ())
    (back,) = ingest(world).tables
    assert back.repeats
    assert back.snapshot != elsewhere.snapshot


def test_undo_of_a_move_that_read_no_table_again_reads_none() -> None:
    world = cdc_world(TABLE)
    before = ingest(world).tables
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true", "ALTER SOURCE pg UNSAFE SET (slot.name = 'rw2')")
    plan = world.run(undo(world))
    assert ingest(world).tables == before
    assert AGAIN not in (plan.preview.notices if plan.preview is not None else ())


def test_undo_of_a_move_to_a_database_that_was_discovered_later_reads_the_former_server_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent, look = {"b"}, canned_inspector._look

    def looked(world: CannedWorld, options: dict[str, str]) -> Upstream:
        return Upstream(error="b does not answer") if options.get("hostname") in silent else look(world, options)

    monkeypatch.setattr(canned_inspector, "_look", looked)
    world = cdc_world(TABLE)
    world.read.add("shop")
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.run("ALTER SOURCE pg UNSAFE SET (hostname = 'b', database.name = 'shop2') WITH (VALIDATE = false)")
    moved = undo(world)
    silent.clear()
    discovered(world)
    plan = world.run(moved)
    assert source(world).snapshot == world.snapshot.epoch
    assert AGAIN in (plan.preview.notices if plan.preview is not None else ())


@pytest.mark.parametrize("secret", ["p", "q"])
def test_undo_of_a_connection_s_move_reads_the_former_server_again(secret: str) -> None:
    world = cdc_world()
    world.run(
        "DROP SOURCE pg",
        "CREATE SECRET p WITH (backend = 'meta') AS 'x'",
        "CREATE SECRET q WITH (backend = 'meta') AS 'y'",
        "CREATE CONNECTION c WITH (type = 'postgres', hostname = 'a', username = 'u', password = SECRET p, "
        "database.name = 'shop')",
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', connection = c, slot.name = 'rw', publication.name = 'rw')",
        TABLE,
    )
    world.read.add("shop")
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.run(f"ALTER CONNECTION c SET (hostname = 'b', database.name = 'shop2', password = SECRET {secret})")
    moved = undo(world)
    discovered(world)
    plan = world.run(moved)
    assert source(world).snapshot == world.snapshot.epoch
    assert ("NOTICE", AGAIN) in [(row.change, row.detail) for row in plan.changes]


def test_undo_of_a_connection_s_login_reads_no_table_again() -> None:
    world = connected_world()
    world.run("ALTER CONNECTION c SET (username = 'other')")
    login = undo(world)
    world.run("PAUSE SOURCE pg", FORGET)
    world.log_version += 1
    before = source(world).snapshot
    world.run(login)
    assert source(world).snapshot == before > 0


LEAD_TO_B = "ALTER CONNECTION c SET (hostname = 'b', database.name = 'shop2')"


def test_undo_of_a_connection_s_move_after_which_nothing_was_read_reads_no_table_again() -> None:
    world = connected_world()
    before = ingest(world)
    world.run(LEAD_TO_B)
    moved = undo(world)
    discovered(world, reads=False)
    assert ingest(world).tables != before.tables
    plan = world.run(moved)
    assert (ingest(world).tables, ingest(world).splits) == (before.tables, before.splits)
    assert AGAIN not in (plan.preview.notices if plan.preview is not None else ())
    assert take_up_new_topics(world.snapshot, world.inspector, source(world)) == ((), ())
    world.run(undo(world))
    assert source(world).snapshot == world.snapshot.epoch


@pytest.mark.parametrize("is_reset", [False, True])
def test_undo_of_a_connection_s_move_reads_tables_again_that_were_read_again_twice(*, is_reset: bool) -> None:
    world = connected_world()
    world.run(LEAD_TO_B)
    moved = undo(world)
    discovered(world)
    if is_reset:
        world.run("PAUSE SOURCE pg", FORGET)
    else:
        world.run("ALTER CONNECTION c SET (hostname = 'd', database.name = 'shop3')")
        second = undo(world)
        discovered(world, reads=False)
        first = source(world).snapshot
        world.run(second)
        assert source(world).snapshot not in (first, world.snapshot.epoch)
    world.run(moved)
    assert source(world).snapshot == world.snapshot.epoch


def test_an_option_can_be_undone_after_the_undo_of_a_connection_s_move() -> None:
    world = connected_world()
    world.run(LEAD_TO_B)
    moved = undo(world)
    discovered(world)
    world.run("ALTER SOURCE pg UNSAFE SET (auto.schema.change = 'true')")
    option = undo(world)
    world.run(moved)
    before = source(world).snapshot
    world.run(option)
    assert source(world).snapshot == before
    assert "auto.schema.change" not in dict(source(world).options)


@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("is_undone", [False, True])
def test_a_slot_is_created_after_a_reset_but_not_after_its_undo(
    tmp_path: Path, *, is_undone: bool, has_read: bool
) -> None:
    """The position that UNDO restores lies in the log of the slot that was there: a new slot would skip changes."""
    world = reset_world()
    world.log_version += has_read
    if is_undone:
        world.run(undo(world))
    (state,) = world.snapshot.states(ingest_fragment(source(world).id)).values()
    assert (state.epoch == source(world).snapshot) is (has_read or not is_undone)
    assert is_new(world, tmp_path) is not is_undone
