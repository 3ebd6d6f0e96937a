"""A block whose session is killed at each of its steps, in an order drawn by lot."""

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
    claim="A block whose session is killed is done as a whole or not at all, and its source reads on.",
    method="A running Kafka source with a view, in a process that owns the jobs. A second process runs PAUSE, UNSAFE "
    f"SET, INJECT and RESUME in one block and is killed by SIGKILL at each of {len(BEFORE) + len(AFTER)} fault points, "
    "in an order drawn by lot. After each, the catalog has one operation more or none, the reader runs, and the view's "
    "rows are exactly those that were read so far and repeated by the blocks that are done.",
    seeds=range(5),
    check=_check,
)
