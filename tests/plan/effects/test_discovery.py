"""The splits that a source adopts, and the start of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
from rw_sql.connectors.registry import connector
from rw_sql.model.split_status import split_order, split_status
from rw_sql.plan.effects.discovery import discover
from rw_sql.plan.effects.verdicts import preview_splits
from rw_sql.plan.ports.positions import Positions
from tests.plan.canned import CannedWorld
from tests.plan.canned_inspector import CannedUpstreams

KAFKA = connector("kafka")


def upstream_split(split: str, start: int = 5, end: int = 90, cluster: str = "c", life: str = "l") -> UpstreamSplit:
    return UpstreamSplit(split=split, start=start, end=end, cluster=cluster, incarnation=life)


def state(split: str, offset: int, cluster: str | None = "c", life: str | None = "l") -> SplitState:
    return SplitState(split=split, offset=offset, cluster=cluster, incarnation=life)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Splits in the upstream, known states, and the resulting positions of the discovered splits."""

    id: str
    shown: tuple[UpstreamSplit, ...]
    known: tuple[SplitState, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    stand: dict[str, int]
    fresh: tuple[str, ...] = ()


LATEST = {"scan.startup.mode": "latest"}
CASES = (
    Case(id="nothing known, earliest", shown=(upstream_split("t:0"),), stand={"t:0": 5}, fresh=("t:0",)),
    Case(id="nothing known, latest", shown=(upstream_split("t:0"),), options=LATEST, stand={"t:0": 90}, fresh=("t:0",)),
    Case(id="a known split stays", shown=(upstream_split("t:0"),), known=(state("t:0", 50),), stand={"t:0": 50}),
    Case(
        id="known but nobody said of which cluster",
        shown=(upstream_split("t:0"),),
        known=(state("t:0", 50, cluster=None, life=None),),
        stand={"t:0": 50},
    ),
    Case(
        id="an added partition begins at its first record even with latest",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        known=(state("t:0", 50),),
        options=LATEST,
        stand={"t:0": 50, "t:1": 5},
        fresh=("t:1",),
    ),
    Case(
        id="an added partition, where brokers did not report identities before",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        known=(state("t:0", 50, cluster=None, life=None),),
        options=LATEST,
        stand={"t:0": 50, "t:1": 5},
        fresh=("t:1",),
    ),
    Case(
        id="an added partition, where brokers report topic ids only since then",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        known=(state("t:0", 50, life=None),),
        options=LATEST,
        stand={"t:0": 50, "t:1": 5},
        fresh=("t:1",),
    ),
    Case(
        id="another topic begins at the startup mode",
        shown=(upstream_split("u:0"),),
        known=(state("t:0", 50),),
        options=LATEST,
        stand={"u:0": 90},
        fresh=("u:0",),
    ),
    Case(
        id="a partition added to a re-created topic is not a continuation",
        shown=(upstream_split("t:0", life="m"), upstream_split("t:1", life="m")),
        known=(state("t:0", 50),),
        options=LATEST,
        stand={"t:0": 90, "t:1": 90},
        fresh=("t:0", "t:1"),
    ),
    Case(
        id="the same topic of another cluster begins at the startup mode",
        shown=(upstream_split("t:0", cluster="d"),),
        known=(state("t:0", 50),),
        stand={"t:0": 5},
        fresh=("t:0",),
    ),
    Case(
        id="a forgotten split begins at the startup mode, not as an added one",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        known=(state("t:0", 50), state("t:1", 60)),
        options=LATEST,
        forget=("t:0", "t:1"),
        stand={"t:0": 90, "t:1": 90},
        fresh=("t:0", "t:1"),
    ),
    Case(
        id="forgetting one of two leaves the other",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        known=(state("t:0", 50), state("t:1", 60)),
        forget=("t:1",),
        options=LATEST,
        stand={"t:0": 50, "t:1": 90},
        fresh=("t:1",),
    ),
    Case(
        id="a split that is gone is not taken up",
        shown=(upstream_split("t:0"),),
        known=(state("t:0", 50), state("t:1", 60)),
        stand={"t:0": 50},
    ),
    Case(
        id="by time",
        shown=(upstream_split("t:0"), upstream_split("t:1")),
        options={"scan.startup.mode": "timestamp", "scan.startup.timestamp.millis": "1000"},
        stand={"t:0": 33, "t:1": 44},
        fresh=("t:0", "t:1"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_discovery(case: Case) -> None:
    options = tuple(case.options.items())
    world = CannedWorld(times={"t:0": 33, "t:1": 44})
    found = discover(
        world.inspector,
        KAFKA,
        "kafka",
        options,
        Upstream(splits={split.split: split for split in case.shown}),
        {known.split: known for known in case.known},
        forget=case.forget,
    )
    assert all(asked["milliseconds"] == 1000 for asked in world.asked_of(CannedUpstreams.offsets_at))
    assert len(world.asked) == ("scan.startup.timestamp.millis" in case.options)
    assert found.assigned == tuple(sorted(case.stand))
    assert {split: known.offset for split, known in found.states.items()} == case.stand
    assert tuple(sorted(found.fresh)) == case.fresh
    shown = {split.split: split for split in case.shown}
    for split in found.fresh:
        assert (found.states[split].cluster, found.states[split].incarnation) == (
            shown[split].cluster,
            shown[split].incarnation,
        )


@pytest.mark.parametrize(
    ("known", "shown", "status"),
    [
        (state("t:0", 50), upstream_split("t:0"), "OK"),
        (state("t:0", 5), upstream_split("t:0"), "OK"),
        (state("t:0", 90), upstream_split("t:0"), "OK"),
        (state("t:0", 4), upstream_split("t:0"), "EXPIRED"),
        (state("t:0", 91), upstream_split("t:0"), "AHEAD"),
        (state("t:0", 50, cluster="d"), upstream_split("t:0"), "OTHER_CLUSTER"),
        (state("t:0", 50, life="m"), upstream_split("t:0"), "RECREATED"),
        # Another cluster has other topic ids too, but the change of the cluster is reported.
        (state("t:0", 50, cluster="d", life="m"), upstream_split("t:0"), "OTHER_CLUSTER"),
        (state("t:0", 4, life="m"), upstream_split("t:0"), "RECREATED"),
        (None, upstream_split("t:0"), "NEW"),
        (state("t:0", 50), None, "ORPHAN"),
        (None, None, "ORPHAN"),
    ],
)
def test_status(known: SplitState | None, shown: UpstreamSplit | None, status: str) -> None:
    assert split_status(known, shown) == status


READ = frozenset({"t:0"})


def verdict_on(split: str, new: SplitState | None, upstream: Upstream, positions: Positions) -> str:
    rows = preview_splits(KAFKA, upstream, positions, {split: new})
    return next(row.verdict for row in rows if row.split == split)


@pytest.mark.parametrize(
    ("old", "new", "shown", "read", "said"),
    [
        (state("t:0", 50), state("t:0", 50), upstream_split("t:0"), READ, "NONE"),
        (state("t:0", 50), state("t:0", 40), upstream_split("t:0"), READ, "DUPLICATES 10"),
        (state("t:0", 50), state("t:0", 60), upstream_split("t:0"), READ, "GAP 10"),
        # Records that were never read cannot be repeated, but they can be skipped.
        (state("t:0", 50), state("t:0", 40), upstream_split("t:0"), frozenset(), "NONE"),
        (state("t:0", 50), state("t:0", 60), upstream_split("t:0"), frozenset(), "GAP 10"),
        (state("t:0", 50, cluster="d"), state("t:0", 5), upstream_split("t:0"), READ, "UNKNOWN (other cluster)"),
        (state("t:0", 50, life="m"), state("t:0", 5), upstream_split("t:0"), READ, "UNKNOWN (topic was re-created)"),
        (state("t:0", 50), None, None, READ, "ORPHAN"),
    ],
)
def test_verdict_of_a_known_split(
    old: SplitState, new: SplitState | None, shown: UpstreamSplit | None, read: frozenset[str], said: str
) -> None:
    positions = Positions(states={"t:0": old}, read_splits=read)
    upstream = Upstream(splits={"t:0": shown} if shown else {})
    assert verdict_on("t:0", new, upstream, positions) == said


@pytest.mark.parametrize(
    ("new", "shown", "known", "read", "said"),
    [
        (state("t:1", 5), upstream_split("t:1"), "t:0", READ, "NONE"),
        (state("t:1", 9), upstream_split("t:1"), "t:0", READ, "GAP 4"),
        (state("u:0", 5), upstream_split("u:0"), "t:0", READ, "UNKNOWN (other topic)"),
        (state("u:0", 5), upstream_split("u:0"), "t:0", frozenset(), "NONE"),
    ],
)
def test_verdict_of_a_new_split(
    new: SplitState, shown: UpstreamSplit, known: str, read: frozenset[str], said: str
) -> None:
    positions = Positions(states={known: state(known, 50)}, read_splits=read)
    upstream = Upstream(splits={new.split: shown})
    assert verdict_on(new.split, new, upstream, positions) == said


def test_preview_lists_every_split_known_before_or_after() -> None:
    upstream = Upstream(splits={"t:10": upstream_split("t:10"), "t:2": upstream_split("t:2")})
    positions = Positions(states={"t:1": state("t:1", 7), "t:2": state("t:2", 8)}, read_splits=frozenset({"t:2"}))
    rows = preview_splits(KAFKA, upstream, positions, {"t:1": None, "t:2": state("t:2", 6), "t:10": state("t:10", 5)})
    assert [(row.split, row.old, row.new, row.start, row.verdict) for row in rows] == [
        ("t:1", 7, None, None, "ORPHAN"),
        ("t:2", 8, 6, 5, "DUPLICATES 2"),
        ("t:10", None, 5, 5, "NONE"),
    ]


def test_order_is_by_number() -> None:
    assert sorted(["t:10", "t:9", "t.x:1", "4-1", "4-0"], key=split_order) == ["4-0", "4-1", "t:9", "t:10", "t.x:1"]
    assert sorted(["a:²", "a:10", "a:9"], key=split_order) == ["a:9", "a:10", "a:²"]  # Files have such names.
