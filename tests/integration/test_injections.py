"""Every INJECT target and form of file on a real broker: predicted and observed, counted from the rows themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.integration.injections import (
    COMPACTED,
    KINDS,
    MOVES,
    RETAINED,
    TARGETS,
    TRANSACTIONAL,
    MovedSource,
    Scenario,
    Step,
    scenarios,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def step(move: str, *, is_partial: bool = False, expired: int | None = None, before: str | None = None) -> Step:
    return Step(move=move, more=(3, 0), expired=expired, places=(500, 250), is_partial=is_partial, before=before)


def test_every_target_and_every_form_of_file(session: AttachedSession, broker: BrokerInfo, tmp_path: Path) -> None:
    session.allow_unsafe()
    steps = tuple(step(move, is_partial=number % 3 == 0) for number, move in enumerate((*TARGETS, "forget")))
    moved = MovedSource(
        session, broker.bootstrap, tmp_path, "every", Scenario(kind=RETAINED, records=(20, 7), steps=steps)
    )
    total = moved.run()
    assert set(total.targets) == {*TARGETS, "forget"}
    assert total.duplicates > 0
    assert total.gaps > 0


@pytest.mark.parametrize("kind", [COMPACTED, TRANSACTIONAL])
def test_topics_whose_offsets_are_no_count(
    session: AttachedSession, broker: BrokerInfo, tmp_path: Path, kind: str
) -> None:
    session.allow_unsafe()
    steps = (step("earliest"), step("latest", before="earliest"), step("recreate"), step("values"))
    MovedSource(session, broker.bootstrap, tmp_path, kind, Scenario(kind=kind, records=(20, 7), steps=steps)).run()


def test_random_scenarios(session: AttachedSession, broker: BrokerInfo, tmp_path: Path) -> None:
    session.allow_unsafe()
    names = iter(range(100))

    @seed(1)
    @settings(
        max_examples=2, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(scenarios)
    def run(scenario: Scenario) -> None:
        source = MovedSource(session, broker.bootstrap, tmp_path, f"r{next(names)}", scenario)
        source.run()
        source.drop()

    run()


def test_the_scenarios_reach_every_move() -> None:
    drawn: set[str] = set()
    kinds: set[str] = set()
    sizes: set[int] = set()

    @seed(1)
    @settings(max_examples=300, phases=[Phase.generate], database=None, deadline=None)
    @given(scenarios)
    def draw(scenario: Scenario) -> None:
        drawn.update(step.move for step in scenario.steps)
        kinds.add(scenario.kind)
        sizes.add(len(scenario.records))

    draw()
    assert drawn == set(MOVES)
    assert kinds == set(KINDS)
    assert sizes == set(range(1, 9))
    assert all(re.fullmatch(r"[a-z0-9 ]+", move) for move in MOVES)
