"""BEGIN UNSAFE … COMMIT: one operation with the combined effect of its statements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.plan.lower import lower
from rw_sql.plan.result.confirmation import question_of, refusal
from rw_sql.plan.result.explain import explain_lines
from rw_sql.plan.result.plan import Plan
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.statements.move.block import lower_inside
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import UnsafeBlock
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, create_source, moved_world
from tests.plan.statements.move.test_undo import seen, statements


def block(*texts: str, reason: str | None = None) -> UnsafeBlock:
    return UnsafeBlock(statements=tuple(map(parse_statement, texts)), reason=reason)


def planned(world: CannedWorld, *texts: str) -> Plan:
    """The plan of a block's COMMIT."""
    return lower(block(*texts), world.snapshot, world.inspector)


def commit(world: CannedWorld, *texts: str) -> Plan:
    """Runs a block."""
    plan = planned(world, *texts)
    if plan.operation is not None:
        world.commit(plan.operation)
    return plan


MOVE = (
    "PAUSE SOURCE s",
    "ALTER SOURCE s UNSAFE SET (topic = 'new')",
    "RESET SOURCE SPLITS s",
    "INJECT SOURCE OFFSETS s VALUES ('0' = 2, '1' = 4)",
    "RESUME SOURCE s",
)


def test_a_whole_move_is_one_operation() -> None:
    world = moved_world()
    world.jobs["ingest-1"] = JobStatus(job="ingest-1", object_id=1, state="STOPPED")
    before = len(world.operations)
    plan = commit(world, *MOVE)
    assert len(world.operations) == before + 1
    assert world.named("s") == ("new",)
    assert world.assigned("s") == ("new:0", "new:1", "new:2")
    assert world.states("s") == {"new:0": 2, "new:1": 4, "new:2": 0}
    assert not world.snapshot.all("pause")
    assert plan.is_unsafe
    assert plan.operation is not None
    assert plan.operation.statement == "BEGIN UNSAFE;\n" + ";\n".join(render(parse_statement(t)) for t in MOVE) + (
        ";\nCOMMIT"
    )
    # One restart of the reader, and no visible pause.
    assert [step.describe() for step in plan.steps if not step.is_catalog] == ["RestartJob ingest-1"]
    world.run(f"UNDO OPERATION {world.operations[0].epoch}")
    assert world.named("s") == ("old",)
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_the_preview_is_from_the_present_position_to_the_next() -> None:
    world = moved_world()
    plan = planned(
        world,
        "PAUSE SOURCE s",
        "INJECT SOURCE OFFSETS s TO EARLIEST",
        "INJECT SOURCE OFFSETS s VALUES ('0' = 35)",
        "RESUME SOURCE s",
    )
    assert plan.preview is not None
    text = render_preview(plan.preview)
    assert "BEGIN UNSAFE … COMMIT, 4 statements of source s" in text
    assert [(split.split, split.old, split.new) for split in plan.preview.splits] == [
        ("old:0", 40, 35),
        ("old:1", 50, 0),
    ]
    assert "in all: DUPLICATES 55" in text


def test_a_block_needs_confirmation_for_its_total_effect_only() -> None:
    world = moved_world()
    again = "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)"
    assert world.plan(again).unallowed == ("DUPLICATES",)
    back = "INJECT SOURCE OFFSETS s VALUES ('0' = 40, '1' = 50)"
    assert planned(world, "PAUSE SOURCE s", again, back, "RESUME SOURCE s").unallowed == ()
    assert planned(world, *MOVE).unallowed == ("GAPS",)
    pause, move, reset, inject, resume = MOVE
    allowed = f"{move} ALLOW GAPS", reset, f"{inject} ALLOW GAPS"
    assert planned(world, pause, *allowed, resume).unallowed == ()


def connected_world(*new: tuple[int, int]) -> CannedWorld:
    """A paused source ``s`` that reads ``old`` over a connection ``c``: its partitions are read to 40 of 50, 50 of 50
    and 0 of 500. ``new`` are the bounds of the topic's partitions in another cluster."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50), (0, 500))
    world.put_topic("old", *new, at=ELSEWHERE)
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    world.read_on("s", old_0=40, old_1=50)
    world.run("PAUSE SOURCE s")
    return world


ALTER_CONNECTION = f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')"


def test_records_that_a_changed_connection_leaves_behind_need_allow() -> None:
    world = connected_world((0, 50), (0, 50))
    plan = planned(world, ALTER_CONNECTION, "RESET SOURCE SPLITS s", "RESUME SOURCE s")
    assert plan.preview is not None
    assert "GAP 500 (left unread)" in render_preview(plan.preview)
    assert plan.unallowed == ("GAPS",)
    allowed = (ALTER_CONNECTION, "RESET SOURCE SPLITS s ALLOW GAPS", "RESUME SOURCE s")
    assert planned(world, *allowed).unallowed == ()
    # Nothing is left behind.
    assert planned(connected_world((0, 50), (0, 50), (0, 500)), *allowed[:1], "RESET SOURCE SPLITS s").unallowed == ()


def test_a_word_counts_for_the_source_of_its_statement_only() -> None:
    world = connected_world((0, 50), (0, 50))
    world.put_topic("other", (0, 50))
    world.run(create_source("t", "other"), "PAUSE SOURCE t")
    other = "INJECT SOURCE OFFSETS t VALUES ('0' = 20) ALLOW GAPS"
    reset = "RESET SOURCE SPLITS s"
    assert planned(world, ALTER_CONNECTION, reset, other).unallowed == ("GAPS",)
    assert planned(world, ALTER_CONNECTION, f"{reset} ALLOW GAPS", other).unallowed == ()


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_skipped_record_needs_no_word_in_a_block(is_shared: bool) -> None:
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.run(create_source("s", "old", f"shared = '{str(is_shared).lower()}'"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    skips = ("PAUSE SOURCE s", "SKIP RECORD AT '0' 10 ON SOURCE s", "SKIP RECORD AT '0' 11 ON SOURCE s")
    plan = planned(world, *skips)
    assert plan.preview is not None
    assert [row.gaps for row in plan.preview.splits][:1] == [2]
    assert plan.unallowed == ()
    beyond = "INJECT SOURCE OFFSETS s VALUES ('0' = 45)"
    assert planned(world, *skips, beyond).unallowed == ("GAPS",)
    assert planned(world, *skips, f"{beyond} ALLOW GAPS").unallowed == ()


def skipping_world(read_to: int, injected: str) -> CannedWorld:
    """A paused source ``s`` that has read the partition ``old:0`` up to an offset, and was then moved elsewhere."""
    world = CannedWorld()
    world.put_topic("old", (0, 50))
    world.run(create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.read_on("s", old_0=read_to)
    world.run("PAUSE SOURCE s", injected)
    return world


@pytest.mark.parametrize(
    ("read_to", "earlier", "at"),
    [
        (10, "SKIP RECORD AT '0' 10 ON SOURCE s", 11),
        (10, "INJECT SOURCE OFFSETS s VALUES ('0' = 5) ALLOW DUPLICATES", 5),
    ],
)
def test_a_skip_in_a_block_needs_no_word_for_what_earlier_operations_left(read_to: int, earlier: str, at: int) -> None:
    world = skipping_world(read_to, earlier)
    skip = f"SKIP RECORD AT '0' {at} ON SOURCE s"
    assert world.plan(skip).unallowed == ()
    assert planned(world, skip, "RESUME SOURCE s").unallowed == ()
    moved = planned(world, skip, "INJECT SOURCE OFFSETS s VALUES ('0' = 45)", "RESUME SOURCE s")
    assert moved.unallowed == ("GAPS",)


def test_a_split_that_stays_assigned_is_not_left_although_another_cluster_lacks_it() -> None:
    """The source stalls on it, and UNDO restores it."""
    world = connected_world((0, 50), (0, 50))
    assert world.plan(ALTER_CONNECTION).unallowed == ()
    plan = planned(world, ALTER_CONNECTION, "RESUME SOURCE s")
    assert plan.preview is not None
    assert "GAP 500 (left unread)" in render_preview(plan.preview)
    assert "so the source stalls until RESET SOURCE SPLITS s" in render_preview(plan.preview)
    assert plan.unallowed == ()


def test_the_hint_of_a_refused_block_names_the_source_and_the_statements_that_take_allow() -> None:
    world = connected_world((0, 50), (0, 50))
    plan = planned(world, ALTER_CONNECTION, "RESET SOURCE SPLITS s", "RESUME SOURCE s")
    hint = refusal(question_of(world.snapshot, plan), plan, was_asked=False).hint
    assert hint is not None
    assert hint.endswith(
        "; a confirmation in advance, such as --yes, needs ALLOW GAPS in a RESET, INJECT or UNSAFE SET of the block on "
        "source s"
    )


def test_what_an_earlier_operation_left_out_needs_no_word_again() -> None:
    world = connected_world((0, 50), (0, 50), (0, 500))
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 45, '1' = 10)")
    plan = planned(world, "ALTER CONNECTION c SET (properties.client.id = 'x')", "RESUME SOURCE s")
    assert plan.unallowed == ()


def test_several_sources_have_a_part_each() -> None:
    world = moved_world()
    world.run(create_source("t", "new"))
    plan = planned(
        world,
        "PAUSE SOURCE s",
        "PAUSE SOURCE t",
        "INJECT SOURCE OFFSETS s VALUES ('0' = 15)",
        "INJECT SOURCE OFFSETS t TO LATEST",
        "RESUME SOURCE t",
    )
    assert plan.preview is not None
    assert [part.title for part in plan.preview.parts] == ["source s", "source t"]
    assert "note: source s is paused" in render_preview(plan.preview)
    assert plan.operation is not None
    assert set(plan.operation.objects) == {"s", "v", "t"}
    assert any("unsafe: needs enable_unsafe_ops" in line for line in explain_lines(plan))


def test_a_statement_that_does_not_fit_what_came_before_refuses_the_whole() -> None:
    world = moved_world()
    with pytest.raises(SqlError) as caught:
        planned(world, "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "RESUME SOURCE s",
                "INJECT SOURCE OFFSETS s TO LATEST")  # fmt: skip
    assert caught.value.code == "RW305"


def test_what_is_not_of_a_block_is_refused() -> None:
    world = moved_world()
    for text in ("DROP SOURCE s", "UNDO OPERATION 2", "FLUSH", create_source("t", "new")):
        with pytest.raises(SqlError) as caught:
            planned(world, text)
        assert caught.value.code == "RW331"


def test_a_block_without_effect_commits_nothing() -> None:
    world = moved_world()
    plan = planned(world, "PAUSE SOURCE s", "RESUME SOURCE s")
    assert plan.operation is None
    assert plan.changes[0].change == "NOTHING"


def outcome(world: CannedWorld, texts: list[str]) -> tuple[Plan | None, tuple[str, str] | None]:
    """A block's plan, or the code and message of its refusal."""
    try:
        return commit(world, *texts), None
    except SqlError as refused:
        return None, (refused.code, refused.message)


inside = statements.filter(lambda text: not text.startswith("UNDO"))


@pytest.mark.long
@settings(max_examples=300)
@given(st.lists(inside, min_size=1, max_size=8), st.integers(0, 3))
def test_a_block_has_the_effect_of_its_statements_one_by_one(texts: list[str], produced: int) -> None:
    def world_of() -> CannedWorld:
        world = CannedWorld()
        world.put_topic("a", (0, 3 + produced), (0, 3))
        world.put_topic("b", (0, 3), (1, 5), life="second")
        world.run(create_source("s", "a"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
        world.moved = {"a:0": 2, "a:1": 3}
        world.read = {"a:0", "a:1"}
        return world

    whole, single = world_of(), world_of()
    began = whole.snapshot
    plan, refused = outcome(whole, texts)
    if plan is None:
        assert whole.snapshot is began
        with pytest.raises(SqlError) as caught:
            single.run(*texts)
        assert (caught.value.code, caught.value.message) == refused
        return
    single.run(*texts)
    assert seen(whole) == seen(single)
    if plan.operation is not None:
        before = seen(world_of())
        whole.run(f"UNDO OPERATION {whole.snapshot.epoch}")
        assert seen(whole) == before


def two_clusters(*topics_elsewhere: str) -> CannedWorld:
    """A paused source ``s`` that reads ``old`` over a connection ``c``. The cluster ELSEWHERE has other topics."""
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    for topic in topics_elsewhere:
        world.put_topic(topic, (0, 7), at=ELSEWHERE)
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    world.read_on("s", old_0=40, old_1=50)
    world.run("PAUSE SOURCE s")
    return world


TO_NEW = "ALTER SOURCE s UNSAFE SET (topic = 'new')"


@pytest.mark.parametrize("texts", [(ALTER_CONNECTION, TO_NEW), (TO_NEW, ALTER_CONNECTION)])
@pytest.mark.parametrize("is_new_here", [False, True])
def test_an_address_and_a_topic_change_together(texts: tuple[str, ...], *, is_new_here: bool) -> None:
    world = two_clusters("new")
    if is_new_here:
        # A topic with the same name in the former cluster: none of its positions may be used.
        world.put_topic("new", (0, 3), (0, 3))
    commit(world, *texts)
    assert world.assigned("s") == ("new:0", "old:0", "old:1")
    source = world.snapshot.find("source", "s")
    assert source is not None
    assert f"cluster {ELSEWHERE}" in world.snapshot.states(ingest_fragment(source.id))["new:0"].state


@pytest.mark.parametrize("texts", [(ALTER_CONNECTION, TO_NEW), (TO_NEW, ALTER_CONNECTION)])
def test_a_block_is_refused_if_its_last_properties_do_not_fit(texts: tuple[str, ...]) -> None:
    world = two_clusters("other")
    with pytest.raises(SqlError) as caught:
        planned(world, *texts)
    assert caught.value.message == 'the upstream of source "s" has no topic "new"'


def test_a_later_statement_without_effect_does_not_replace_the_validation() -> None:
    world = two_clusters("new")
    with pytest.raises(SqlError) as caught:
        planned(world, TO_NEW, f"ALTER CONNECTION c SET (properties.bootstrap.server = '{HERE}')")
    assert caught.value.message == 'the upstream of source "s" has no topic "new"'


def test_the_other_sources_of_a_connection_are_validated() -> None:
    world = two_clusters("new", "other")
    world.put_topic("b", (0, 3))
    source = "CREATE SOURCE t (id INT) WITH (connector = 'kafka', connection = c, topic = 'b') FORMAT PLAIN ENCODE JSON"
    world.run(source)
    with pytest.raises(SqlError) as caught:
        planned(world, ALTER_CONNECTION, TO_NEW)
    assert caught.value.message == 'the upstream of source "t" has no topic "b"'
    commit(world, ALTER_CONNECTION, TO_NEW, "ALTER SOURCE t UNSAFE SET (topic = 'other')")
    assert world.assigned("t") == ("b:0", "other:0")


def test_an_unfinished_block_accepts_what_a_later_statement_can_correct() -> None:
    world = two_clusters("new")
    first, second = parse_statement(ALTER_CONNECTION), parse_statement(TO_NEW)
    typed = lower_inside((), first, world.snapshot, world.inspector, lower)
    assert typed.changes[-1].detail == (
        'COMMIT refuses the block unless a later statement changes the properties again: the upstream of source "s" '
        'has no topic "old"'
    )
    completed = lower_inside((first,), second, world.snapshot, world.inspector, lower)
    assert not [row for row in completed.changes if row.detail.startswith("COMMIT refuses")]


@pytest.mark.parametrize("before", ["RESUME SOURCE s", "RESET SOURCE SPLITS s"])
def test_a_statement_before_the_last_move_assigns_no_splits_of_the_former_server(before: str) -> None:
    world = connected_world((0, 50), (0, 50), (0, 500))
    world.put_topic("new", (7, 50), (7, 50))
    world.put_topic("new", (3, 20), at=ELSEWHERE)
    commit(world, "ALTER SOURCE s UNSAFE SET (topic = 'new')", before, ALTER_CONNECTION)
    assert world.states("s")["new:0"] == 3
    assert "new:1" not in world.assigned("s")


def test_a_reset_before_the_only_change_is_not_validated() -> None:
    world = moved_world()
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'missing') WITH (VALIDATE = false)")
    plan = planned(world, "RESET SOURCE SPLITS s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert plan.operation is not None
