"""Refreshes of tables with a million rows. Processes are killed in every state of a refresh, and in the middle of the
merge."""

from __future__ import annotations

import random
from pathlib import Path

from proof.harness import Facts, Proof
from tests.crash.refreshes import POINTS, RECOVERY_POINTS, KilledRefresh

LARGE = 2
_KILLS = 5


def _check(seed: int, folder: Path) -> Facts:
    draw = random.Random(seed)
    rows, chunk = (1_000_000, 2_000) if seed < LARGE else (40_000, 80)
    # The points are listed in the order in which a refresh reaches them. After a kill at one point, the next process
    # therefore still reaches the later points. The points of a process's own start can be at any place of this order.
    chosen = [POINTS[at] for at in sorted(draw.sample(range(len(POINTS)), _KILLS - 1))]
    points = [f"{point}@{draw.randint(1, 2)}" if "chunk" in point or "merge" in point else point for point in chosen]
    points.insert(draw.randrange(len(points)), draw.choice(RECOVERY_POINTS))
    return KilledRefresh(folder, rows=rows, chunk=chunk, seed=seed).run(points)


PROOF = Proof(
    name="refresh-kills",
    claim=(
        "A refresh that is killed in any state leaves the table either unchanged or equal to its upstream, and "
        "readers see each row that differs once."
    ),
    method="A Delta table is the upstream of a table with refresh_mode = 'FULL_RELOAD', and two views read that "
    "table: one contains its rows, the other counts them by a group. The table is loaded; then upstream 1 % of the "
    f"rows are changed, 0.5 % are removed and 0.5 % added, and all rows get another order. {_KILLS} processes that "
    "refresh the table are killed by SIGKILL, Python and JVM, at random fault points: before the load, after the "
    "comparison, when everything is staged, between the staging and the state FINISHING, before and after the "
    "commit of a chunk, when everything is merged, before the state IDLE, and at the start of the table's job. A "
    "refresh whose staging was not complete starts again. Then the table and the views are compared with the "
    "upstream, row by row, and the change feed of the table is counted: it contains the rows that differ and no "
    f"others. The first {LARGE} seeds have 1,000,000 rows, the others 40,000.",
    seeds=range(8),
    check=_check,
)
