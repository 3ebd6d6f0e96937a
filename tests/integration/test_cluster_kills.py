"""Executors and workers of a standalone cluster are killed while records are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.cluster_kills import kill_and_count

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.alone]


def test_each_record_arrives_once_if_an_executor_and_a_worker_are_killed(broker: BrokerInfo, tmp_path: Path) -> None:
    facts = kill_and_count(tmp_path, broker.bootstrap, seed=1, records=120_000, kills=2, is_backlog=False)
    assert facts["executors killed"] == 1
    assert facts["workers killed"] == 1
