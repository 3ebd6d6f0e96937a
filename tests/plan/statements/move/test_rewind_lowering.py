"""REWIND SOURCE: the restored catalog, the preview, and the refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import PointDependent, RewindPoint
from rw_sql.metastore.records import RewindRecord
from rw_sql.plan.ports.rewinds import RewindLook, TableBack
from rw_sql.plan.statements.move.block import require_inside
from rw_sql.syntax import parse_statement
from tests.plan.canned import ELSEWHERE, CannedWorld, create_source, moved_world, refused
from tests.plan.statements.move.test_undo_combined import world_with_connection

STATE = '{{"cluster":"cluster 127.0.0.1:9092","incarnation":"first","offset":{}}}'


def with_point(world: CannedWorld, operation: int, *, lost: str | None = None, reason: str | None = None) -> None:
    """Gives a world a rewind point of an operation, with the source's positions 40 and 50."""
    source = world.snapshot.find("source", "s")
    assert source is not None
    readers = world.snapshot.readers_of(source.id)
    world.points = (
        RewindPoint(
            source_id=source.id,
            operation=operation,
            made_ms=0,
            reason=reason,
            folder="rewind-1/1",
            log_version=7,
            states={"old:0": STATE.format(40), "old:1": STATE.format(50)},
            dependents=tuple(PointDependent(id=r.id, generation=1, version=3, batch=1) for r in readers),
        ),
    )
    world.rewind_look = RewindLook(
        tables=(
            TableBack(object_id=source.id, now=120, then=90),
            *(TableBack(object_id=r.id) for r in readers),
        )
    )


def moved_on(world: CannedWorld) -> int:
    """Runs an injection, after which the reader continues; returns the number of the operation."""
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    operation = world.operations[0].epoch
    world.run("RESUME SOURCE s")
    world.read_on("s", old_0=44, old_1=58)
    return operation


@pytest.mark.parametrize(
    "text",
    [
        "ALTER SOURCE s SET RESOURCE_GROUP TO 'other'",
        "ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP TO 'other'",
        "CREATE MATERIALIZED VIEW w WITH (resource_group = 'other') AS SELECT id FROM v",
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM s",
        "REBUILD MATERIALIZED VIEW v",
        "ALTER MATERIALIZED VIEW v AS SELECT id, id + 1 AS more FROM s",
    ],
)
def test_no_dependent_is_moved_created_or_rebuilt_before_the_rewind_of_its_source_is_carried_out(text: str) -> None:
    """The owner of the source's group replaces the tables meanwhile: another owner must not run the jobs, and a new
    reader would begin before the commit that restores the log, which no stream can read."""
    world = moved_world()
    operation = moved_on(world)
    with_point(world, operation)
    world.run(f"REWIND SOURCE s TO OPERATION {operation}")
    error = refused(world, text)
    assert error.code == "RW309"
    assert f"REWIND SOURCE s TO OPERATION {operation} is complete" in error.message
    assert error.hint is not None
    assert error.hint.endswith("if no process runs them: rw-sql serve")
    world.carried_out = frozenset({world.operations[0].epoch})
    world.run(text)


def refused_rewind(world: CannedWorld, text: str) -> SqlError:
    error = refused(world, text)
    assert error.code == "RW334"
    return error


def test_every_split_goes_back_to_where_it_stood_also_those_that_were_not_moved() -> None:
    world = moved_world()
    operation = moved_on(world)
    with_point(world, operation)
    # The views' watermarks are rewound as well, so that no row will be dropped as late.
    world.watermarks = {record.id: 1_700_000_000_000 for record in world.snapshot.all("materialized_view")}
    plan = world.run(f"REWIND SOURCE s TO OPERATION {operation}")
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    (record,) = world.snapshot.all("rewind")
    assert record == RewindRecord(
        id=record.id,
        name="s",
        source_id=record.source_id,
        operation=operation,
        epoch=world.operations[0].epoch,
    )
    assert plan.is_unsafe
    assert plan.preview is not None
    assert [(row.split, row.old, row.new, row.verdict) for row in plan.preview.splits] == [
        ("old:0", 44, 40, "NONE"),
        ("old:1", 58, 50, "NONE"),
    ]
    assert "the log of s: 30 rows are removed, 90 stay" in plan.preview.notices
    assert not any("LATE" in notice for notice in plan.preview.notices)
    assert any("the number of rows was not counted" in notice for notice in plan.preview.notices)
    assert ("RewindJob", "ingest-1", "log to version 7") in [(s.action, s.subject, s.detail) for s in plan.steps]


def test_definition_and_splits_go_back_over_all_later_operations() -> None:
    world = moved_world()
    operation = moved_on(world)
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'new', group.id.prefix = 'mine')")
    world.run("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    with_point(world, operation)
    plan = world.run(f"REWIND SOURCE s TO OPERATION {operation}")
    assert world.named("s") == ("old",)
    assert world.assigned("s") == ("old:0", "old:1")
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    assert plan.preview is not None
    assert ("topic", "new", "old") in plan.preview.properties


def test_a_second_rewind_takes_the_place_of_the_first() -> None:
    world = moved_world()
    operation = moved_on(world)
    with_point(world, operation)
    world.run(f"REWIND SOURCE s TO OPERATION {operation}")
    first = world.snapshot.all("rewind")[0]
    world.run(f"REWIND SOURCE s TO OPERATION {operation}")
    (second,) = world.snapshot.all("rewind")
    assert (second.id, second.epoch) == (first.id, first.epoch + 1)
    with pytest.raises(SqlError, match=f"REWIND SOURCE s TO OPERATION {second.epoch} reverts it and removes the rows"):
        world.run(f"UNDO OPERATION {second.epoch}")
    world.run("DROP SOURCE s CASCADE")
    assert not world.snapshot.all("rewind")


def test_refused_without_a_point_and_says_why() -> None:
    world = moved_world()
    operation = moved_on(world)
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert "there is no rewind point: rw_sql has not created it yet" in error.message
    with_point(world, operation, reason="materialized view m was stalled")
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert error.message.endswith("there is no rewind point: materialized view m was stalled")
    assert f"UNDO OPERATION {operation} restores definition and positions" in (error.hint or "")


def test_refused_where_the_upstream_has_dropped_the_records() -> None:
    world = moved_world()
    operation = moved_on(world)
    with_point(world, operation)
    world.put_topic("old", (43, 60), (0, 60))
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert "the upstream no longer has the records to continue with: old:0 at 40 (EXPIRED" in error.message


def test_refused_where_a_connection_was_altered_since() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 60))
    world.put_topic("old", (0, 60), at=ELSEWHERE)
    world.run(
        "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '127.0.0.1:9092')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        "PAUSE SOURCE s",
        "INJECT SOURCE OFFSETS s VALUES ('0' = 15) ALLOW GAPS",
    )
    operation = world.operations[0].epoch
    world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    altered = world.operations[0].epoch
    with_point(world, operation)
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert f'operation {altered} (ALTER CONNECTION) altered connection "c"' in error.message
    assert (error.hint or "").startswith(
        f"UNDO OPERATION {altered} restores the connection; then REWIND SOURCE s TO OPERATION"
    )
    assert f"REWIND SOURCE s TO OPERATION {operation}" in (error.hint or "")


def test_only_operations_that_moved_the_source_can_be_gone_back_to() -> None:
    world = moved_world()
    operation = moved_on(world)
    assert "did not move the source" in refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation + 1}").message
    with pytest.raises(SqlError, match="operation 999 does not exist"):
        world.run("REWIND SOURCE s TO OPERATION 999")


def test_in_a_block_it_is_refused() -> None:
    statement = parse_statement("REWIND SOURCE s TO OPERATION 2")
    with pytest.raises(SqlError, match="cannot run inside a BEGIN UNSAFE block"):
        require_inside(statement)


def with_sink(world: CannedWorld) -> int:
    """A sink on the view, and an injection after which the reader reads on; its number."""
    world.put_topic("out", (0, 0))
    world.run(
        "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 'out', type = 'append-only', "
        "force_append_only = 'true', properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON"
    )
    return moved_on(world)


def test_a_sink_that_has_sent_out_rows_needs_a_word() -> None:
    world = moved_world()
    operation = with_sink(world)
    with_point(world, operation)
    sink = world.snapshot.find("sink", "k")
    assert sink is not None
    point = world.points[0]
    known = (*point.dependents, PointDependent(id=sink.id, generation=1, version=2, batch=1))
    world.points = (replace(point, dependents=known),)
    world.rewind_look = RewindLook(tables=(TableBack(object_id=sink.id, has_emitted=True),))
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert 'sink "k" has sent rows since then, which cannot be removed from its target' in error.message
    assert error.hint == f"REWIND SOURCE s TO OPERATION {operation} ALLOW DUPLICATES"
    plan = world.run(error.hint)
    assert plan.preview is not None
    assert any(
        notice.startswith("the rows that sink k has sent since then stay in its target")
        for notice in plan.preview.notices
    )
    after = world.snapshot.find("sink", "k")
    assert after is not None
    # Its batches continue the numbers of the copy, and must not be mistaken for batches that it has already sent.
    assert after.generation == 2


def test_what_was_made_after_the_operation_stands_in_the_way() -> None:
    world = moved_world()
    operation = moved_on(world)
    with_point(world, operation)
    world.run("CREATE MATERIALIZED VIEW late AS SELECT id FROM s")
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert 'materialized view "late" was created after the operation' in error.message
    assert (error.hint or "").startswith(
        "save the definition that SHOW CREATE shows; DROP MATERIALIZED VIEW late; then rewind"
    )


@pytest.mark.parametrize(
    ("changes", "name", "former"),
    [
        (("ALTER SOURCE s RENAME TO t",), "t", "s"),
        (("ALTER SOURCE s RENAME TO t", "ALTER SOURCE t RENAME TO u"), "u", "s"),
        (("CREATE SCHEMA raw", "ALTER SOURCE s SET SCHEMA raw"), "raw.s", "s"),
        ((create_source("other", "new"), "ALTER SOURCE s SWAP WITH other"), "other", "s"),
        (("UNDO OPERATION {renamed}",), "before", "s"),
    ],
    ids=["renamed", "twice", "moved to a schema", "swapped", "given back its former name"],
)
def test_a_source_gets_its_name_back_before_a_rewind(changes: tuple[str, ...], name: str, former: str) -> None:
    world = moved_world()
    world.run("ALTER SOURCE s RENAME TO before", "ALTER SOURCE before RENAME TO s")
    renamed = world.operations[0].epoch
    operation = moved_on(world)
    with_point(world, operation)
    world.run(*(each.format(renamed=renamed) for each in changes))
    error = refused_rewind(world, f"REWIND SOURCE {name} TO OPERATION {operation}")
    assert f'it was called "{former}" at that time' in error.message
    *undos, rewind = (error.hint or "").replace("then ", "").split("; ")
    world.run(*undos, rewind)
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert "FROM s" in view.definition


def test_the_connection_that_it_gives_back_must_be_what_it_was() -> None:
    world = world_with_connection()
    operation = moved_on(world)
    with_point(world, operation)
    world.run(
        "ALTER SOURCE s SET CONNECTION NONE",
        f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')",
    )
    altered = world.operations[0].epoch
    error = refused_rewind(world, f"REWIND SOURCE s TO OPERATION {operation}")
    assert f'operation {altered} (ALTER CONNECTION) altered connection "c"' in error.message
    assert (
        error.hint == f"UNDO OPERATION {altered} restores the connection; then REWIND SOURCE s TO OPERATION {operation}"
    )
    world.run(f"UNDO OPERATION {altered}", f"REWIND SOURCE s TO OPERATION {operation}")
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_each_change_of_the_connection_is_undone_before_a_rewind() -> None:
    world = world_with_connection()
    world.put_topic("old", (10, 90), (0, 90))
    operation = moved_on(world)
    with_point(world, operation)
    rewind = f"REWIND SOURCE s TO OPERATION {operation}"
    for change in (f"properties.bootstrap.server = '{ELSEWHERE}'", "properties.client.id = 'x'"):
        world.run(f"ALTER CONNECTION c SET ({change})")
    second, first = (f"UNDO OPERATION {found.epoch}" for found in world.operations[:2])
    assert refused_rewind(world, rewind).hint == f"{second}; {first} restores the connection; then {rewind}"
    world.run(second)
    assert refused_rewind(world, rewind).hint == f"{first} restores the connection; then {rewind}"
    world.run(first, rewind)
    assert world.states("s") == {"old:0": 40, "old:1": 50}
