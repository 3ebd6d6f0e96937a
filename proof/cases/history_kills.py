"""Kills at random fault points during the backfill of views. The first seeds have a million records."""

from __future__ import annotations

import random
from pathlib import Path

from proof.harness import Facts, Proof
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from tests.crash.histories import POINTS, KilledHistory

LARGE = 2
_KILLS = 5


def _check(seed: int, folder: Path) -> Facts:
    draw = random.Random(seed)
    records, chunk = (1_000_000, 100_000) if seed < LARGE else (20_000, 3_000)
    # The points are listed in the order in which a backfill reaches them. After a kill at one point, the next process
    # therefore still reaches the later points. Of the points after the move of the checkpoint, only one is chosen. A
    # process that is killed at such a point leaves a view whose backfill is complete, so the next process reaches none
    # of these points.
    first = POINTS.index("history.after_move")
    chosen = sorted(draw.sample(range(first + 1), _KILLS - 2))
    if chosen[-1] == first:
        chosen[-1] = draw.randrange(first, len(POINTS))
    points = [f"history.{draw.choice(('before', 'after'))}_append@{draw.randint(1, 2)}" for _ in range(2)]
    points += [POINTS[at] for at in chosen]
    broker = start_broker(folder / "broker", port=0)
    try:
        (folder / "life").mkdir()
        return KilledHistory(folder / "life", broker.bootstrap, records=records, chunk=chunk, seed=seed).run(points)
    finally:
        stop_broker(folder / "broker")


PROOF = Proof(
    name="history-kills",
    claim="A view whose backfill is killed contains each record once in the end, and each kill repeats at most "
    "one chunk.",
    method="There are a topic of records, a source that began at the end of the topic, and two views over all "
    f"records: one appends rows, the other counts by a key. {_KILLS} processes that create them are killed by "
    "SIGKILL, Python and JVM, at random fault points: before and after a chunk's append, at the end of the "
    f"history, while the checkpoint moves to the log, before and after going live. The first {LARGE} seeds have "
    "1,000,000 records in chunks of 100,000, the others 20,000 in chunks of 3,000. Then each view is compared with "
    "the topic, row by row, and the chunks that were read are counted.",
    seeds=range(12),
    check=_check,
)
