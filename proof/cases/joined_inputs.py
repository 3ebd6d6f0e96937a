"""A view that joins a Kafka-Avro table, a NATS stream and an Iceberg table, during an hour of changes to these inputs
and moves of their sources."""

from __future__ import annotations

import os
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker, nats, spark
from rw_sql.cli.servers.schema_registry import start_registry, stop_registry
from rw_sql.runtime.observe import upstream_watcher
from tests.integration.joined_inputs import JoinedInputs

MINUTES = int(os.environ.get("RW_SQL_JOIN_MINUTES", "60"))
"""The minimum duration of the changes in minutes, from the environment variable ``RW_SQL_JOIN_MINUTES``."""

STEPS = 30 * MINUTES
MOVES = max(3, MINUTES // 3)


def _check(seed: int, folder: Path) -> Facts:
    upstream_watcher.DISCOVERY_SECONDS = 0.5
    bootstrap, server = broker().bootstrap, nats()
    # Spark starts here, before the minutes begin.
    spark()
    registry = start_registry(folder / "registry", port=0)
    try:
        with attached(folder / "warehouse") as session:
            session.allow_unsafe()
            joined = JoinedInputs(
                session,
                seed=seed,
                bootstrap=bootstrap,
                registry=registry.url,
                nats=server,
                folder=folder,
                name=f"joined{seed}",
            )
            facts = joined.run(moves=MOVES, steps=STEPS, seconds=60.0 * MINUTES)
            joined.drop()
    finally:
        stop_registry(folder / "registry")
    return dict(sorted(facts.items()))


PROOF = Proof(
    name="joined-inputs",
    claim="A view that joins a Kafka-Avro table, a NATS stream and an Iceberg table equals its batch query after "
    f"{MINUTES} minutes of changes and {MOVES} moves.",
    method=(
        "The inputs change: upserts and deletes on a table keyed by Avro keys, by up to 13 writer schemas of a real "
        "registry; messages of two NATS streams; appends to an Iceberg table; and records that cannot be decoded. In "
        "between, one of these operations is run: INJECT of one of the three sources (VALUES, EARLIEST, LATEST, "
        "SHIFT), RESET SOURCE SPLITS (also of an added partition, also with FORGET_OFFSETS), a move to another topic "
        "or stream by UNSAFE SET and RESET (statement by statement or as a block), UNDO of such a move before or "
        "after its source has read more records, and REFRESH SCHEMA with a new column. In half of the moves, records "
        "are written while the source is paused. After each move, the following are compared with Python dictionaries "
        "of the records that were written from the positions that the statements set: the table of users, the rows of "
        "the other two sources, an inner join of all three, an outer join of two, and the number of undecodable "
        "records. The same queries in Spark must give the same rows. In the end, SHOW SOURCE CONTINUITY finds no wrong "
        "prediction."
    ),
    seeds=range(1),
    check=_check,
)
