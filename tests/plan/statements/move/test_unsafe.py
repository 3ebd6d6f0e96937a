"""UNSAFE SET, RESET and INJECT in lowering: the commit, the messages, and the unchanged parts."""

from __future__ import annotations

import json

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.plan.ports.positions import CommittedRanges
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, create_source, moved_world, refused


def ingest(world: CannedWorld) -> IngestSpec:
    spec = desired_jobs(world.snapshot)["ingest-1"]
    assert isinstance(spec, IngestSpec)
    return spec


def test_a_paused_source_begins_where_the_move_said_however_long_it_is_paused() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    world.run("PAUSE SOURCE s")
    assert world.answers("ALTER SOURCE s UNSAFE SET (topic = 'new')") == [
        ("ALTERED", "topic = new (was old)"),
        ("NOTICE", "3 new splits: new:0 at 5, new:1 at 9, new:2 at 0"),
        ("NOTICE", "no longer read: old:0, old:1 (RESET SOURCE SPLITS s discards them)"),
    ]
    assert world.assigned("s") == ("new:0", "new:1", "new:2", "old:0", "old:1")
    world.put_topic("new", (0, 25), (3, 29), (0, 20))
    assert world.answers("RESUME SOURCE s") == [("RESUMED", "")]
    assert ingest(world).splits == ("new:0", "new:1", "new:2")
    assert world.states("s") == {"new:0": 5, "new:1": 9, "new:2": 0, "old:0": 40, "old:1": 50}


def test_a_mistyped_move_of_a_paused_source_leaves_no_trace() -> None:
    world = moved_world()
    world.put_topic("third", (0, 7))
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    plan = world.plan("ALTER SOURCE s UNSAFE SET (topic = 'third')")
    assert plan.preview is not None
    assert not [row for row in plan.preview.splits if row.split.startswith("new:")]
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'third')")
    assert world.assigned("s") == ("old:0", "old:1", "third:0")
    assert not [split for split in world.states("s") if split.startswith("new:")]
    # A split that the source has read stays, and so does a position in the topic that is still read.
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'old')")
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    assert world.assigned("s") == ("old:0", "old:1")


def test_a_split_of_before_the_pause_stays_although_an_injection_has_set_its_position() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    world.put_topic("new", (0, 5))
    world.run(create_source("s", "old"), "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 20) ALLOW GAPS")
    plan = world.run("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert plan.preview is not None
    assert [(row.split, row.verdict) for row in plan.preview.splits] == [
        ("new:0", "NONE"),
        ("old:0", "GAP 30 (left unread)"),
        ("old:1", "GAP 50 (left unread)"),
    ]
    assert plan.unallowed == ("GAPS",)
    assert world.states("s") == {"old:0": 20, "old:1": 0, "new:0": 0}
    assert world.assigned("s") == ("new:0", "old:0", "old:1")


def test_what_a_paused_source_reads_after_a_move_is_as_predicted() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = world.snapshot.epoch
    world.put_topic("new", (0, 25), (3, 9), (0, 0))
    world.run("RESUME SOURCE s")
    world.commits.append(
        CommittedRanges(epoch=world.snapshot.epoch, ranges={"new:0": (world.states("s")["new:0"], 25)}, lives={})
    )
    table = world.plan("SHOW SOURCE CONTINUITY s").table
    assert table is not None
    rows = [dict(zip((name for name, _ in table.columns), row, strict=True)) for row in table.rows]
    (row,) = [row for row in rows if (row["operation"], row["split"]) == (moved, "new:0")]
    assert (row["first_after"], row["status"]) == (5, "AS PREDICTED")


def test_a_running_source_takes_up_the_new_topic_in_the_same_commit() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    plan = world.run("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert plan.operation is not None
    assert plan.operation.is_unsafe
    assert plan.operation.objects == ("s", "v")
    assert world.states("s") == {"new:0": 5, "new:1": 9, "new:2": 0, "old:0": 40, "old:1": 50}
    assert ingest(world).splits == ("new:0", "new:1", "new:2")


def test_nobody_takes_up_splits_while_the_upstream_does_not_answer() -> None:
    world = moved_world()
    world.silent.add(ELSEWHERE)
    move = f"ALTER SOURCE s UNSAFE SET (topic = 'new', properties.bootstrap.server = '{ELSEWHERE}')"
    assert refused(world, move).code == "RW401"
    world.run(f"{move} WITH (VALIDATE = false)")
    assert ingest(world).splits == ()
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_setting_what_is_set_already_changes_nothing() -> None:
    world = moved_world()
    plan = world.run("ALTER SOURCE s UNSAFE SET (topic = 'old')")
    assert plan.operation is None
    assert plan.changes[0].change == "NOTHING"


def test_reset_after_a_move_forgets_the_orphans_and_takes_up_the_new_topic() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert world.answers("RESET SOURCE SPLITS s") == [
        ("FORGOTTEN", "old:0"),
        ("FORGOTTEN", "old:1"),
        ("KEPT", "new:0 at 0"),
        ("KEPT", "new:1 at 3"),
        ("KEPT", "new:2 at 0"),
    ]
    assert world.assigned("s") == ("new:0", "new:1", "new:2")
    assert world.states("s") == {"new:0": 0, "new:1": 3, "new:2": 0}


def test_reset_keeps_the_position_of_a_split_that_still_exists() -> None:
    world = moved_world()
    plan = world.run("RESET SOURCE SPLITS s")
    assert [row.change for row in plan.changes] == ["KEPT", "KEPT", "NOTHING"]
    assert plan.operation is None
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_reset_can_forget_the_positions_too() -> None:
    world = moved_world()
    assert world.answers("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)") == [
        ("STARTED", "old:0 at 10"),
        ("STARTED", "old:1 at 0"),
    ]
    assert world.states("s") == {"old:0": 10, "old:1": 0}


def test_reset_of_some_splits_leaves_the_others() -> None:
    world = moved_world()
    world.run("RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (FORGET_OFFSETS = true)")
    assert world.states("s") == {"old:0": 40, "old:1": 0}
    assert world.assigned("s") == ("old:0", "old:1")


def test_reset_of_a_recreated_topic_starts_over() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    world.put_topic("old", (0, 7), (0, 8), life="second")
    assert world.answers("RESET SOURCE SPLITS s") == [("STARTED", "old:0 at 7"), ("STARTED", "old:1 at 8")]


def test_reset_without_rediscovery_leaves_the_splits_unknown() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "RESET SOURCE SPLITS s WITH (REDISCOVER = false)")
    assert world.assigned("s") == ()
    assert world.states("s") == {"old:0": 40, "old:1": 50}
    error = refused(world, "INJECT SOURCE OFFSETS s VALUES ('0' = 1)")
    assert error.code == "RW310"
    assert "RESET SOURCE SPLITS s" in (error.hint or "")
    world.run("RESUME SOURCE s")
    assert ingest(world).splits == ("old:0", "old:1")
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_positions_that_are_forgotten_for_later_need_both_words() -> None:
    """The splits begin at RESUME, before or after the forgotten positions."""
    world = moved_world()
    world.run("PAUSE SOURCE s")
    forget = "RESET SOURCE SPLITS s{} WITH ({}, FORGET_OFFSETS = true)"
    silent = CannedWorld(snapshot=world.snapshot, silent={HERE})
    for given, how in ((world, "REDISCOVER = false"), (silent, "VALIDATE = false")):
        plan = given.plan(forget.format("", how))
        assert plan.preview is not None
        assert {split.verdict for split in plan.preview.splits} == {"UNKNOWN (forgotten)"}
        assert plan.unallowed == ("GAPS", "DUPLICATES")
        assert given.plan(forget.format(" ALLOW GAPS", how)).unallowed == ("DUPLICATES",)
        assert given.plan(forget.format(" ALLOW GAPS, DUPLICATES", how)).unallowed == ()
        assert given.plan("RESET SOURCE SPLITS s WITH (REDISCOVER = false)").unallowed == ()


def test_positions_in_a_topic_that_the_source_has_left_are_forgotten_without_a_word() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    text = "RESET SOURCE SPLITS s FOR SPLITS ('old:0', 'old:1') WITH (REDISCOVER = false, FORGET_OFFSETS = true)"
    assert world.plan(text).unallowed == ()


def test_reset_needs_an_upstream_that_answers_unless_told_otherwise() -> None:
    world = moved_world()
    world.silent.add("127.0.0.1:9092")
    assert refused(world, "RESET SOURCE SPLITS s").code == "RW401"
    world.run("RESET SOURCE SPLITS s WITH (VALIDATE = false, FORGET_OFFSETS = true)")
    assert (world.assigned("s"), world.states("s")) == ((), {})


@pytest.mark.parametrize(
    ("target", "states"),
    [
        ("VALUES ('old:0' = 20)", {"old:0": 20, "old:1": 50}),
        ("VALUES ('0' = 20, '1' = 0)", {"old:0": 20, "old:1": 0}),
        ("VALUES ('0' = '20')", {"old:0": 20, "old:1": 50}),
        ("VALUES ('0' = NULL)", {"old:0": 10, "old:1": 50}),
        ("""VALUES ('0' = '{"offset": 20}')""", {"old:0": 20, "old:1": 50}),
        ("VALUES ('0' = 10, '1' = 50)", {"old:0": 10, "old:1": 50}),
        ("VALUES ('0' = 9, '1' = 51) ALLOW CLAMP", {"old:0": 10, "old:1": 50}),
        ("VALUES ('0' = 20) WITH (CONVENTION = 'last_seen')", {"old:0": 21, "old:1": 50}),
        ("VALUES ('0' = 20) WITH (CONVENTION = 'next')", {"old:0": 20, "old:1": 50}),
        ("TO EARLIEST", {"old:0": 10, "old:1": 0}),
        ("TO LATEST", {"old:0": 50, "old:1": 50}),
        ("TO EARLIEST FOR SPLITS ('1')", {"old:0": 40, "old:1": 0}),
        ("FROM FILE 'map.json'", {"old:0": 20, "old:1": 30}),
    ],
)
def test_inject(target: str, states: dict[str, int]) -> None:
    world = moved_world()
    world.files["map.json"] = json.dumps({"0": 20, "old:1": {"offset": 30}})
    world.run("PAUSE SOURCE s")
    world.run(f"INJECT SOURCE OFFSETS s {target}")
    assert world.states("s") == states


@pytest.mark.parametrize("state", ["RUNNING", "STARTING", "STOPPING"])
def test_inject_waits_for_a_job_that_still_runs(state: str) -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    world.jobs["ingest-1"] = JobStatus(job="ingest-1", object_id=1, state=state)
    error = refused(world, "INJECT SOURCE OFFSETS s TO LATEST")
    assert (error.code, "still runs" in error.message) == ("RW305", True)
    world.jobs["ingest-1"] = JobStatus(job="ingest-1", object_id=1, state="STOPPED")
    world.run("INJECT SOURCE OFFSETS s TO LATEST")


def test_pause_all_is_a_pause_for_inject() -> None:
    world = moved_world()
    assert refused(world, "INJECT SOURCE OFFSETS s TO LATEST").code == "RW305"
    world.run("PAUSE ALL SOURCES", "INJECT SOURCE OFFSETS s TO LATEST")


def test_inject_without_validation_takes_what_the_upstream_cannot_confirm() -> None:
    world = moved_world()
    world.silent.add("127.0.0.1:9092")
    world.run("PAUSE SOURCE s")
    assert refused(world, "INJECT SOURCE OFFSETS s VALUES ('0' = 1000)").code == "RW401"
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 1000) WITH (VALIDATE = false)")
    assert world.states("s")["old:0"] == 1000
    assert refused(world, "INJECT SOURCE OFFSETS s TO LATEST WITH (VALIDATE = false)").code == "RW310"


def test_a_bare_number_is_of_no_topic_where_there_are_two() -> None:
    world = CannedWorld()
    world.put_topic("a", (0, 5))
    world.put_topic("b", (0, 5))
    world.run(create_source("s", "a,b", "paused = 'true'"))
    error = refused(world, "INJECT SOURCE OFFSETS s VALUES ('0' = 1)")
    assert (error.code, error.hint) == ("RW209", "write the topic too: 'a:0'")
    world.run("INJECT SOURCE OFFSETS s VALUES ('b:0' = 1)")
    assert world.states("s") == {"a:0": 0, "b:0": 1}
