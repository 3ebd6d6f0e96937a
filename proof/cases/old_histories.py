"""Random histories of tables and recomputed views, with pauses of an hour or a week, in one session."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from tests.integration.old_histories import KEYS, QUERIES, VIEWS, OldHistory

HISTORIES, STEPS = 40, 8


def _check(seed: int, folder: Path) -> Facts:
    with attached(folder / "warehouse") as session:
        return {"histories": 1, **OldHistory(session, broker().bootstrap, seed=seed).run(STEPS)}


PROOF = Proof(
    name="old-histories",
    claim="Views that join or are recomputed equal their query, however long their warehouse was idle or stopped.",
    method=(
        f"Two tables over Kafka with {KEYS} keys each, whose rows are put and deleted, and {VIEWS} of {len(QUERIES)} "
        f"views: joins, groups, top-N queries, subqueries, unions. In each of {STEPS} steps, records are written for "
        "one table or for both, and the test sometimes waits until the views have them. Between steps, one of two "
        "things happens at random: all files of the warehouse become an hour or a week old while its jobs run; or the "
        "jobs stop at any point, all stored files (including the catalog's) become an hour or a week old, and the jobs "
        "start again. Each view is compared with its query over the rows of a dictionary."
    ),
    seeds=range(HISTORIES),
    check=_check,
)
