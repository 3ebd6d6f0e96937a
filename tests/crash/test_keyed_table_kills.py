"""A table over Kafka outlives the kills of the process that keeps it; the long form is in proof/cases."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.keyed_tables import KilledTable
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
def test_a_killed_table_and_its_views_equal_a_dictionary(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path
) -> None:
    table = KilledTable(
        tmp_path, broker.bootstrap, updates=3000, keys=50, draw=random.Random(1), pauses=Pauses(seed=4), spark=spark
    )
    facts = table.run(("batch.after_merge",))
    assert table.pauses.drawn == ["a week later"]
    assert facts["processes killed"] == 1
