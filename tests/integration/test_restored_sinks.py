"""A sink with exactly-once delivery in a warehouse that was restored from a backup older than the sink's target."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def test_a_restored_warehouse_skips_no_rows(
    spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    """Its next batches have numbers that the target already has, with other rows."""
    create_topic(broker.bootstrap, topic_name, 1)
    warehouse, backup, target = tmp_path / "w", tmp_path / "backup", tmp_path / "target"

    def send(number: int) -> None:
        produce_json(broker.bootstrap, topic_name, [{"id": number}])

    def ids() -> list[int]:
        return sorted(row["id"] for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())

    made = f"CREATE SINK archive FROM s WITH (connector = 'deltalake', location = '{target}')"
    session = AttachedSession(spark, str(warehouse))
    send(1)
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        made,
        "FLUSH",
    )
    session.detach()
    shutil.copytree(warehouse, backup)
    session = AttachedSession(spark, str(warehouse))
    for number in (2, 3):
        send(number)
        session.run("FLUSH")
    session.detach()
    assert ids() == [1, 2, 3]
    shutil.rmtree(warehouse)
    shutil.copytree(backup, warehouse)
    send(4)
    session = AttachedSession(spark, str(warehouse))
    wait_until(lambda: session.job("archive").state == "STALLED", "the sink stands still")
    reason = session.job("archive").reason
    assert reason.startswith("RESTORED "), reason
    assert "DROP SINK archive and create it again" in reason
    session.run("DROP SINK archive", made, "FLUSH")
    assert ids() == [1, 1, 2, 2, 3, 3, 4]
    session.detach()
