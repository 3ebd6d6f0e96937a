"""The check of a sink's table in PostgreSQL: privileges on schemas, tables and columns, servers that cannot be written,
and odd names in hints."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.jdbc.sink import JdbcSink
from rw_sql.connectors.sink import SinkLook, SinkShape, TargetUnfitError
from tests.support.postgres import PASSWORD
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

UPSERT = shape("upsert", "id")


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    """A table (id PRIMARY KEY, word) that only this test uses."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
    return name


@pytest.fixture
def user(postgres: PostgresInfo) -> str:
    """A user without privileges."""
    name = f"u_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
    return name


def options(server: PostgresInfo, table: str, user: str = "postgres", **more: str) -> dict[str, str]:
    return {"jdbc.url": server.url, "user": user, "password": PASSWORD, "table.name": table, **more}


def test_a_schema_that_the_user_may_not_use_is_no_unreachable_server(postgres: PostgresInfo, user: str) -> None:
    schema = f"S {uuid.uuid4().hex[:8]}"
    postgres.run(f'CREATE SCHEMA "{schema}"')
    postgres.run(f'CREATE TABLE "{schema}".t (id INT, word TEXT)')
    postgres.run(f'GRANT INSERT ON "{schema}".t TO {user}')
    given = options(postgres, "t", user) | {"schema.name": schema}
    found = JdbcSink().look(given, shape())
    assert (found.error, found.misfit) == (None, f'the user lacks the privilege USAGE on schema "{schema}"')
    assert found.hint == f'in the database: GRANT USAGE ON SCHEMA "{schema}" TO …'
    postgres.run(f'GRANT USAGE ON SCHEMA "{schema}" TO {user}')
    assert JdbcSink().look(given, shape()) == SinkLook()


def test_privileges_on_columns_are_enough(postgres: PostgresInfo, table: str, user: str) -> None:
    given = options(postgres, table, user)
    postgres.run(f"GRANT INSERT (id) ON {table} TO {user}")
    found = JdbcSink().look(given, shape())
    assert found.misfit == f'the user lacks the privilege INSERT on column "word" of table public.{table}'
    assert found.hint == f"in the database: GRANT INSERT (word) ON public.{table} TO …"
    postgres.run(f"GRANT INSERT (word) ON {table} TO {user}")
    assert JdbcSink().look(given, shape()) == SinkLook()
    assert JdbcSink().look(given, UPSERT).misfit == f"the user lacks the privilege SELECT on table public.{table}"
    postgres.run(f"GRANT SELECT (id, word), UPDATE (word) ON {table} TO {user}")
    assert JdbcSink().look(given, UPSERT) == SinkLook()
    writer = JdbcSink().open(given, UPSERT, "me")
    for word in "ab":
        writer.write(batch((1, word)), 0)
    writer.close()
    assert postgres.run(f"SELECT id, word FROM {table}") == [(1, "b")]


def test_a_server_that_cannot_be_written_is_found_before_the_first_row(
    postgres: PostgresInfo, table: str, user: str
) -> None:
    postgres.run(f"GRANT INSERT ON {table} TO {user}")
    given = options(postgres, table, user)
    writer = JdbcSink().open(given, shape(), "me")
    postgres.run(f"ALTER USER {user} SET default_transaction_read_only = on")
    assert JdbcSink().look(given, shape()).misfit == "the transactions of the user are read-only"
    writer._connection.execute("SET default_transaction_read_only = on")
    writer._connection.commit()
    with pytest.raises(TargetUnfitError, match="read-only transaction"):
        writer.write(batch((1, "a")), 0)
    writer.close()


def test_hints_quote_odd_names(postgres: PostgresInfo) -> None:
    name = f"T {uuid.uuid4().hex[:8]}"
    postgres.run(f'CREATE TABLE "{name}" ("a b" INT, "select" INT)')

    def look(type_: str, *columns: str) -> SinkLook:
        fields = [{"name": each, "type": "integer", "nullable": True, "metadata": {}} for each in columns]
        schema = json.dumps({"type": "struct", "fields": fields})
        keys = columns if type_ == "upsert" else ()
        return JdbcSink().look(options(postgres, name), SinkShape(name="k", type=type_, schema=schema, keys=keys))

    assert look("append-only", "a c").hint == (
        f'did you mean "a b"? AS SELECT `a c` AS `a b` …; or ALTER TABLE public."{name}" ADD COLUMN "a c" … in '
        "PostgreSQL; or omit it: CREATE SINK … AS SELECT …"
    )
    assert look("upsert", "a b", "select").hint == (
        f'in the database: ALTER TABLE public."{name}" ADD PRIMARY KEY ("a b", "select")'
    )
    long = "é" * 32
    assert look("append-only", long).misfit == (
        f'the name of column "{long}" is longer than 63 bytes, the maximum in PostgreSQL'
    )
