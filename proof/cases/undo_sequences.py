"""Fifty random sequences of operations on a live source, each undone in reverse order."""

from __future__ import annotations

from pathlib import Path

import rw_sql
from proof.harness import Facts, Proof
from rw_sql.cli.kafka_broker import start_broker, stop_broker
from tests.integration.attached import AttachedSession
from tests.integration.undoing import undo_all

LENGTH = 8
SPARK_SETTINGS = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "1g"}


def _check(seed: int, folder: Path) -> Facts:
    broker = start_broker(folder / "broker", port=0)
    try:
        spark = rw_sql.connect(str(folder / "first"), config=SPARK_SETTINGS)
        rw_sql.detach(spark)
        session = AttachedSession(spark, str(folder / "warehouse"))
        try:
            return undo_all(session, broker.bootstrap, f"undo-{seed}", seed=seed, length=LENGTH)
        finally:
            session.detach()
    finally:
        stop_broker(folder / "broker")


PROOF = Proof(
    name="undo-sequences",
    claim="Undone in reverse order, every sequence of operations ends where it began.",
    method=f"On a running Kafka source with a view, {LENGTH} operations a seed, drawn by lot: UNSAFE SET of the topic "
    "and of other properties, RESET, INJECT, PAUSE, RESUME, and whole BEGIN UNSAFE blocks, with records produced in "
    "between. Then UNDO OPERATION of each, the newest first. After each undo the definition, the properties, the "
    "assigned splits, the positions that the operation had touched, and the holds must be what they were right before.",
    seeds=range(50),
    check=_check,
)
