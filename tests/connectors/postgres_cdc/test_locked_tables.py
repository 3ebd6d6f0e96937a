"""Locks that maintenance of one table of PostgreSQL holds do not stop the checks of a source's tables."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.connectors.postgres_cdc import reader
from rw_sql.connectors.postgres_cdc.connection import connect
from rw_sql.connectors.postgres_cdc.relation_files import partitions_of
from tests.support.postgres import PASSWORD
from tests.support.postgres_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.changes import SchemaChange
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("often_checked")]


@pytest.fixture(autouse=True)
def _locks_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHECK_SHARE", 0)
    monkeypatch.setattr(reader, "_LOCK_SECONDS", 1)


@pytest.fixture
def replica(postgres: PostgresInfo, name: str) -> Iterator[Replica]:
    """The closed replica of a plain table, of a partitioned table, and of a third table that stays free."""
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, c INT)")
    postgres.run(f"CREATE TABLE {name}_parted (id INT PRIMARY KEY, word TEXT) PARTITION BY RANGE (id)")
    postgres.run(f"CREATE TABLE {name}_1 PARTITION OF {name}_parted FOR VALUES FROM (0) TO (10)")
    postgres.run(f"CREATE TABLE {name}_free (id INT PRIMARY KEY)")
    postgres.run(f"INSERT INTO {name} VALUES (1, 1); INSERT INTO {name}_parted VALUES (1, 'x')")
    made = Replica(cdc_options(postgres), [name, f"{name}_parted", f"{name}_free"])
    made.catch_up(postgres)
    made.close()
    yield made
    made.drop()


@contextmanager
def locked(postgres: PostgresInfo, *tables: str) -> Iterator[None]:
    """Holds the lock that VACUUM FULL, CLUSTER and TRUNCATE hold."""
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
    ) as other:
        other.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        other.rollback()


def read_one(replica: Replica, postgres: PostgresInfo, number: int) -> list[SchemaChange]:
    """Reads a new row of the free table, and checks the tables meanwhile."""
    postgres.run(f"INSERT INTO {replica.names[2]} VALUES ({number})")
    changes: list[SchemaChange] = []

    def has_row() -> bool:
        changes.extend(replica.step(wait=0.2).changes)
        return len(replica.rows[replica.names[2]]) == number

    wait_until(has_row, "the row is read")
    assert has_row()  # after another check
    return changes


def test_the_other_tables_are_read_while_a_table_and_a_partition_are_locked(
    postgres: PostgresInfo, name: str, replica: Replica
) -> None:
    with locked(postgres, name, f"{name}_1"):
        assert read_one(replica, postgres, 1) == []
        replica.close()
        assert read_one(replica, postgres, 2) == []
    postgres.run(f"TRUNCATE {name}")
    replica.catch_up(postgres)
    assert replica.differences() == {}


def test_a_table_that_was_rewritten_and_is_locked_is_checked_later(
    postgres: PostgresInfo, name: str, replica: Replica
) -> None:
    postgres.run(f"ALTER TABLE {name} ALTER c TYPE INT USING c * 100")
    with locked(postgres, name):
        assert read_one(replica, postgres, 1) == []
    found: list[SchemaChange] = []

    def has_one() -> bool:
        found.extend(replica.step(wait=0.2).changes)
        return bool(found)

    wait_until(has_one, "the change is noticed")
    assert set(found[0].dropped) == {"c"}


def test_a_size_that_is_not_that_of_the_file_in_the_snapshot_does_not_count(
    postgres: PostgresInfo, name: str, replica: Replica
) -> None:
    with connect(replica.options, 30) as connection:
        with connection.transaction():
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = connection.execute(f"SELECT '{name}_parted'::regclass::oid::bigint".encode()).fetchone()
            assert row is not None
            postgres.run(f"TRUNCATE {name}_1")
            (partition,) = partitions_of(connection, row[0])
            assert not partition.storage.is_empty
            assert connection.execute(b"SHOW lock_timeout").fetchone() == ("0",)
        (partition,) = partitions_of(connection, row[0])
        assert partition.storage.is_empty
