"""Twenty tables of one source that captures PostgreSQL's changes: the number of times that the server sends a change,
and the number of connections."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.captured import SECRET, SERVER, create_source
from bench.harness import Case, NotRunError, Pair
from bench.sql_session import SqlSession, sql_session
from bench.streaming import wait_until
from tests.support.postgres import PASSWORD, programs, running_server

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

TABLES = tuple(f"t{number}" for number in range(20))
_ROWS = 1_000
_TRANSACTIONS = 100
_SLOT = "twenty"
_SECONDS = 600.0


def _measured(session: SqlSession, postgres: PostgresInfo, first: int) -> Mapping[str, float]:
    """Commits transactions that change every table, waits until each table has all changes, and returns the figures."""
    before, logged_before = _decoded(postgres), _logged(session)
    for number in range(first, first + _TRANSACTIONS):
        changed = "; ".join(
            f"INSERT INTO {table} VALUES ({_ROWS + number}, 'new'); UPDATE {table} SET word = 'u{number}' WHERE id = "
            f"{1 + number % _ROWS}"
            for table in TABLES
        )
        postgres.run(f"BEGIN; {changed}; COMMIT")
    most = 0

    def is_equal() -> bool:
        nonlocal most
        ((now,),) = postgres.run("SELECT count(*) FROM pg_stat_replication")
        most = max(most, now)
        return _is_equal(session, postgres)

    wait_until(is_equal, "each table has all changes", seconds=_SECONDS, every=0.1)
    return {
        _CONNECTIONS: most,
        _SENT: (_decoded(postgres) - before) / _TRANSACTIONS,
        _STORED: (_logged(session) - logged_before) / (_TRANSACTIONS * len(TABLES) * 2),
    }


def _decoded(postgres: PostgresInfo) -> int:
    """The transactions that the server has decoded for the slot so far."""
    rows = postgres.run(f"SELECT total_txns FROM pg_stat_replication_slots WHERE slot_name = '{_SLOT}'")
    return int(rows[0][0])


def _logged(session: SqlSession) -> int:
    ((rows,),) = session.run("SELECT count(*) FROM pg")
    return int(rows)


def _is_equal(session: SqlSession, postgres: PostgresInfo) -> bool:
    query = " UNION ALL ".join(f"SELECT '{table}' AS name, id, word FROM {table}" for table in TABLES)
    return sorted(map(tuple, session.run(query))) == sorted(postgres.run(query))


@contextmanager
def _open() -> Iterator[Pair]:
    if programs() is None:
        raise NotRunError("PostgreSQL is not installed")
    os.environ[SECRET] = PASSWORD
    with (
        TemporaryDirectory(prefix="rw_sql_bench_") as folder,
        running_server(**SERVER) as server,
        sql_session(Path(folder) / "warehouse") as session,
    ):
        postgres = server.info
        session.run(f"CREATE SECRET pw WITH (backend = 'env', name = '{SECRET}')", create_source(postgres, _SLOT))
        for table in TABLES:
            postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
            postgres.run(f"INSERT INTO {table} SELECT g, '{table}' || g FROM generate_series(1, {_ROWS}) g")
            session.run(f"CREATE TABLE {table} (*) FROM pg TABLE 'public.{table}'")
        wait_until(lambda: _is_equal(session, postgres), "each table has its rows", seconds=_SECONDS, every=0.5)
        numbers = iter(range(1, 1 << 30, _TRANSACTIONS))
        yield Pair(
            ours=lambda: _measured(session, postgres, next(numbers)),
            settings={
                "tables": f"{len(TABLES)} of {_ROWS:,} rows, in one source; {_TRANSACTIONS} transactions of an insert "
                "and an update in each table; at the end the tables equal PostgreSQL's",
                "connections": "the greatest number of rows of pg_stat_replication that was seen",
                "sent": "total_txns of pg_stat_replication_slots, per transaction",
            },
        )


_CONNECTIONS, _SENT, _STORED = (f"capture_20_tables_{name}" for name in ("connections", "sent", "stored"))

CASES = tuple(
    Case(
        name=name,
        title=f"20 tables of PostgreSQL: {title}",
        peer="",
        unit=unit,
        goal=1.0,
        is_manual=True,
        runs=1,
        warm_ups=0,
        open=_open,
    )
    for name, title, unit in (
        (_CONNECTIONS, "replication connections", "connections"),
        (_SENT, "how often the server decodes a transaction", "times"),
        (_STORED, "how often a change is in the source's log", "times"),
    )
)
