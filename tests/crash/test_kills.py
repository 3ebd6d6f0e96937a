"""A warehouse survives the kills of its processes: no row is lost, and none is repeated unless a statement requires
it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.chain import ROOT, START, Chain, Kill
from tests.crash.child import SPARK_APPEND
from tests.crash.histories import POINTS as HISTORY_POINTS
from tests.crash.kills import DEALT, DRAWS, KINDS, POINTS, SINK_POINTS, UPKEEP_POINTS, dealt_chain, drawn_chain
from tests.crash.refreshes import POINTS as REFRESH_POINTS
from tests.crash.refreshes import RECOVERY_POINTS
from tests.crash.test_cdc_kills import CDC_POINTS
from tests.crash.test_request_kills import REQUEST_POINTS
from tests.crash.test_rest_kills import REST_POINTS
from tests.integration.test_block_kills import BEFORE as BLOCK_POINTS
from tests.runtime.direct.test_direct_checkpoints import ALL_POINTS as READER_POINTS
from tests.runtime.rewind_sequences import MAKING_POINTS, REWIND_POINTS, SWAP_POINTS
from tests.support.ageing import PAUSES

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

_PROJECTIONS = ("objects", "fragment_splits", "source_state")


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.kafka
def test_rows_equal_the_oracle_after_a_chain_of_kills(broker: BrokerInfo, tmp_path: Path, seed: int) -> None:
    """One kill of each kind, drawn by the commit; the proof ``kill-chains`` covers all points and targets."""
    chain = Chain(tmp_path, broker.bootstrap, seed=seed)
    kills = drawn_chain(seed)
    facts = chain.run(kills)
    assert facts["processes killed"] == len(kills) == len(KINDS)
    assert set(chain.pauses.drawn) == set(PAUSES)


def test_each_seed_kills_all_that_can_be_killed_and_a_few_in_a_row_at_twenty_distinct_points() -> None:
    drawn = [drawn_chain(seed) for seed in range(DRAWS)]
    for seed, chain in enumerate(drawn):
        steps = [kill.step for kill in chain if kill.at != START]
        assert steps == sorted(steps), f"seed {seed}"
        assert {kill.kills for kill in chain} == {"python", "jvm", "both"}, f"seed {seed}"
        assert not any(kill.reconnects for kill in chain[:-1]), f"seed {seed}: nobody continues after it"
    kills = {kill for chain in drawn for kill in chain}
    assert kills == {kill for kind in KINDS.values() for kill in kind}
    assert len({kill.point for kill in kills}) >= 20
    victims = Counter(kill.kills for kill in kills)
    assert min(victims["python"], victims["jvm"], victims["both"]) >= 4
    assert DRAWS <= 20


def test_every_fault_point_is_known() -> None:
    named = {SPARK_APPEND}
    for file in (ROOT / "rw_sql").rglob("*.py"):
        for name in re.findall(r'\bfaults?\(f?"([^"]+)"\)', file.read_text(encoding="utf-8")):
            named |= {name.replace("{projection}", each) for each in _PROJECTIONS} if "{" in name else {name}
    assert named == {
        *POINTS,
        *SINK_POINTS,
        *UPKEEP_POINTS,
        *BLOCK_POINTS,
        *HISTORY_POINTS,
        *READER_POINTS,
        *REWIND_POINTS,
        *MAKING_POINTS,
        *SWAP_POINTS,
        *REFRESH_POINTS,
        *RECOVERY_POINTS,
        *CDC_POINTS,
        *REST_POINTS,
        *REQUEST_POINTS,
        "apply.before_change",
    }


def test_the_dealt_chains_hold_every_point_with_every_victim() -> None:
    dealt: Counter[tuple[str, str]] = Counter()
    for seed in range(DEALT):
        chain = dealt_chain(seed)
        steps = [kill.step for kill in chain if kill.at != START]
        assert steps == sorted(steps)
        places = Counter(kill.at for kill in chain if len(POINTS[kill.point]) > 1 and kill.at != START)
        assert set(places.values()) <= {1}, f"seed {seed}: {places}"
        dealt.update((kill.point, kill.kills) for kill in chain)
    assert set(dealt.values()) == {1}
    assert {point for point, _ in dealt} == set(POINTS)


def test_a_kill_reports_its_step() -> None:
    assert Kill(point="x", at="start").step == -1
    assert Kill(point="x", at="after inject").step == Kill(point="x", at="inject").step + 1
