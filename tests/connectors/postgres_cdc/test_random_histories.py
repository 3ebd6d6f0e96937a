"""Random histories of concurrent transactions, read by readers that end anywhere: the replica equals the server."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.postgres_changes import Replica, Writers, cdc_options, create_tables

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo


def run_history(postgres: PostgresInfo, seed: int, steps: int) -> Replica:
    """Writers and a reader take turns; the reader ends now and then, with or without a commit of what it took."""
    chance = random.Random(seed)
    names = create_tables(postgres, f"h_{uuid.uuid4().hex[:8]}")
    writers = Writers(postgres, names, chance)
    try:
        for _ in range(chance.randint(0, 60)):
            writers.act()
        for connection in writers.connections:
            connection.commit()
        replica = Replica(cdc_options(postgres), names, chunk_rows=chance.choice((1, 3, 20, 200)))
        try:
            for _ in range(steps):
                what = chance.random()
                if what < 0.70:
                    writers.act()
                elif what < 0.94:
                    replica.step(most=chance.choice((1, 10, 1000)), acknowledges=chance.random() < 0.7)
                    assert replica.confirmed() <= replica.state.offset
                elif what < 0.97:
                    if replica.reader is not None:
                        replica.reader.take(1000, 0.0)
                    replica.close()
                else:
                    replica.close()
            writers.close()
            replica.catch_up(postgres)
            assert replica.differences() == {}
            assert replica.confirmed() <= replica.state.offset
        finally:
            replica.drop()
    finally:
        writers.close()
    return replica


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(4))
def test_a_replica_equals_the_server(postgres: PostgresInfo, seed: int) -> None:
    run_history(postgres, seed, 250)
