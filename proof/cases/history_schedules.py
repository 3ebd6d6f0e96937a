"""Random schedules with a real broker and random kills. Each view has each row of its history once, and every live
row."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import broker
from tests.crash.schedules import KilledSchedule
from tests.support.ageing import Pauses

_STEPS = 16


def _check(seed: int, folder: Path) -> Facts:
    schedule = KilledSchedule(folder, broker().bootstrap, seed, _STEPS, pauses=Pauses(seed=seed))
    return schedule.run(kills=2 if seed % 4 == 0 else 1)


PROOF = Proof(
    name="history-schedules",
    claim="Whatever happens to its source, a view contains each record of its history once, and every live row.",
    method=(
        f"{_STEPS} random steps are run on a Kafka source: new records; views of every startup mode that append or "
        "count, created in the foreground and in the background with a rate limit, and dropped; PAUSE; INJECT to any "
        "offset; RESET with and without positions; added partitions; all jobs stopped and started. One or two "
        "processes of each schedule are killed by SIGKILL within two seconds after a random step began, some with "
        "their JVM, some without; the next process continues after that step. In the end each view is compared, row "
        "by row, with the offsets that its catalog record names and the rows of the log after the version that it "
        "names. The log is compared with the topic: from each position that a statement set, it contains every record "
        "exactly once."
    ),
    seeds=range(100),
    check=_check,
)
