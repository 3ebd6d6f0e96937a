"""Random schedules over a real broker, killed at random: every view has its history once, and every live row."""

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
    claim="Whatever happens to its source and when, a view has its history once and every live row.",
    method=f"{_STEPS} steps drawn by lot on a Kafka source: records, views of every startup mode that append or count, "
    "made in the foreground and in the background with a rate limit, dropped; PAUSE, INJECT to any offset, RESET with "
    "and without positions, partitions added, all jobs stopped and started. One or two processes of each schedule are "
    "killed by SIGKILL up to two seconds after a step drawn by lot began, some with their JVM, some without; the next "
    "goes on after that step. In the end each view is compared, row by row, with the offsets that its record in the "
    "catalog names and the rows that the log got after the version it names; and the log with the topic: from each "
    "position that a statement set it has every record once, none left out.",
    seeds=range(100),
    check=_check,
)
