"""The README's workflow on a standalone cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.cluster_session import WORKERS
from tests.integration.cluster_workflow import run_workflow

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.long, pytest.mark.alone]


def test_views_tables_and_sinks_have_the_same_rows_on_a_cluster(
    broker: BrokerInfo, postgres: PostgresInfo, tmp_path: Path
) -> None:
    seen = run_workflow(tmp_path, broker.bootstrap, postgres)
    assert "STALLED" not in seen["jobs"].values(), seen["reasons"]
    # Executors of both workers took part.
    assert all(seen["tasks"][worker] > 0 for worker in WORKERS), seen["tasks"]
