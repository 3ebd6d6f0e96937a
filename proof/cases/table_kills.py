"""Kills, at random fault points, of processes that maintain a table with updates and deletes. The first seed has
1,000,000 updates."""

from __future__ import annotations

import random
from pathlib import Path

from proof.harness import Facts, Proof
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from tests.crash.keyed_tables import POINTS, KilledTable
from tests.support.ageing import Pauses

LARGE = 1
_KILLS = 5


def _check(seed: int, folder: Path) -> Facts:
    draw = random.Random(seed)
    updates, keys = (1_000_000, 10_000) if seed < LARGE else (30_000, 300)
    points = [draw.choice(POINTS) for _ in range(_KILLS)]
    broker = start_broker(folder / "broker", port=0)
    try:
        (folder / "life").mkdir()
        life = KilledTable(
            folder / "life", broker.bootstrap, updates=updates, keys=keys, draw=draw, pauses=Pauses(seed=seed)
        )
        return life.run(points)
    finally:
        stop_broker(folder / "broker")


PROOF = Proof(
    name="table-kills",
    claim="A table that follows updates and deletes, and the views over it, equal a dictionary with the same updates.",
    method=(
        "There is a topic of records with keys; a fifth of the records delete their key. A table reads the topic "
        f"(FORMAT UPSERT); one view counts and sums the table's rows, and another view filters them. {_KILLS} "
        "processes that maintain them are killed by SIGKILL, Python and JVM, at random fault points, each after a "
        f"different share of the records has arrived. In {LARGE} seed there are 1,000,000 updates of 10,000 keys, in "
        "the others 30,000 of 300. Then the table and both views are compared with a dictionary, row by row."
    ),
    seeds=range(6),
    check=_check,
)
