"""The plan of an INJECT CHECKPOINT OFFSETS that is confirmed later: its upstreams must still have its positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.plan.statements.checkpoint.shown_rewrite import is_rewrite_current
from tests.checkpoints.made import delta, files, kafka, list_files, make_checkpoint, make_table, plan_batch
from tests.plan.canned import HERE, CannedWorld
from tests.plan.statements.checkpoint.test_lower_checkpoint import BROKERS, file_job, inject, world_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("rest", "is_stale"),
    [
        (f"VALUES ('a:0' = 12) {BROKERS}", True),
        (f"VALUES ('a:0' = 45) {BROKERS}", False),
        (f"TO EARLIEST ALLOW CLAMP {BROKERS}", True),
        # Without brokers, nothing was looked at.
        ("VALUES ('a:0' = 12)", False),
    ],
)
def test_a_plan_is_stale_once_retention_has_removed_what_its_preview_showed(
    rest: str, is_stale: bool, tmp_path: Path
) -> None:
    world, path = world_of(tmp_path)
    shown = world.plan(inject(path, rest))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    world.put_topic("a", (10, 70), (0, 80), (0, 5))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    world.put_topic("a", (20, 70), (0, 80))
    assert is_rewrite_current(shown, world.snapshot, world.inspector) is not is_stale


def test_a_plan_is_stale_once_the_brokers_do_not_answer_or_lack_the_topic(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    shown = world.plan(inject(path, f"VALUES ('a:0' = 12, 'b:0' = 3) {BROKERS}"))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    world.silent.add(HERE)
    assert not is_rewrite_current(shown, world.snapshot, world.inspector)
    world.silent.clear()
    del world.topics[HERE, "b"]
    assert not is_rewrite_current(shown, world.snapshot, world.inspector)


def test_a_plan_is_stale_once_its_job_has_read_on(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    shown = world.plan(inject(path, f"VALUES ('a:0' = 12) {BROKERS}"))
    plan_batch(tmp_path / "c", 2, [kafka(a=[40, 51]), kafka(b=[7])])
    assert not is_rewrite_current(shown, world.snapshot, world.inspector)


def test_a_plan_is_stale_once_the_files_that_it_reads_again_are_gone(tmp_path: Path) -> None:
    world, path = CannedWorld(), file_job(tmp_path)
    shown = world.plan(inject(path, "VALUES ('list' = 1)"))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    (tmp_path / "2.json").unlink()
    assert not is_rewrite_current(shown, world.snapshot, world.inspector)


def test_a_plan_for_no_gap_is_stale_once_it_would_leave_one(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    world.put_topic("a", (10, 50), (0, 50))
    shown = world.plan(inject(path, f"VALUES ('a:0' = 40, 'b:0' = 7) {BROKERS[:-1]}, EXACTLY = true)"))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    world.put_topic("a", (10, 70), (0, 50))
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
    # The job would leave partition 1, which it has read to its end.
    world.put_topic("a", (10, 70), (0, 51))
    assert not is_rewrite_current(shown, world.snapshot, world.inspector)


@pytest.mark.parametrize(
    "rest",
    [
        "VALUES ('a:0' = 12)",
        "VALUES ('a:0' = 12, 'a:1' = 50)",
        "VALUES ('a:0' = NULL, '1/b:0' = 0)",
        "VALUES ('a:0' = 12) EXACTLY",
        "VALUES ('a:0' = 5) ALLOW CLAMP",
        "VALUES ('a:7' = 0)",
        "VALUES ('0/a:7' = 0, 'a:8' = 0)",
        "VALUES ('0/b:0' = 4)",
        "VALUES ('0/b:0' = 4) EXACTLY",
        "VALUES ('0/b:0' = 4, '1/a:1' = 3)",
        "VALUES ('0/b:1' = 4, 'b:1' = 3)",
        "VALUES ('0/new:0' = 1, '1/new:0' = 2)",
        "VALUES ('0/new:0' = 1) EXACTLY",
        "VALUES ('0/new:0' = 1, '0/new:01' = 2) EXACTLY",
        "VALUES ('2/same:1' = 5)",
        "VALUES ('2/same:1' = 5, '3/same:2' = 6, '3/same:0' = 0)",
        "VALUES ('version' = 1, 'list' = 0)",
        "FROM FILE '/offsets.json'",
        "TO EARLIEST FOR SPLITS ('0/new:0', 'a:1')",
    ],
)
@pytest.mark.parametrize("has_brokers", [True, False])
def test_a_plan_is_current_as_long_as_nothing_changes(rest: str, has_brokers: bool, tmp_path: Path) -> None:
    world = CannedWorld()
    for topic in ("a", "b", "new", "same"):
        world.put_topic(topic, *[(0, 60)] * 9)
    world.put_topic("a", (10, 60), *[(0, 60)] * 8)
    world.files = {"/offsets.json": '{"0/new:0": 1, "b:0": 1}'}
    sources = [kafka(a=[40, 50]), kafka(b=[7]), kafka(same=[1]), kafka(same=[3]), delta(3), files(0)]
    made = make_checkpoint(tmp_path / "c", sources)
    (tmp_path / "0.json").write_text("{}", encoding="utf-8")
    list_files(made, 0, tmp_path / "0.json", source="5")
    rest, is_exactly, _ = rest.partition(" EXACTLY")
    options = [f"table = '{make_table(tmp_path / 't', 1, 2, 4)}'", *(["EXACTLY = true"] if is_exactly else [])]
    if has_brokers or "NULL" in rest or "EARLIEST" in rest:
        options.append(f"properties.bootstrap.server = '{HERE}'")
    shown = world.plan(inject(str(made), f"{rest} WITH ({', '.join(options)})"))
    assert shown.effect is not None
    assert is_rewrite_current(shown, world.snapshot, world.inspector)
