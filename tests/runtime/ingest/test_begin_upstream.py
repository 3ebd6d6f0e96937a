"""The first attempts to read a captured database: what they create upstream is recorded, also if they fail."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import CaptureError, TableProgress
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.postgres_cdc.reader import PostgresReader
from rw_sql.connectors.postgres_cdc.server import read_facts
from rw_sql.connectors.registry import change_connector
from rw_sql.metastore import Snapshot
from rw_sql.runtime.ingest.capture import begin_upstream
from rw_sql.runtime.jobs.made_upstream import made_upstream, note_made, release_upstream
from tests.runtime.jobs.test_made_upstream import captured, context_of
from tests.support.postgres import PASSWORD
from tests.support.postgres_changes import TIMEOUT, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.jobs.context import Context
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path)


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    name = f"public.t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY); CREATE TABLE {name}_other (id INT PRIMARY KEY)")
    return name


def begin(context: Context, options: dict[str, str], table: str, offset: int) -> SplitState:
    state = SplitState(split="postgres", offset=offset)
    kind = change_connector("postgres-cdc")
    return begin_upstream(context, kind, captured(options), options, state, (table,), is_new=True)


def has_publication(postgres: PostgresInfo, options: dict[str, str]) -> bool:
    return bool(postgres.run(f"SELECT 1 FROM pg_publication WHERE pubname = '{options['publication.name']}'"))


def test_a_new_publication_waits_for_older_transactions_however_often_it_is_tried(
    postgres: PostgresInfo, context: Context, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = setup.prepare
    monkeypatch.setattr(setup, "prepare", lambda options, tables, _timeout, **more: real(options, tables, 0.5, **more))
    options = cdc_options(postgres)
    postgres.run(f"SELECT pg_create_logical_replication_slot('{options['slot.name']}', 'pgoutput')")
    at_creation = read_facts(options, TIMEOUT).end
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
    ) as older:
        older.execute(f"INSERT INTO {table}_other VALUES (1)".encode())
        for _ in range(2):
            with pytest.raises(CaptureError, match="transactions that began before the publication") as caught:
                begin(context, options, table, at_creation)
            assert caught.value.is_temporary
        with psycopg.connect(
            host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
        ) as younger:
            younger.execute(f"INSERT INTO {table}_other VALUES (2)".encode())
            older.commit()
            state = begin(context, options, table, at_creation)
    assert state.offset > at_creation
    made = made_upstream(context.warehouse, captured(options))
    assert (made.get("slot", False), made["publication"]) == (False, True)
    reader = PostgresReader(options)
    reader.open(state, {table: TableProgress(table=table)})
    postgres.run(f"INSERT INTO {table} VALUES (1)")
    wait_until(lambda: reader.take(100, 0.2).records.num_rows > 0, "the stream")
    reader.close()
    assert release_upstream(context, Snapshot, 7)
    assert not has_publication(postgres, options)
    assert setup.release(options, slot=True, publication=False, timeout=TIMEOUT) == ()


def test_a_publication_of_an_attempt_that_fails_is_dropped_with_the_source(
    postgres: PostgresInfo, context: Context, table: str
) -> None:
    role = f"reader_{table.partition('.')[2]}"
    postgres.run(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'; GRANT SELECT ON {table} TO {role}")
    postgres.run(f"GRANT CREATE ON DATABASE postgres TO {role}")
    options = cdc_options(postgres, username=role)
    with pytest.raises(CaptureError, match="must own table") as caught:
        begin(context, options, table, 0)
    assert not caught.value.is_temporary
    assert has_publication(postgres, options)
    note_made(context.warehouse, captured(options))
    assert made_upstream(context.warehouse, captured(options))["publication"] is True
    assert release_upstream(context, Snapshot, 7)
    assert not has_publication(postgres, options)
    postgres.run(f"REVOKE CREATE ON DATABASE postgres FROM {role}; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_publication_that_could_not_be_created_is_not_the_sources(
    postgres: PostgresInfo, context: Context, table: str
) -> None:
    role = f"reader_{table.partition('.')[2]}"
    postgres.run(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'; GRANT SELECT ON {table} TO {role}")
    for more in ({}, {"publication.create.enable": "false"}):
        options: Any = cdc_options(postgres, username=role) | more
        with pytest.raises(CaptureError):
            begin(context, options, table, 0)
        postgres.run(f"CREATE PUBLICATION {options['publication.name']}")
        assert release_upstream(context, Snapshot, 7)
        assert has_publication(postgres, options)
        postgres.run(f"DROP PUBLICATION {options['publication.name']}")
    postgres.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
