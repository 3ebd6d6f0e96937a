"""Change data capture in a live session: the tables of a source equal those of a real PostgreSQL."""

from __future__ import annotations

import base64
import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, wait_until
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


class Database:
    """A schema of a real database, a source ``pg`` over it, and what a query returns on both sides."""

    def __init__(self, session: AttachedSession, postgres: PostgresInfo) -> None:
        self.session, self.postgres = session, postgres
        self.schema = f"s_{uuid.uuid4().hex[:8]}"
        self.slot = f"slot_{self.schema}"
        self.run(f"CREATE SCHEMA {self.schema}")
        session.run(f"CREATE SECRET pw WITH (backend = 'meta') AS '{PASSWORD}'")

    def create_source(self, name: str = "pg", **more: str) -> None:
        given = {
            "connector": "postgres-cdc",
            "hostname": "127.0.0.1",
            "port": str(self.postgres.port),
            "username": self.postgres.user,
            "database.name": "postgres",
            "slot.name": self.slot,
            "publication.name": f"pub_{self.schema}",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        listed = ", ".join(f"{key} = '{value}'" for key, value in given.items())
        self.session.run(f"CREATE SOURCE {name} WITH ({listed}, password = SECRET pw)")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = self.postgres.run(statement.replace("{s}", self.schema))
        return rows

    def is_equal(self, table: str, columns: str = "*", upstream: str | None = None) -> bool:
        theirs = self.run(f"SELECT {columns} FROM {{s}}.{upstream or table}")
        return self.session.rows_of(table, columns) == sorted(
            theirs, key=lambda row: [(value is not None, value) for value in row]
        )

    def wait_equal(self, table: str, columns: str = "*", upstream: str | None = None) -> None:
        wait_until(lambda: self.is_equal(table, columns, upstream), f"{table} to equal the database's")

    def drop(self) -> None:
        self.run(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{self.slot}'",
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{self.slot}'",
            f"DROP PUBLICATION IF EXISTS pub_{self.schema}",
            "DROP SCHEMA {s} CASCADE",
        )


@pytest.fixture
def database(session: AttachedSession, postgres: PostgresInfo) -> Iterator[Database]:
    made = Database(session, postgres)
    yield made
    session.detach()
    made.drop()


def test_changes_of_every_kind_arrive(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {s}.orders (id INT PRIMARY KEY, word TEXT, amount NUMERIC(10, 2), big TEXT)",
        "INSERT INTO {s}.orders SELECT g, 'w' || g, g / 4.0, NULL FROM generate_series(1, 2500) g",
    )
    database.create_source()
    session.run(f"CREATE TABLE orders (*) FROM pg TABLE '{database.schema}.orders'")
    database.wait_equal("orders")
    database.run(
        "INSERT INTO {s}.orders SELECT 3000, 'toast', 1, string_agg(md5(g::text), '') FROM generate_series(1, 500) g",
        "UPDATE {s}.orders SET word = 'changed' WHERE id IN (1, 3000)",
        "UPDATE {s}.orders SET id = 4000 WHERE id = 3000",
        "DELETE FROM {s}.orders WHERE id = 2",
        "BEGIN; INSERT INTO {s}.orders VALUES (9, 'never', 1, NULL) ON CONFLICT DO NOTHING; ROLLBACK",
    )
    database.wait_equal("orders")
    database.run("TRUNCATE {s}.orders", "INSERT INTO {s}.orders VALUES (1, 'again', 2, 'x')")
    database.wait_equal("orders")
    assert session.job("orders").restarts == 0
