"""Random schedules over a real broker: every view has its history once, and every live row."""

from __future__ import annotations

import random
from pathlib import Path

import rw_sql
from proof.harness import Facts, Proof
from proof.live import broker, spark
from rw_sql.runtime import owner
from tests.integration.schedules import Schedule

_STEPS = 25


def _check(seed: int, folder: Path) -> Facts:
    owner.DISCOVERY_SECONDS = 0.5
    warehouse = str(folder / "warehouse")
    try:
        return Schedule(spark(), warehouse, broker().bootstrap, f"schedule-{seed}", random.Random(seed)).run(_STEPS)
    finally:
        rw_sql.detach(spark())


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
