"""The plan of an INJECT that is confirmed later: valid only while the upstream still has what its preview showed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.plan.statements.move.shown_inject import is_inject_current
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world

if TYPE_CHECKING:
    from collections.abc import Callable


def recreate(world: CannedWorld) -> None:
    world.put_topic("old", (10, 50), (0, 50), life="second")


def move_to_another_cluster(world: CannedWorld) -> None:
    world.put_topic("old", (10, 50), (0, 50), cluster="another")


def lose(world: CannedWorld) -> None:
    world.put_topic("old", (10, 44), (0, 50))


def expire(world: CannedWorld) -> None:
    world.put_topic("old", (46, 60), (0, 50))


def delete(world: CannedWorld) -> None:
    del world.topics[HERE, "old"]


def fall_silent(world: CannedWorld) -> None:
    world.silent.add(HERE)


def cut(world: CannedWorld) -> None:
    elect(world, 2)
    world.cuts["old:0"] = 35


def elect(world: CannedWorld, term: int) -> None:
    world.topics[HERE, "old"] = tuple(replace(split, term=term) for split in world.topics[HERE, "old"])


@pytest.mark.parametrize(
    "change", [recreate, move_to_another_cluster, lose, expire, delete, fall_silent, cut], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(
    "target", ["VALUES ('0' = 45)", "TO SHIFT 5 FOR SPLITS ('0')", "TO TIMESTAMP '2026-01-31 08:00:00Z'"]
)
def test_a_plan_is_stale_once_the_upstream_lacks_what_its_preview_showed(
    target: str, change: Callable[[CannedWorld], None]
) -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    elect(world, 1)
    world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 40, '1' = 50)")
    world.times = {"old:0": 45, "old:1": 50}
    shown = world.plan(f"INJECT SOURCE OFFSETS s {target}")
    assert is_inject_current(shown, world.snapshot, world.inspector)
    change(world)
    assert not is_inject_current(shown, world.snapshot, world.inspector)


def test_a_plan_outlives_new_records_and_new_partitions() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    plans = [
        world.plan(f"INJECT SOURCE OFFSETS s {target}")
        for target in ("TO LATEST", "TO EARLIEST", "VALUES ('0' = 20)", "VALUES ('1' = NULL)")
    ]
    world.put_topic("old", (10, 90), (0, 70), (0, 3))
    assert [is_inject_current(shown, world.snapshot, world.inspector) for shown in plans] == [True] * 4
    # Retention: only the records from 20 on are left.
    world.put_topic("old", (20, 90), (0, 70), (0, 3))
    assert [is_inject_current(shown, world.snapshot, world.inspector) for shown in plans] == [True, False, True, True]


def test_a_topic_that_was_made_again_is_another_one_although_the_position_has_no_identity() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 50))
    world.topics[HERE, "t"] = tuple(replace(split, incarnation=None) for split in world.topics[HERE, "t"])
    world.run(create_source("s", "t", "paused = 'true'"))
    world.put_topic("t", (0, 50))
    shown = world.plan("INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    assert is_inject_current(shown, world.snapshot, world.inspector)
    world.put_topic("t", (0, 50), life="second")
    assert not is_inject_current(shown, world.snapshot, world.inspector)


def test_each_reader_of_a_source_is_compared_with_its_own_positions() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 50))
    world.run(create_source("s", "t", "shared = 'false'"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s", "CREATE MATERIALIZED VIEW w AS SELECT id FROM s")
    fragments = [reader for reader in world.snapshot.stored if reader.startswith("mv-")]
    world.moved = {f"{fragments[0]}/t:0": 10, f"{fragments[1]}/t:0": 30}
    world.run("PAUSE SOURCE s")
    shown = world.plan("INJECT SOURCE OFFSETS s TO SHIFT 5")
    assert is_inject_current(shown, world.snapshot, world.inspector)
    world.put_topic("t", (20, 60))
    assert not is_inject_current(shown, world.snapshot, world.inspector)
    world.put_topic("t", (15, 60))
    assert is_inject_current(shown, world.snapshot, world.inspector)


def test_what_was_not_validated_needs_no_answer_later() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    world.silent.add(HERE)
    shown = world.plan("INJECT SOURCE OFFSETS s VALUES ('0' = 99) WITH (validate = false)")
    assert is_inject_current(shown, world.snapshot, world.inspector)
    # Now the upstream answers, and it does not have this offset.
    world.silent.clear()
    assert not is_inject_current(shown, world.snapshot, world.inspector)
