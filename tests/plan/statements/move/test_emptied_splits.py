"""Moves of a source whose splits have no record now: a Kinesis shard that was idle for longer than the retention, and a
stream whose leader delivers nothing yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.model.offset_ranges import ReadIncarnation
from tests.plan import canned_inspector
from tests.plan.canned import CannedWorld, refused

if TYPE_CHECKING:
    from rw_sql.plan.result.plan import Plan

SHARD = "shardId-000000000000"
START = 496 * 10**53
READ = START + 10**30
"""The end of what the source has read."""

EMPTY = UpstreamSplit(split=SHARD, start=START, end=START, cluster="arn", incarnation="c", is_empty=True)


@dataclass
class Shard:
    """A paused source that has read its shard to the end, and what the upstream reports about the shard."""

    world: CannedWorld
    now: UpstreamSplit

    def look(self, *_: Any, **__: Any) -> Upstream:
        return Upstream(splits={self.now.split: self.now}, cluster=self.now.cluster)

    def plan(self, target: str) -> Plan:
        return self.world.plan(f"INJECT SOURCE OFFSETS s {target}")


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Shard:
    made = Shard(CannedWorld(), replace(EMPTY, end=READ, is_empty=False))
    for name in ("look", "look_again"):
        monkeypatch.setattr(canned_inspector.CannedUpstreams, name, made.look)
    monkeypatch.setattr(canned_inspector.CannedUpstreams, "sparse_topics", lambda *_: {})
    made.world.run(
        "ALTER SYSTEM SET enable_unsafe_ops = true",
        "CREATE SOURCE s (id INT) WITH (connector = 'kinesis', stream = 'st', aws.region = 'r', "
        "scan.startup.mode = 'earliest') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    made.world.moved[SHARD] = READ
    made.world.read.add(SHARD)
    made.world.lives[SHARD] = (ReadIncarnation(spans=((START, READ),), reached=READ, cluster="arn", incarnation="c"),)
    made.world.run("PAUSE SOURCE s")
    made.now = EMPTY
    return made


def effect(plan: Plan) -> tuple[int | None, str, tuple[str, ...]]:
    """The new position, the verdict, and the words that ALLOW lacks."""
    assert plan.preview is not None
    (row,) = plan.preview.splits
    return row.new, row.verdict, plan.unallowed


@pytest.mark.parametrize("target", [f"VALUES ('0' = {READ})", "TO SHIFT 0", "TO LATEST"])
def test_the_position_of_the_source_stays_valid(shard: Shard, target: str) -> None:
    assert effect(shard.plan(target)) == (READ, "NONE", ())


def test_a_later_position_is_valid_and_an_earlier_one_than_the_start_is_not(shard: Shard) -> None:
    assert effect(shard.plan(f"VALUES ('0' = {READ + 5}) ALLOW GAPS"))[0] == READ + 5
    error = refused(shard.world, f"INJECT SOURCE OFFSETS s VALUES ('0' = {START - 1})")
    assert "is before the start" in error.message


def test_nothing_is_repeated_where_no_record_exists(shard: Shard) -> None:
    assert effect(shard.plan("TO EARLIEST")) == (START, "NONE", ())
    forget = shard.world.plan("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    assert effect(forget) == (START, "NONE", ())


def test_a_time_without_later_records_keeps_the_position(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = {SHARD: START}
    monkeypatch.setattr(canned_inspector.CannedUpstreams, "offsets_at", lambda *_: dict(offsets))
    later = "TO TIMESTAMP '2026-01-31 08:00:00Z'"
    plan = shard.plan(later)
    assert effect(plan) == (READ, "NONE", ())
    assert any("no record at or after that time" in row.detail for row in plan.changes)
    offsets[SHARD] = READ + 7  # found before the leader changed
    assert effect(shard.plan(f"{later} ALLOW GAPS"))[0] == READ + 7


def test_records_that_are_only_hidden_are_read_again(shard: Shard) -> None:
    """A leader that delivers nothing yet reports no identity, so its stream may still have all records."""
    shard.now = replace(EMPTY, incarnation=None)
    new, verdict, lacking = effect(shard.plan("TO EARLIEST"))
    assert (new, lacking) == (START, ("DUPLICATES",))
    assert verdict.startswith("DUPLICATES")
    assert effect(shard.plan("TO LATEST")) == (READ, "NONE", ())


def test_the_end_of_a_split_of_another_incarnation_is_its_own(shard: Shard) -> None:
    shard.now = replace(EMPTY, incarnation="created again")
    assert effect(shard.plan("TO LATEST"))[0] == START
