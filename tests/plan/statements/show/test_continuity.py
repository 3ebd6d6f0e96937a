"""SHOW SOURCE CONTINUITY: predictions beside the log's commits, without breaks in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.metastore.records import DISCOVERY, Operation
from rw_sql.plan.ports.positions import CommittedRanges
from rw_sql.plan.result.prediction import PredictedSplit
from rw_sql.plan.statements.common import take_up_new_topics
from rw_sql.plan.statements.show.continuity import AS_PREDICTED, Observed, _status
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world

LIFE = ("cluster", "first")


def read(world: CannedWorld, **ranges: tuple[int, int]) -> None:
    """A batch of the run that the newest operation started; ``old_0`` is the split ``old:0``."""
    named = {split.replace("_", ":"): bounds for split, bounds in ranges.items()}
    world.commits.append(CommittedRanges(epoch=world.snapshot.epoch, ranges=named, lives=dict.fromkeys(named, LIFE)))
    for split, (_, end) in named.items():
        world.moved[split] = end


def shown(world: CannedWorld) -> list[tuple[object, ...]]:
    """Kind, split, prediction, duplicates, gaps, last before, first after, status."""
    plan = world.plan("SHOW SOURCE CONTINUITY s")
    assert plan.table is not None
    return [row[2:-1] for row in plan.table.rows]


def read_world() -> CannedWorld:
    """A source that has read old:0 from 10 to 40 and old:1 from 0 to 50, and is paused."""
    world = moved_world()
    read(world, old_0=(10, 25), old_1=(0, 50))
    read(world, old_0=(25, 40), old_1=(50, 50))
    world.run("PAUSE SOURCE s")
    return world


def test_nothing_happened_yet() -> None:
    assert shown(read_world()) == [
        ("READING", "old:0", "NONE", 0, 0, None, None, "UNBROKEN"),
        ("READING", "old:1", "NONE", 0, 0, None, None, "UNBROKEN"),
    ]


def test_an_injection_back_is_pending_until_all_of_it_was_read_again() -> None:
    world = read_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    world.read = {"old:0", "old:1"}
    rows = shown(world)
    assert rows[0] == ("INJECT SOURCE OFFSETS", "old:0", "DUPLICATES 20", None, None, None, None, "PENDING")
    world.run("RESUME SOURCE s")
    read(world, old_0=(20, 30), old_1=(50, 50))
    assert shown(world)[0] == ("INJECT SOURCE OFFSETS", "old:0", "DUPLICATES 20", 10, 0, 39, 20, "PENDING")
    read(world, old_0=(30, 45), old_1=(50, 52))
    rows = shown(world)
    assert rows[0] == ("INJECT SOURCE OFFSETS", "old:0", "DUPLICATES 20", 20, 0, 39, 20, "AS PREDICTED")
    assert rows[1] == ("INJECT SOURCE OFFSETS", "old:1", "NONE", 0, 0, 49, 50, "AS PREDICTED")
    assert [row[-1] for row in rows[2:]] == ["UNBROKEN", "UNBROKEN"]


def test_what_was_left_out_and_what_was_cut_short() -> None:
    world = read_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 45)", "RESUME SOURCE s")
    read(world, old_0=(45, 50))
    assert shown(world)[0] == ("INJECT SOURCE OFFSETS", "old:0", "GAP 5", 0, 5, 39, 45, "AS PREDICTED")
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1' = 0)", "RESUME SOURCE s")
    read(world, old_1=(0, 10))
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO LATEST", "RESUME SOURCE s")
    read(world, old_1=(50, 51))
    rows = {(row[0], row[1], row[2]): row[3:] for row in shown(world)}
    assert rows["INJECT SOURCE OFFSETS", "old:1", "DUPLICATES 50"] == (10, 0, 49, 0, "CUT SHORT")


def test_another_topic_is_shown_by_its_first_record() -> None:
    world = read_world()
    world.run("RESUME SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    read(world, new_0=(0, 5), new_1=(3, 9))
    rows = {row[1]: row for row in shown(world) if row[0] == "UNSAFE SET"}
    assert rows["new:0"] == ("UNSAFE SET", "new:0", "UNKNOWN (other topic)", None, None, None, 0, "AS PREDICTED")
    assert rows["new:1"][-2:] == (3, "AS PREDICTED")
    assert rows["old:0"][-1] == "AS PREDICTED"
    world.commits[-1] = CommittedRanges(epoch=world.snapshot.epoch, ranges={"new:0": (1, 5), "new:1": (3, 9)})
    rows = {row[1]: row for row in shown(world) if row[0] == "UNSAFE SET"}
    assert rows["new:0"][-1] == "DIFFERS"


def test_a_hole_that_no_operation_made_is_reported() -> None:
    world = read_world()
    world.run("RESUME SOURCE s")
    read(world, old_0=(42, 50))
    read(world, old_0=(49, 52))
    rows = {row[1]: row for row in shown(world)}
    assert rows["old:0"] == ("READING", "old:0", "NONE", 1, 2, None, None, "BROKEN")


@pytest.mark.parametrize(("before", "after"), [("T", None), (None, "T")])
def test_readings_from_before_the_identity_became_known_or_unknown_count(before: str | None, after: str | None) -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 1000), cluster="c")
    world.topics[HERE, "t"] = tuple(replace(split, incarnation=before) for split in world.topics[HERE, "t"])
    world.run(create_source("s", "t"))

    def read_as(life: str | None, start: int, end: int) -> None:
        world.read_on("s", t_0=end)
        lives = {"t:0": ("c", life)}
        world.commits.append(CommittedRanges(epoch=world.snapshot.epoch, ranges={"t:0": (start, end)}, lives=lives))

    read_as(before, 0, 1000)
    world.topics[HERE, "t"] = tuple(replace(split, incarnation=after) for split in world.topics[HERE, "t"])
    world.run("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    read_as(after, 0, 500)
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 400)", "RESUME SOURCE s")
    read_as(after, 400, 1010)
    assert [row for row in shown(world) if row[0] != "READING"] == [
        ("RESET SOURCE SPLITS", "t:0", "DUPLICATES 1000", 500, 0, 999, 0, "CUT SHORT"),
        ("INJECT SOURCE OFFSETS", "t:0", "DUPLICATES 600", 600, 0, 499, 400, "AS PREDICTED"),
    ]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (("ALTER SOURCE s RENAME TO t",), "t"),
        (("ALTER SOURCE s RENAME TO t", "ALTER SOURCE t RENAME TO u"), "u"),
        (("CREATE SCHEMA raw", "ALTER SOURCE s SET SCHEMA raw"), "raw.s"),
        ((create_source("other", "new"), "ALTER SOURCE s SWAP WITH other"), "other"),
        (("ALTER SOURCE s RENAME TO t", create_source("s", "new"), "ALTER SOURCE s SWAP WITH t"), "s"),
    ],
    ids=["renamed", "twice", "moved to a schema", "swapped", "swapped back"],
)
def test_a_name_given_later_changes_nothing(changes: tuple[str, ...], name: str) -> None:
    world = read_world()
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 20)", "RESUME SOURCE s")
    (injected,) = [found.epoch for found in world.operations if found.kind == "INJECT SOURCE OFFSETS"]
    read(world, old_0=(20, 45), old_1=(50, 52))
    before = shown(world)
    assert [row[-1] for row in before] == ["AS PREDICTED", "AS PREDICTED", "UNBROKEN", "UNBROKEN"]
    world.run(*changes)
    plan = world.plan(f"SHOW SOURCE CONTINUITY {name}")
    assert plan.table is not None
    assert [row[2:-1] for row in plan.table.rows] == before
    listed = world.plan(f"SHOW UNSAFE OPERATIONS FOR {name}").table
    assert listed is not None
    assert injected in [row[0] for row in listed.rows]


def test_a_move_in_single_statements_is_as_predicted() -> None:
    world = read_world()
    world.run(
        "ALTER SOURCE s UNSAFE SET (topic = 'new')",
        "RESET SOURCE SPLITS s",
        "INJECT SOURCE OFFSETS s VALUES ('new:0' = 2) ALLOW GAPS",
        "RESUME SOURCE s",
    )
    read(world, new_0=(2, 5))
    rows = {row[1]: row for row in shown(world) if row[0] == "INJECT SOURCE OFFSETS"}
    assert rows["new:0"] == ("INJECT SOURCE OFFSETS", "new:0", "GAP 2", None, None, None, 2, "AS PREDICTED")


def test_a_split_that_is_found_again_after_it_was_discarded_is_as_predicted() -> None:
    world = read_world()
    world.put_topic("old", (0, 60))
    world.run("RESET SOURCE SPLITS s", "RESUME SOURCE s")
    before = {row[1]: row for row in shown(world) if row[0] == "RESET SOURCE SPLITS"}
    assert before["old:1"] == ("RESET SOURCE SPLITS", "old:1", "ORPHAN", None, None, None, None, "AS PREDICTED")
    world.put_topic("old", (0, 60), (0, 10))
    (source,) = world.snapshot.all("source")
    changes, _ = take_up_new_topics(world.snapshot, world.inspector, source)
    world.commit(Operation(kind=DISCOVERY, statement="-- discovered", objects=("s",), changes=changes))
    read(world, old_1=(0, 10))
    after = {row[1]: row for row in shown(world) if row[0] == "RESET SOURCE SPLITS"}
    assert after["old:1"] == before["old:1"]


def test_counts_beyond_64_bits_are_equal_to_the_greatest_predicted_count() -> None:
    far = 10**40
    said = PredictedSplit(split="0", old=far, new=0, verdict="DUPLICATES", duplicates=MOST_COUNTED - 1, is_exact=False)
    came = Observed(duplicates=far, gaps=0, last_before=far - 1, first_after=0, is_known=True)
    assert _status(said, came, is_closed=False) == AS_PREDICTED
