"""A random schedule outlives the kill of its process; the long form is in proof/cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.schedules import KilledSchedule

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.kafka_broker import BrokerInfo


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.kafka
def test_views_have_their_history_once_whatever_happens_to_the_source(broker: BrokerInfo, tmp_path: Path) -> None:
    facts = KilledSchedule(tmp_path, broker.bootstrap, seed=5, steps=10).run(kills=1)
    assert facts["processes killed"] == 1
    assert facts["rows compared"] > 0
