"""A refresh outlives the kills of the process that merges it; the long form is in proof/cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.refreshes import KilledRefresh

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
def test_a_killed_merge_goes_on_at_its_chunk(spark: SparkSession, tmp_path: Path) -> None:
    refresh = KilledRefresh(tmp_path, rows=2000, chunk=8, seed=1, spark=spark)
    facts = refresh.run(("refresh.before_chunk@3",))
    assert facts["processes killed"] == 1
