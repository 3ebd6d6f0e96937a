"""Views after three minutes of real time without activity. (Other tests only set back the times of files.)"""

from __future__ import annotations

import random
import threading
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from tests.crash.keyed_tables import KilledTable
from tests.integration.old_histories import OldHistory
from tests.support.ageing import Pauses

MINUTES = 3
_SECONDS = 60.0 * MINUTES


class _Waited(Pauses):
    """Waits in real time between two processes."""

    def pass_over(self, warehouse: Path) -> str:
        """Waits, except before the first process."""
        if (warehouse / "rw_catalog").is_dir():
            threading.Event().wait(_SECONDS)
            self.drawn.append(f"{MINUTES} minutes later")
        return "at once"


def _quiet(folder: Path) -> Facts:
    """Waits for three minutes without a write to two tables, and then writes to both tables at once."""
    with attached(folder / "warehouse") as session:
        history = OldHistory(session, broker().bootstrap, seed=0, pause=lambda _: threading.Event().wait(_SECONDS))
        return {"real pauses": 1, **history.run_quiet()}


def _killed(folder: Path) -> Facts:
    """Kills a process after its merge and before Spark's commit of the batch. The next process starts three minutes
    later."""
    started = start_broker(folder / "broker", port=0)
    try:
        (folder / "life").mkdir()
        table = KilledTable(
            folder / "life", started.bootstrap, updates=3000, keys=50, draw=random.Random(1), pauses=_Waited()
        )
        return {"real pauses": 2, **table.run(("view.in_batch@4", "batch.after_merge@3"))}
    finally:
        stop_broker(folder / "broker")


def _check(seed: int, folder: Path) -> Facts:
    return _quiet(folder) if seed == 0 else _killed(folder)


PROOF = Proof(
    name="quiet-minutes",
    claim=f"A view continues after {MINUTES} minutes in which nothing wrote to its inputs, or no process ran it.",
    method=(
        "The proof runs in real time, since rw_sql's Delta tables keep deleted files for one minute. The first part "
        "has two tables over Kafka and the views that join them or are recomputed, all caught up: nothing happens for "
        f"{MINUTES} minutes; then both tables are written to at once, several times, and every view is compared with "
        "its query over the rows of a dictionary. The second part has a table and four views over it: their process "
        f"is killed by SIGKILL while a batch is planned and not committed, and started again {MINUTES} minutes later, "
        "twice."
    ),
    seeds=range(2),
    check=_check,
)
