"""A schema in a real PostgreSQL server, and a source that captures the schema's tables."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from tests.integration.attached import wait_until
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.postgres import PostgresInfo


class Database:
    """A schema of a real database, and a source ``pg`` that captures its tables. The class compares the results of
    queries on both sides."""

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

    def slots(self) -> list[tuple[Any, ...]]:
        """The slots of this schema's sources, each with the process that reads it."""
        return self.run(f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE slot_name LIKE '%{self.schema}'")

    def drop(self) -> None:
        wait_until(lambda: all(pid is None for _, pid in self.slots()), "the readers to leave their slots")
        self.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name LIKE '%{self.schema}'",
            f"DROP PUBLICATION IF EXISTS pub_{self.schema}",
            "DROP SCHEMA {s} CASCADE",
        )
