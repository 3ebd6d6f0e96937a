"""Every INJECT target and form of file on a real broker: predicted and observed, counted from the rows themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
    drawn,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def step(move: str, *, is_partial: bool = False, expired: int | None = None, before: str | None = None) -> Step:
    return Step(move=move, more=(3, 0), expired=expired, places=(500, 250), is_partial=is_partial, before=before)


@pytest.mark.alone
@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("kind", [COMPACTED, TRANSACTIONAL])
def test_topics_whose_offsets_are_no_count(
    session: AttachedSession, broker: BrokerInfo, tmp_path: Path, kind: str
) -> None:
    session.allow_unsafe()
    steps = (step("latest", before="earliest"), step("recreate"), step("values"))
    MovedSource(session, broker.bootstrap, tmp_path, kind, Scenario(kind=kind, records=(20, 7), steps=steps)).run()


@pytest.mark.long
def test_random_scenarios(session: AttachedSession, broker: BrokerInfo, tmp_path: Path) -> None:
    session.allow_unsafe()
    for number, scenario in enumerate(drawn(1, 1)):
        source = MovedSource(session, broker.bootstrap, tmp_path, f"r{number}", scenario)
        source.run()
        source.drop()


def test_the_scenarios_reach_every_move() -> None:
    found = [scenario for number in range(4) for scenario in drawn(number, 80)]
    assert {step.move for scenario in found for step in scenario.steps} == set(MOVES)
    assert {scenario.kind for scenario in found} == set(KINDS)
    assert {len(scenario.records) for scenario in found} == set(range(1, 9))
    assert drawn(3, 2) == drawn(3, 2)
