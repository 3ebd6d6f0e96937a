"""UNDO and blocks where the tables of a captured database are read again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import Upstream
from rw_sql.connectors.changes import CaptureError, ChangeCount
from rw_sql.errors import UPSTREAM_UNREACHABLE
from rw_sql.metastore.records import DISCOVERY, Operation
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.offset_ranges import ReadIncarnation
from rw_sql.model.options import visible
from rw_sql.plan.statements.common import take_up_new_topics
from rw_sql.runtime.control import upstreams
from rw_sql.runtime.ingest.capture import is_new_upstream
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan import canned_inspector
from tests.plan.canned import refused
from tests.plan.canned_inspector import CannedUpstreams, positions_in
from tests.plan.statements.move.test_block import commit, planned
from tests.plan.statements.move.test_undo import undo
from tests.plan.statements.table.test_cdc_tables import SLOT, SOURCE, TABLE, cdc_world, ingest, source

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


def test_a_move_and_its_undo_name_the_slot_that_they_leave_and_what_drops_it() -> None:
    world = cdc_world(TABLE)
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.slot = replace(SLOT, retained_bytes=4096)
    plan = world.run("ALTER SOURCE pg UNSAFE SET (slot.name = 'rw2')")
    left = (
        'slot "rw" stays on the server db, and the server keeps its log for the slot (now 4096 bytes), so that this '
        "operation can be undone. When neither an UNDO nor another program needs the slot, run on that server: SELECT "
        "pg_drop_replication_slot('rw')"
    )
    assert left in [row.detail for row in plan.changes if row.change == "NOTICE"]
    world.slot = replace(SLOT, name="rw2", retained_bytes=4096)
    back = world.plan(undo(world))
    assert left.replace('"rw"', '"rw2"').replace("'rw'", "'rw2'") in notices_of(back)
    # Nothing is told of a slot that does not exist, or that another source reads.
    world.slot = replace(SLOT, name="rw3")
    assert "stays on the server" not in " ".join(notices_of(world.plan(undo(world))))
    world.slot = replace(SLOT, name="rw2")
    other = SOURCE.replace("SOURCE pg", "SOURCE other").replace("slot.name = 'rw'", "slot.name = 'rw2'")
    world.run(other)
    assert "stays on the server" not in " ".join(notices_of(world.plan(undo(world, 1))))


@pytest.mark.parametrize(("cluster", "is_left"), [("1/1", False), ("1/2", True), (None, False)])
def test_a_slot_is_left_with_its_server_and_not_with_another_address(
    monkeypatch: pytest.MonkeyPatch, cluster: str | None, is_left: bool
) -> None:
    world = cdc_world(TABLE)
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    look = CannedUpstreams.look

    def elsewhere(self: CannedUpstreams, connector: str, options: Any, *more: Any) -> Upstream:
        seen = look(self, connector, options, *more)
        return replace(seen, cluster=cluster) if visible(options)["hostname"] == "b" else seen

    monkeypatch.setattr(CannedUpstreams, "look", elsewhere)
    plan = world.plan("ALTER SOURCE pg UNSAFE SET (hostname = 'b')")
    assert ("stays on the server db" in " ".join(notices_of(plan))) == is_left


def test_a_connection_that_leads_elsewhere_names_the_slots_that_it_leaves() -> None:
    world = connected_world()
    plan = world.plan("ALTER CONNECTION c SET (hostname = 'b')")
    assert "stays on the server a" in " ".join(notices_of(plan))


def notices_of(plan: Any) -> tuple[str, ...]:
    assert plan.preview is not None
    return tuple(plan.preview.notices)


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


def counted(world: CannedWorld) -> list[tuple[str | None, int, int]]:
    """The ranges of positions whose transactions were counted, each with the slot in which they were counted."""
    return [
        (visible(given["options"]).get("slot.name"), given["start"], given["end"])
        for given in world.asked_of(CannedUpstreams.count_changes)
    ]


def notes(world: CannedWorld, statement: str) -> list[str]:
    """The notices of a preview about skipped and repeated transactions. The calls so far are forgotten."""
    world.asked.clear()
    plan = world.plan(statement)
    assert plan.preview is not None
    return [notice for notice in plan.preview.notices if "transaction" in notice]


def read_world() -> CannedWorld:
    """A paused source that has read its slot from 0/4000 up to 0/4800. The server's log ends at 0/5000."""
    world = cdc_world(TABLE)
    world.changes = ChangeCount(transactions=3, changes=40, first_end=0x4900)
    read_to(world, 0x4800)
    world.run("PAUSE SOURCE pg", "ALTER SYSTEM SET enable_unsafe_ops = true")
    return world


def read_to(world: CannedWorld, end: int, *others: tuple[int, int]) -> None:
    """The source has read from 0/4000 up to the position ``end``, and then the other ranges."""
    spans = ((0x4000, end), *others)
    world.moved["shop"] = spans[-1][1]
    world.read.add("shop")
    world.lives["shop"] = (ReadIncarnation(spans=spans, reached=spans[-1][1]),)


def test_transactions_that_an_earlier_move_skips_are_counted_with_those_of_the_next_move() -> None:
    world = read_world()
    world.run("INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4C00')")
    assert notes(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4A00')") == [
        "shop: skips 3 transactions with 40 changes"
    ]
    assert counted(world) == [("rw", 0x4800, 0x4A00)]
    notes(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4E00')")
    assert counted(world) == [("rw", 0x4800, 0x4E00)]
    assert notes(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4800')") == []
    assert notes(world, "ALTER SOURCE pg UNSAFE SET (auto.schema.change = 'true')") != []
    assert counted(world) == [("rw", 0x4800, 0x4C00)]


def test_transactions_are_counted_where_they_were_read_and_where_they_were_not() -> None:
    world = read_world()
    read_to(world, 0x4800, (0x4A00, 0x4C00))
    world.changes = ChangeCount(transactions=1, changes=2)
    assert notes(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4600')") == [
        "shop: repeats 2 transactions with 4 changes"
    ]
    assert counted(world) == [("rw", 0x4600, 0x4800), ("rw", 0x4A00, 0x4C00)]


def test_transactions_that_an_undo_repeats_are_counted_in_the_slot_that_has_them() -> None:
    world = read_world()
    commit(world, "ALTER SOURCE pg UNSAFE SET (slot.name = 'copy')", "SKIP RECORD AT 'shop' 18432 ON SOURCE pg")
    read_to(world, 0x4800, (0x4900, 0x4C00))
    assert notes(world, undo(world)) == ["shop: repeats 3 transactions with 40 changes"]
    assert counted(world) == [("rw", 0x4900, 0x4C00)]


def test_transactions_that_cannot_be_counted_everywhere_are_not_named() -> None:
    world = read_world()
    world.changes = None
    assert notes(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4A00')") == []


def test_a_move_of_a_source_that_has_lost_its_slot_is_refused_with_the_statement_that_reads_the_tables_again() -> None:
    world = read_world()
    world.slot = None
    for statement in (
        "INJECT SOURCE OFFSETS pg TO EARLIEST",
        "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4600')",
        "SKIP RECORD AT 'shop' 18432 ON SOURCE pg",
    ):
        error = refused(world, statement)
        assert (error.code, error.hint) == ("RW211", f"{FORGET} creates a slot and reads the tables again")
        assert error.message.startswith('replication slot "rw" does not exist')
    world.read.clear()
    world.plan("INJECT SOURCE OFFSETS pg TO LATEST")


def test_an_undo_that_leads_back_to_a_slot_that_was_dropped_is_refused() -> None:
    world = read_world()
    world.run("ALTER SOURCE pg UNSAFE SET (slot.name = 'copy')")
    world.slot = None
    error = refused(world, undo(world))
    assert error.code == "RW330"
    assert error.message.endswith('shop at 0/4800 (slot "rw" does not exist)')
    assert error.hint == (
        f"PAUSE SOURCE pg; ALTER SOURCE pg UNSAFE SET (slot.name = 'rw'); {FORGET}; RESUME SOURCE pg: creates the slot "
        "and reads the tables again"
    )


def test_an_undo_of_an_option_does_not_need_a_slot_that_was_missing_before() -> None:
    world = read_world()
    world.run("ALTER SOURCE pg UNSAFE SET (auto.schema.change = 'true')")
    world.slot = None
    assert world.plan(undo(world)).preview is not None


def test_a_server_that_does_not_respond_has_not_lost_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def slot_details(self, _options: object) -> None:
            raise CaptureError(UPSTREAM_UNREACHABLE, "too many connections", is_temporary=True)

    monkeypatch.setattr(upstreams, "change_connector", lambda _: Silent())
    port = upstreams.Upstreams(cast("Any", lambda _: {}), {}, lambda _: False)
    assert not port.lacks_slot("postgres-cdc", ())


def test_a_block_says_that_the_source_stalls_at_another_slot_unless_the_tables_are_read_again() -> None:
    world = read_world()
    world.slot = None
    statement = "ALTER SOURCE pg UNSAFE SET (slot.name = 'other')"
    said = planned(world, statement, "RESUME SOURCE pg").preview
    assert said is not None
    assert any('slot "other" does not exist there' in notice for notice in said.notices)
    said = planned(world, statement, FORGET, "RESUME SOURCE pg").preview
    assert said is not None
    assert AGAIN in said.notices
    assert not any("does not exist" in notice for notice in said.notices)
