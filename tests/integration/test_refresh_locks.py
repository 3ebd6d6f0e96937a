"""Refreshes of tables that another transaction locks, truncates or rewrites at the same time."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from rw_sql.connectors.jdbc import reader as jdbc_reader
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.refreshed_table import Upstream
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def orders(session: AttachedSession, postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())
    return Upstream(
        session, postgres, "id INT PRIMARY KEY, word TEXT, n INT", "id INT PRIMARY KEY, word VARCHAR, n INT"
    )


@pytest.mark.postgres
@pytest.mark.parametrize("is_read", [False, True], ids=["before the snapshot", "while it is read"])
def test_a_refresh_that_waits_for_a_lock_can_be_cancelled_and_its_table_dropped(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    orders.run("INSERT INTO {t} VALUES (1, 'a', 1)")
    real = jdbc_reader.read_snapshot

    def waits() -> bool:
        found = orders.postgres.run("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted")
        return bool(found[0][0])

    def cancel() -> None:
        wait_until(waits, "the refresh waits for the lock")
        (id_,) = (row.ddl_id for row in session.sql("SELECT ddl_id FROM rw_catalog.rw_ddl_progress"))
        session.sql(f"CANCEL JOBS {id_}")

    with psycopg.connect(host="127.0.0.1", port=orders.postgres.port, user="postgres", password=PASSWORD) as other:

        def lock() -> None:
            other.execute(f"LOCK TABLE {orders.name} IN ACCESS EXCLUSIVE MODE".encode())

        def read_snapshot(*given: Any) -> Any:
            made = real(*given)
            lock()
            return made

        if is_read:
            monkeypatch.setattr(jdbc_reader, "read_snapshot", read_snapshot)
        else:
            lock()
        session.sql("REFRESH TABLE t")
        cancel()
        monkeypatch.setattr(jdbc_reader, "read_snapshot", real)
        session.sql("REFRESH TABLE t")
        wait_until(lambda: not waits() or session.job("t").reason.startswith("loading"), "the next refresh begins")
        other.rollback()
        session.sql("WAIT TABLE t")
        assert session.rows_of("t") == [(1, "a", 1)]
        lock()
        session.sql("REFRESH TABLE t")
        wait_until(waits, "the refresh waits for the lock")
        session.sql("DROP TABLE t")
        wait_until(lambda: not waits(), "the wait ends")


@pytest.mark.postgres
def test_a_table_that_is_truncated_after_the_snapshot_keeps_its_rows(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.run("INSERT INTO {t} VALUES (1, 'a', 1)")
    orders.refresh()
    real = jdbc_reader.read_snapshot

    def read_snapshot(*given: Any) -> Any:
        orders.run("TRUNCATE {t}; INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2)")
        return real(*given)

    monkeypatch.setattr(jdbc_reader, "read_snapshot", read_snapshot)
    session.sql("REFRESH TABLE t")
    (notice,) = session.sql("WAIT TABLE t")
    assert (
        f"table public.{orders.name} was truncated or rewritten during the read: run REFRESH TABLE again"
        in notice.detail
    )
    assert session.rows_of("t") == [(1, "a", 1)]
    monkeypatch.setattr(jdbc_reader, "read_snapshot", real)
    orders.refresh()
    assert session.rows_of("t") == [(1, "a", 1), (2, "b", 2)]
