"""A view's history outlives the kills of the process that reads it; the long form is in proof/cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.histories import KilledHistory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_a_killed_backfill_goes_on_where_its_commits_end(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path
) -> None:
    history = KilledHistory(tmp_path, broker.bootstrap, records=3000, chunk=1000, spark=spark)
    facts = history.run(("history.after_append@2",))
    assert facts["processes killed"] == 1
