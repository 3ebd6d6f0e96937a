"""BEGIN UNSAFE blocks. The session is killed at each step of a block, in random order."""

from __future__ import annotations

import random
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from tests.integration.test_block_kills import AFTER, BEFORE, kill_at


def _check(seed: int, folder: Path) -> Facts:
    points = [*BEFORE, *AFTER]
    random.Random(seed).shuffle(points)
    with attached(folder / "warehouse") as session:
        kill_at(points, session, broker().bootstrap, f"block-{seed}")
    return {"blocks killed": len(points)}


PROOF = Proof(
    name="block-kills",
    claim="A block whose session is killed takes effect as a whole or not at all, and its source continues.",
    method="A process runs the jobs of a Kafka source with a view. A second process runs PAUSE, "
    f"UNSAFE SET, INJECT and RESUME in one block and is killed by SIGKILL at each of {len(BEFORE) + len(AFTER)} "
    "fault points, in random order. After each kill the catalog has one more operation or none, the reader runs, "
    "and the view contains exactly the rows that were read so far, including those that the finished blocks "
    "repeated.",
    seeds=range(5),
    check=_check,
)
