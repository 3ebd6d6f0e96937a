"""UNDO of a move to another place, after the source has moved on, or where the brokers do not say which they are."""

from __future__ import annotations

from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, create_source, refused
from tests.plan.statements.move.test_undo import undo


def nameless_world() -> CannedWorld:
    """A source ``s`` whose topic ``old`` exists in two clusters that report neither their ids nor those of topics."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("old", (10, 200), (0, 300), at=ELSEWHERE)
    world.topics = {
        place: tuple(type(s)(split=s.split, start=s.start, end=s.end) for s in splits)
        for place, splits in world.topics.items()
    }
    world.run(create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.read_on("s", old_0=40, old_1=45)
    return world


MOVE = f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{ELSEWHERE}')"


def test_nothing_is_said_to_be_known_of_clusters_without_ids() -> None:
    world = nameless_world()
    moved = world.run(MOVE)
    world.read_on("s", old_0=48, old_1=50)
    undone = world.run(undo(world))
    for plan in (moved, undone):
        assert plan.preview is not None
        assert {row.verdict for row in plan.preview.splits} == {"UNKNOWN (the brokers report no cluster id)"}
    assert undone.preview is not None
    assert undone.preview.notices == (
        "if the source has read another cluster since, its positions are those of that cluster; to restore the "
        "positions from before operation 3: PAUSE SOURCE s; INJECT SOURCE OFFSETS s VALUES "
        "('old:0' = 40, 'old:1' = 45); RESUME SOURCE s",
    )
    assert ("NOTICE", undone.preview.notices[0]) in [(row.change, row.detail) for row in undone.changes]
    # What cannot lead elsewhere is as known as before.
    world.put_topic("more", (0, 5))
    for change in ("source_rate_limit = 5", "topic = 'old,more'"):
        unmoved = world.plan(f"ALTER SOURCE s UNSAFE SET ({change})").preview
        assert unmoved is not None
        assert {row.verdict for row in unmoved.splits if row.split.startswith("old")} == {"NONE"}


def test_positions_that_the_undo_itself_restores_are_known() -> None:
    world = nameless_world()
    world.run("PAUSE SOURCE s", MOVE, "INJECT SOURCE OFFSETS s VALUES ('0' = 100, '1' = 200)")
    plan = world.run(undo(world))
    assert plan.preview is not None
    assert "UNKNOWN" not in "".join(row.verdict for row in plan.preview.splits)
    assert world.states("s") == {"old:0": 40, "old:1": 45}


def test_later_positions_of_the_other_place_are_undone_first() -> None:
    world = nameless_world()
    world.run("PAUSE SOURCE s", MOVE)
    moved = undo(world)
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 100, '1' = 200)")
    injected = undo(world)
    error = refused(world, moved)
    assert "old:0 at 100 (AHEAD" in error.message
    assert error.hint == f"{injected}; then {moved}"
    world.run(injected, moved)
    assert world.states("s") == {"old:0": 40, "old:1": 45}


def test_a_topic_is_given_back_after_its_connection() -> None:
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("new", (0, 50))
    world.put_topic("new", (0, 60), at=ELSEWHERE)
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
    )
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = undo(world)
    world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    altered = undo(world)
    error = refused(world, moved)
    assert "old:0 at 10 (GONE)" in error.message
    assert error.hint == f"{altered}; then {moved}"
    world.run(altered, moved)
    assert world.named("s") == ("old",)


def test_an_operation_that_cannot_be_undone_is_not_suggested() -> None:
    world = CannedWorld()
    world.put_topic("old", (10, 50))
    world.put_topic("new", (0, 50))
    world.run(create_source("s", "old"), "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = undo(world)
    world.put_topic("old", (20, 60))
    world.moved["old:0"] = 10
    assert "INJECT SOURCE OFFSETS s" in (refused(world, moved).hint or "")
