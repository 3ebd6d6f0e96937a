"""Kills of Python, of its JVM and of both, at every fault point. After each kill, the rows equal the rows of an
oracle."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from tests.crash.chain import Chain
from tests.crash.kills import DEALT, POINTS, dealt_chain

ROUNDS = 2


def _check(seed: int, folder: Path) -> Facts:
    broker = start_broker(folder / "broker", port=0)
    try:
        (folder / "chain").mkdir()
        return Chain(folder / "chain", broker.bootstrap, seed=seed).run(dealt_chain(seed))
    finally:
        stop_broker(folder / "broker")


PROOF = Proof(
    name="kill-chains",
    claim="Processes that are killed, one after the other, lose and repeat no record unless a statement asked for it.",
    method="Each seed is a chain of about eight kills, at random places of a workflow (CREATE, small and large "
    f"batches, UNSAFE SET, RESET and INJECT while paused and while running). Each of {len(POINTS)} fault points is "
    f"combined with a kill of Python alone, of the JVM alone and of both; {DEALT} seeds contain each of these pairs "
    "once. After each kill, the next process starts at once. Then the log and two views are compared, record by "
    "record, with the result that the workflow's steps define.",
    seeds=range(ROUNDS * DEALT),
    check=_check,
)
