"""A random schedule outlives the kill of its process; the long form is in proof/cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.schedules import KilledSchedule
from tests.support.ageing import Pauses

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_views_have_their_history_once_whatever_happens_to_the_source(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path
) -> None:
    pauses = Pauses(seed=4)
    schedule = KilledSchedule(tmp_path, broker.bootstrap, seed=5, steps=10, pauses=pauses, spark=spark)
    facts = schedule.run(kills=1)
    assert pauses.drawn == ["a week later"]
    assert facts["processes killed"] == 1
    assert facts["rows compared"] > 0
