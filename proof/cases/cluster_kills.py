"""Kills of executors and workers of a standalone cluster while the cluster reads records of Kafka into two views."""

from __future__ import annotations

import os
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import broker
from tests.integration.cluster_kills import kill_and_count

RECORDS = int(os.environ.get("RW_SQL_CLUSTER_RECORDS", "2000000"))
"""The number of records of each seed, from the environment variable ``RW_SQL_CLUSTER_RECORDS``."""

KILLS = 4


def _check(seed: int, folder: Path) -> Facts:
    facts = kill_and_count(
        folder, broker().bootstrap, seed=seed, records=RECORDS, kills=KILLS, is_backlog=seed % 2 == 0
    )
    assert facts.get("executors killed"), f"no executor was killed: {facts}"
    assert facts.get("workers killed"), f"no worker was killed: {facts}"
    return facts


PROOF = Proof(
    name="cluster-kills",
    claim="Each record of Kafka is in a view once, and in a group once, although executors and workers of the cluster "
    "are killed.",
    method=f"On a standalone cluster of two workers, a source reads {RECORDS:,} records of a topic with four "
    "partitions. One view contains its rows, another view counts and sums them by 97 groups. While Spark's tasks run, "
    f"executors and workers with their executors are killed by SIGKILL in turns, {KILLS} times in all, at random "
    "moments, until all records are read. A killed worker is started again after up to 3 seconds. With even seeds, the "
    "source may read all records in one batch; with odd seeds, it reads a fifth in each batch. In the end, every row "
    "and every group is compared with the records that were written.",
    seeds=range(2),
    check=_check,
)
