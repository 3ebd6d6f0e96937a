"""Random sequences of operations on a live source. The operations of each sequence are undone in reverse order."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from tests.integration.undoing import undo_all

LENGTH = 8


def _check(seed: int, folder: Path) -> Facts:
    with attached(folder / "warehouse") as session:
        return undo_all(session, broker().bootstrap, f"undo-{seed}", seed=seed, length=LENGTH)


PROOF = Proof(
    name="undo-sequences",
    claim="If all operations of a sequence are undone, the newest first, the source is as it was before them.",
    method=f"Each seed runs {LENGTH} random operations on a running Kafka source with a view: UNSAFE SET of the topic "
    "and of other properties, RESET, INJECT, PAUSE, RESUME, and whole BEGIN UNSAFE blocks, with records produced in "
    "between. UNDO OPERATION then undoes each of them, the newest first. After each undo the definition, the "
    "properties, the assigned splits, the positions that the operation changed, and the pauses must equal their "
    "values right before the operation.",
    seeds=range(50),
    check=_check,
)
