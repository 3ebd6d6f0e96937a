"""Three minutes in which nothing happens, waited for: what the tests that make files old leave to be believed."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from rw_sql.cli.kafka_broker import start_broker, stop_broker
from tests.crash.keyed_tables import KilledTable
from tests.integration.old_histories import OldHistory
from tests.support.ageing import Pauses

MINUTES = 3
_SECONDS = 60.0 * MINUTES


class _Waited(Pauses):
    """The pause between two processes is a real one."""

    def pass_over(self, warehouse: Path) -> str:
        """Waits, but not for the first."""
        if (warehouse / "rw_catalog").is_dir():
            threading.Event().wait(_SECONDS)
            self.drawn.append(f"{MINUTES} minutes later")
        return "at once"


def _quiet(folder: Path) -> Facts:
    """Nobody writes to two tables; then both are written to at once."""
    with attached(folder / "warehouse") as session:
        history = OldHistory(session, broker().bootstrap, seed=0, pause=lambda _: threading.Event().wait(_SECONDS))
        return {"real pauses": 1, **history.run_quiet()}


def _killed(folder: Path) -> Facts:
    """A process is killed after its merge and before Spark has the batch for done; the next starts later."""
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
    claim=f"A view goes on after {MINUTES} minutes in which nobody wrote to its inputs, or nobody ran it.",
    method="In real time, since a Delta table of ours says that its deleted files are kept for one minute. First: two "
    "tables over Kafka and the views that join them or are computed again, all caught up; nothing happens for "
    f"{MINUTES} minutes; then both tables are written to at once, several times, and every view is compared with its "
    "query over the rows of a dictionary. Second: a table and four views over it, whose process is killed by SIGKILL "
    f"while a batch is planned and not committed, and started again {MINUTES} minutes later, twice.",
    seeds=range(2),
    check=_check,
)
