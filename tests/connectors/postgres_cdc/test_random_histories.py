"""Random histories of concurrent transactions, read by readers that end anywhere: the replica equals the server, and
its log has each change once, as PostgreSQL's ``test_decoding`` shows them."""

from __future__ import annotations

import random
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import SNAPSHOT
from tests.support.postgres_changes import Replica, Writers, cdc_options, create_tables
from tests.support.postgres_log import decoded_changes, transactions

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

_PARTS = ("low", "high")


def run_history(postgres: PostgresInfo, seed: int, steps: int) -> Replica:
    """Writers write while a reader reads. The reader ends now and then, with or without a commit of what it took, and
    tables are read again beside the writers."""
    chance = random.Random(seed)
    word = uuid.uuid4().hex[:8]
    schema, oracle = f"h_{word}", f"oracle_{word}"
    names = create_tables(postgres, schema)
    writers = Writers(postgres, names, random.Random(seed + 1_000_000))
    replica = Replica(cdc_options(postgres), names, chunk_rows=chance.choice((2, 10, 40)))
    postgres.run(f"SELECT pg_create_logical_replication_slot('{oracle}', 'test_decoding')")
    ended = threading.Event()

    def write() -> None:
        # A limit, because a machine may give all its time to the writers.
        for _ in range(30 * steps):
            if ended.is_set():
                return
            writers.act()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        for _ in range(steps):
            what = chance.random()
            if what < 0.85:
                replica.step(
                    most=chance.choice((1, 10, 1000)), wait=chance.choice((0, 0, 0.02)), acknowledges=what < 0.6
                )
                assert replica.confirmed() <= replica.state.offset
            elif what < 0.92 and replica.reader is not None:
                replica.reader.take(1000, 0.0)
                replica.close()
            elif what < 0.94:
                replica.close()
            else:
                replica.read_anew(chance.choice(names))
        ended.set()
        thread.join()
        writers.close()
        replica.catch_up(postgres)
        assert replica.differences() == {}
        assert replica.confirmed() <= replica.state.offset
        tables = {name: name for name in names} | {f"{schema}.parted_{part}": f"{schema}.parted" for part in _PARTS}
        keys = {name: ("b", "a") if name.endswith(".texts") else ("id",) for name in names}
        logged = transactions(record for record in replica.log if record["op"] != SNAPSHOT)
        assert logged == list(decoded_changes(replica.options, oracle, tables, keys))
    finally:
        ended.set()
        thread.join()
        writers.close()
        replica.drop()
        postgres.run(f"SELECT pg_drop_replication_slot('{oracle}')")
    return replica


@pytest.mark.postgres
def test_a_replica_equals_the_server(postgres: PostgresInfo) -> None:
    run_history(postgres, 1, 25)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_replica_equals_the_server_after_more(postgres: PostgresInfo, seed: int) -> None:
    run_history(postgres, seed, 150)
