"""A preview counts by the offsets in the log, not by the positions that statements set in between."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.offset_ranges import ReadIncarnation, covered, uncovered, with_read, with_span
from rw_sql.plan.effects import verdicts
from rw_sql.plan.ports.positions import Positions
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world


def paused_world() -> CannedWorld:
    """``s`` on ``old``: partition 0 has [10, 50) and was read up to 40, partition 1 has [0, 50) and was read
    completely."""
    world = moved_world()
    world.run("PAUSE SOURCE s")
    return world


def moved_world_read_to_its_end() -> CannedWorld:
    world = moved_world()
    world.read_on("s", old_0=50)
    world.run("PAUSE SOURCE s")
    return world


def verdict(world: CannedWorld, target: str, split: str = "old:0") -> str:
    preview = world.plan(f"INJECT SOURCE OFFSETS s {target}").preview
    assert preview is not None
    return {row.split: row.verdict for row in preview.splits}[split]


@pytest.mark.parametrize(
    ("offset", "said"), [(10, "DUPLICATES 30"), (39, "DUPLICATES 1"), (40, "NONE"), (41, "GAP 1"), (50, "GAP 10")]
)
def test_a_move_from_where_reading_stopped(offset: int, said: str) -> None:
    assert verdict(paused_world(), f"VALUES ('0' = {offset})") == said


def test_moves_without_a_read_in_between_count_from_the_newest_read() -> None:
    world = paused_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 10)")
    assert verdict(world, "VALUES ('0' = 40)") == "NONE"
    assert verdict(world, "VALUES ('0' = 45)") == "GAP 5"
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 50)")
    assert verdict(world, "VALUES ('0' = 45)") == "GAP 5"
    assert verdict(world, "VALUES ('0' = 30)") == "DUPLICATES 10"
    # The present position: the records that are unread since the previous move still have the same effect.
    assert verdict(world, "VALUES ('0' = 50)") == "GAP 10"


def test_what_an_operation_before_will_repeat_is_shown_again() -> None:
    world = paused_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    assert verdict(world, "VALUES ('1' = 10)", "old:0") == "DUPLICATES 20"
    plan = world.plan("INJECT SOURCE OFFSETS s VALUES ('1' = 10) ALLOW DUPLICATES")
    assert plan.unallowed == ()
    assert verdict(moved_world_read_to_its_end(), "VALUES ('1' = 10)", "old:0") == "NONE"


def test_a_gap_that_is_read_later_is_no_duplicate() -> None:
    world = paused_world()
    world.put_topic("old", (10, 90), (0, 50))
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 60)")
    world.read_on("s", old_0=70)
    assert verdict(world, "VALUES ('0' = 40)") == "DUPLICATES 10"
    assert verdict(world, "VALUES ('0' = 10)") == "DUPLICATES 40"
    assert verdict(world, "VALUES ('0' = 75)") == "GAP 5"


def test_a_gap_ahead_of_duplicates_says_both() -> None:
    world = paused_world()
    world.put_topic("old", (10, 90), (0, 50))
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 60)")
    world.read_on("s", old_0=70)
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 40)")
    world.read_on("s", old_0=45)
    assert verdict(world, "VALUES ('0' = 50)") == "GAP 5, DUPLICATES 10"


def test_a_topic_that_is_come_back_to_is_counted() -> None:
    world = moved_world()
    world.run("ALTER SOURCE s UNSAFE SET (topic = 'new')", "RESET SOURCE SPLITS s")
    world.read_on("s", new_0=5)
    shown = world.explained("ALTER SOURCE s UNSAFE SET (topic = 'old')")
    assert "DUPLICATES 30" in shown
    assert "GAP 5 (left unread)" not in shown


@pytest.mark.parametrize(("why", "shown"), [("compacted", "compacted"), ("transactional", "transactional")])
def test_offsets_that_are_no_count_of_records_are_upper_bounds(why: str, shown: str) -> None:
    world = paused_world()
    world.sparse["old"] = why
    assert verdict(world, "VALUES ('0' = 20)") == f"DUPLICATES at most 20 ({shown})"
    assert verdict(world, "VALUES ('0' = 50)") == f"GAP at most 10 ({shown})"
    assert verdict(world, "VALUES ('0' = 40)") == "NONE"
    assert "in all: DUPLICATES at most 20, GAP 0" in world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")


@pytest.mark.parametrize(
    ("offset", "complete", "incomplete"),
    [
        (20, "DUPLICATES 80", "DUPLICATES at most 180 (some of the log's commits were removed)"),
        (60, "DUPLICATES 50", "DUPLICATES at most 140 (some of the log's commits were removed)"),
        (0, "DUPLICATES 90", "DUPLICATES at most 200 (some of the log's commits were removed)"),
        (160, "DUPLICATES 40", "DUPLICATES 40"),
        (200, "NONE", "NONE"),
        (210, "GAP 10", "GAP at most 10 (some of the log's commits were removed)"),
    ],
)
def test_offsets_that_removed_commits_may_have_read_count_as_read(offset: int, complete: str, incomplete: str) -> None:
    life = ReadIncarnation(spans=((10, 50), (150, 200)), reached=200)
    upstream = Upstream(splits={"t:0": UpstreamSplit(split="t:0", start=0, end=300)})
    for is_complete, said in ((True, complete), (False, incomplete)):
        positions = Positions(
            states={"t:0": SplitState(split="t:0", offset=200)},
            read_splits=frozenset({"t:0"}),
            lives={"t:0": (life,)},
            is_complete=is_complete,
        )
        moved = SplitState(split="t:0", offset=offset)
        assert verdicts.verdict(connector("kafka"), "t:0", moved, upstream, positions, {"t"}).text == said


def known_as(world: CannedWorld, life: str | None) -> None:
    """The upstream reports this incarnation of the topic ``t``."""
    world.topics[HERE, "t"] = tuple(replace(split, incarnation=life) for split in world.topics[HERE, "t"])


@pytest.mark.parametrize(("before", "after"), [("T", None), (None, "T")])
@pytest.mark.parametrize("mover", ["RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", "VALUES ('0' = NULL)"])
def test_readings_from_before_the_identity_became_known_or_unknown_count(
    before: str | None, after: str | None, mover: str
) -> None:
    """Such as a RabbitMQ stream whose first chunk expired, or brokers that learned to report topic ids."""
    world = CannedWorld()
    world.put_topic("t", (0, 1000), cluster="c")
    known_as(world, before)
    world.run(create_source("s", "t"))
    world.read_on("s", t_0=1000)
    world.put_topic("t", (200, 1000), cluster="c")
    known_as(world, after)
    world.run("PAUSE SOURCE s", mover if mover.startswith("RESET") else f"INJECT SOURCE OFFSETS s {mover}")
    assert verdict(world, "VALUES ('0' = 200)", "t:0") == "DUPLICATES 800"
    world.read_on("s", t_0=500)
    assert verdict(world, "VALUES ('0' = 400)", "t:0") == "DUPLICATES 600"
    assert verdict(world, "VALUES ('0' = 1000)", "t:0") == "NONE"


def test_counts_are_limits_where_readings_may_be_of_another_incarnation() -> None:
    lives: tuple[ReadIncarnation, ...] = ()
    for incarnation, start, end in (("A", 0, 90), (None, 90, 120), ("B", 0, 10)):
        lives = with_read(lives, start, end, cluster="c", incarnation=incarnation)
    upstream = Upstream(splits={"t:0": UpstreamSplit(split="t:0", start=0, end=300, cluster="c", incarnation="B")})
    told = "the upstream did not always report the split's identity"
    cases = [
        (0, f"DUPLICATES at most 40 ({told})"),
        (10, f"DUPLICATES at most 30 ({told})"),
        (50, f"GAP at most 40, DUPLICATES at most 30 ({told})"),
        (130, f"GAP at most 120 ({told})"),
    ]
    positions = Positions(
        states={"t:0": SplitState(split="t:0", offset=10, cluster="c", incarnation="B")},
        read_splits=frozenset({"t:0"}),
        lives={"t:0": lives},
    )
    for offset, said in cases:
        moved = SplitState(split="t:0", offset=offset, cluster="c", incarnation="B")
        assert verdicts.verdict(connector("kafka"), "t:0", moved, upstream, positions, {"t"}).text == said


def test_an_upstream_without_identity_is_the_one_that_the_position_belongs_to() -> None:
    lives = (ReadIncarnation(spans=((0, 90),), reached=90, cluster="c", incarnation="A"),)
    position = SplitState(split="t:0", offset=0, cluster="c", incarnation="B")
    upstream = Upstream(splits={"t:0": UpstreamSplit(split="t:0", start=0, end=300, cluster="c")})
    positions = Positions(states={"t:0": position}, read_splits=frozenset({"t:0"}), lives={"t:0": lives})
    moved = replace(position, offset=50)
    assert verdicts.verdict(connector("kafka"), "t:0", moved, upstream, positions, {"t"}).text == "GAP 50"


def test_another_incarnation_of_a_split_was_never_read() -> None:
    lives = (ReadIncarnation(spans=((0, 90),), reached=90, cluster="c", incarnation="A"),)
    position = SplitState(split="t:0", offset=60, cluster="c", incarnation="B")
    upstream = Upstream(splits={"t:0": UpstreamSplit(split="t:0", start=0, end=60, cluster="c", incarnation="B")})
    positions = Positions(states={"t:0": position}, read_splits=frozenset({"t:0"}), lives={"t:0": lives})
    moved = replace(position, offset=0)
    assert verdicts.verdict(connector("kafka"), "t:0", moved, upstream, positions, {"t"}).text == "NONE"


def test_views_and_sinks_that_take_rows_twice_are_named() -> None:
    world = paused_world()
    world.put_topic("out", (0, 0))
    world.run(
        "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 'out', type = 'append-only', "
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    again = world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    assert "rows that are read again will be sent again by k" in again
    assert "a second time" not in world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 50)")
    shown = world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    assert "repeated rows will be duplicated in v" in shown
    view = world.snapshot.find("materialized_view", "v")
    assert isinstance(view, MaterializedViewRecord)
    world.watermarks = {view.id: 1_700_000_000_000}
    late = "LATE: rows before 2023-11-14 22:13:20.000+00:00 will be dropped by v"
    assert late in world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    assert late not in world.explained("INJECT SOURCE OFFSETS s VALUES ('0' = 50)")


@pytest.mark.parametrize(
    ("target", "unallowed"),
    [
        ("VALUES ('0' = 20)", ("DUPLICATES",)),
        ("VALUES ('0' = 20) ALLOW DUPLICATES", ()),
        ("VALUES ('0' = 50)", ("GAPS",)),
        ("VALUES ('0' = 50) ALLOW DUPLICATES", ("GAPS",)),
        ("VALUES ('0' = 50, '1' = 0)", ("GAPS", "DUPLICATES")),
        ("VALUES ('0' = 50, '1' = 0) ALLOW GAPS, DUPLICATES", ()),
        ("VALUES ('0' = 40)", ()),
    ],
)
def test_what_allow_must_name(target: str, unallowed: tuple[str, ...]) -> None:
    assert paused_world().plan(f"INJECT SOURCE OFFSETS s {target}").unallowed == unallowed


@pytest.mark.parametrize(
    ("text", "unallowed"),
    [
        ("ALTER SOURCE s UNSAFE SET (topic = 'new')", ("GAPS",)),
        ("ALTER SOURCE s UNSAFE SET (topic = 'new') ALLOW DUPLICATES", ("GAPS",)),
        ("ALTER SOURCE s UNSAFE SET (topic = 'new') ALLOW GAPS", ()),
        ("ALTER SOURCE s UNSAFE SET (group.id.prefix = 'mine')", ()),
        ("RESET SOURCE SPLITS s", ()),
        ("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", ("DUPLICATES",)),
        ("RESET SOURCE SPLITS s FOR SPLITS ('0') ALLOW DUPLICATES WITH (FORGET_OFFSETS = true)", ()),
    ],
)
def test_what_allow_must_name_of_a_move(text: str, unallowed: tuple[str, ...]) -> None:
    assert paused_world().plan(text).unallowed == unallowed


def test_a_reset_to_the_latest_leaves_out_what_was_not_read() -> None:
    world = moved_world("scan.startup.mode = 'latest'")
    assert world.plan("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)").unallowed == ("GAPS",)


def test_an_undo_names_what_is_read_again() -> None:
    world = paused_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 50)")
    undo = f"UNDO OPERATION {world.operations[0].epoch}"
    assert world.plan(undo).unallowed == ()
    world.put_topic("old", (10, 60), (0, 50))
    world.read_on("s", old_0=60)
    assert world.plan(undo).unallowed == ("DUPLICATES",)
    assert world.plan(f"{undo} ALLOW DUPLICATES").unallowed == ()


def test_a_move_whose_offsets_cannot_be_compared_asks_for_no_word() -> None:
    world = moved_world()
    world.read_on("s", old_0=50)
    plan = world.plan("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert plan.preview is not None
    assert {split.verdict for split in plan.preview.splits if split.new is not None} == {"UNKNOWN (other topic)"}
    assert plan.unallowed == ()


def test_a_source_that_read_nothing_repeats_nothing() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 50))
    world.run(create_source("s", "t", "paused = 'true'"))
    assert verdict(world, "VALUES ('0' = 10)", "t:0") == "GAP 10"
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 10)")
    assert verdict(world, "VALUES ('0' = 5)", "t:0") == "NONE"


spans = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(spans, max_size=12), st.integers(0, 80), st.integers(0, 80))
def test_spans_count_as_sets_of_offsets_do(parts: list[tuple[int, int]], start: int, end: int) -> None:
    held: set[int] = set()
    found: tuple[tuple[int, int], ...] = ()
    for low, high in parts:
        found = with_span(found, low, high)
        held |= set(range(low, high))
    assert {at for low, high in found for at in range(low, high)} == held
    assert all(one[1] < two[0] for one, two in pairwise(found))
    assert covered(found, start, end) == len(held & set(range(start, end)))
    assert covered(found, start) == len({at for at in held if at >= start})
    assert uncovered(found, start, end) == len(set(range(start, end)) - held)
