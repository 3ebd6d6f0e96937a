"""Random schedules over a real broker: every view has its history once, and every live row."""

from __future__ import annotations

import random
from pathlib import Path

import rw_sql
from proof.cases.undo_sequences import SPARK_SETTINGS
from proof.harness import Facts, Proof
from rw_sql.cli.kafka_broker import start_broker, stop_broker
from rw_sql.runtime import owner
from tests.integration.schedules import Schedule

_STEPS = 25


def _check(seed: int, folder: Path) -> Facts:
    owner.DISCOVERY_SECONDS = 0.5
    broker = start_broker(folder / "broker", port=0)
    try:
        spark = rw_sql.connect(str(folder / "first"), config=SPARK_SETTINGS)
        rw_sql.detach(spark)
        warehouse = str(folder / "warehouse")
        return Schedule(spark, warehouse, broker.bootstrap, f"schedule-{seed}", random.Random(seed)).run(_STEPS)
    finally:
        stop_broker(folder / "broker")


PROOF = Proof(
    name="history-schedules",
    claim="Whatever happens to its source and when, a view has its history once and every live row.",
    method=f"{_STEPS} steps drawn by lot on a Kafka source: records, views of every startup mode that append or count, "
    "made in the foreground and in the background with a rate limit, dropped; INJECT to any offset, RESET with and "
    "without positions, partitions added, all jobs stopped and started. In the end each view is compared, row by row, "
    "with the offsets that its record in the catalog names and the rows that the log got after the version it names.",
    seeds=range(100),
    check=_check,
)
