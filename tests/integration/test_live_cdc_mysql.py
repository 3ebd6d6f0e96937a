"""Change data capture in a live session: the tables of a source equal those of a real MariaDB."""

from __future__ import annotations

import base64
import os
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.errors import SqlError
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, wait_until
from tests.support.mysql import MARIADB, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.mysql import MysqlInfo

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.mysql]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


class Database:
    """A database of a real server, a source ``my`` over it, and what a query returns on both sides."""

    def __init__(self, session: AttachedSession, server: MysqlInfo) -> None:
        self.session, self.server = session, server
        self.name = f"d_{uuid.uuid4().hex[:8]}"
        self.run("CREATE DATABASE {d} CHARACTER SET utf8mb4")
        session.run(f"CREATE SECRET pw WITH (backend = 'meta') AS '{server.password}'")

    def create_source(self, name: str = "my") -> None:
        self.session.run(
            f"CREATE CONNECTION {name}_db WITH (type = 'mysql', hostname = '127.0.0.1', port = '{self.server.port}', "
            f"username = '{self.server.user}', password = SECRET pw, database.name = '{self.name}')",
            f"CREATE SOURCE {name} WITH (connector = 'mysql-cdc', connection = {name}_db)",
        )

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*(statement.replace("{d}", self.name) for statement in statements))

    def is_equal(self, table: str, columns: str = "*") -> bool:
        theirs = self.run(f"SELECT {columns} FROM {{d}}.{table}")
        return self.session.rows_of(table, columns) == sorted(
            theirs, key=lambda row: [(value is not None, value) for value in row]
        )

    def wait_equal(self, table: str, columns: str = "*") -> None:
        wait_until(lambda: self.is_equal(table, columns), f"{table} to equal the database's")


@pytest.fixture
def database(session: AttachedSession, mariadb: MysqlInfo) -> Iterator[Database]:
    made = Database(session, mariadb)
    yield made
    made.session.detach()
    made.run("DROP DATABASE {d}")


def test_changes_of_every_kind_arrive(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {d}.orders (id INT PRIMARY KEY, word VARCHAR(20), amount DECIMAL(10, 2), big LONGTEXT)",
        "INSERT INTO {d}.orders SELECT seq, CONCAT('w', seq), seq / 4, NULL FROM {d}.seq_1_to_2500",
        "CREATE TABLE {d}.kinds (id BIGINT UNSIGNED PRIMARY KEY, ok TINYINT(1), doc JSON, day DATE, "
        "at TIMESTAMP(6) NULL, data VARBINARY(9), kind ENUM('a', 'b'), clock TIME)",
        "INSERT INTO {d}.kinds VALUES (18446744073709551615, 1, '{\"a\": [1]}', '2024-02-29', NULL, x'00ff', 'b', "
        "'-1:00:00')",
    )
    database.create_source()
    session.run(
        f"CREATE TABLE orders (*) FROM my TABLE '{database.name}.orders'",
        "CREATE TABLE kinds (id NUMERIC(20, 0) PRIMARY KEY, ok BOOLEAN, doc JSONB, day DATE, data BYTEA, kind VARCHAR, "
        f"clock VARCHAR) INCLUDE database_name AS d INCLUDE table_name AS t FROM my TABLE '{database.name}.kinds'",
    )
    database.wait_equal("orders")
    database.run(
        "INSERT INTO {d}.orders VALUES (3000, 'large', 1, REPEAT('ü', 20000))",
        "UPDATE {d}.orders SET word = 'changed' WHERE id IN (1, 3000)",
        "UPDATE {d}.orders SET id = 4000 WHERE id = 3000",
        "DELETE FROM {d}.orders WHERE id = 2",
        "INSERT INTO {d}.kinds (id, ok, day) VALUES (2, 0, '2024-01-01'), (3, 1, '0000-00-00')",
    )
    database.wait_equal("orders")
    wait_until(lambda: len(session.rows_of("kinds", "id")) == 2, "the rows that fit")
    (row, other) = session.sql("SELECT * FROM kinds ORDER BY id DESC")
    assert (int(row.id), row.ok, str(row.day), bytes(row.data), row.kind, row.clock, row.d, row.t) == (
        2**64 - 1, True, "2024-02-29", b"\x00\xff", "b", "-01:00:00", database.name, "kinds",
    )  # fmt: skip
    assert (int(other.id), other.ok) == (2, False)
    (error,) = session.sql("SELECT reason FROM `kinds$errors`")
    assert error.reason.startswith('column "day"')
    database.run("TRUNCATE {d}.orders", "INSERT INTO {d}.orders VALUES (1, 'again', 2, 'x')")
    database.wait_equal("orders")
    (split,) = session.sql("SHOW SOURCE SPLITS my")
    assert (split.split, split.status) == (database.name, "OK")
    assert split.slot.startswith("mysql-bin.0000")
    assert split.position.startswith("0000")


def test_a_table_without_a_snapshot_begins_after_what_its_upstream_table_was(database: Database) -> None:
    session = database.session
    database.run("CREATE TABLE {d}.t (id INT PRIMARY KEY)", "CREATE TABLE {d}.ev (id INT PRIMARY KEY, word TEXT)")
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM my TABLE '{database.name}.t'", "PAUSE SOURCE my")
    database.run(
        "INSERT INTO {d}.ev VALUES (1, 'older')",
        "DROP TABLE {d}.ev",
        "CREATE TABLE {d}.ev (id INT PRIMARY KEY, word TEXT)",
        "INSERT INTO {d}.ev VALUES (2, 'before')",
        "INSERT INTO {d}.t VALUES (1)",
    )
    session.run(f"CREATE TABLE ev (*) WITH (snapshot = 'false') FROM my TABLE '{database.name}.ev'")
    database.run("INSERT INTO {d}.ev VALUES (3, 'after')")
    session.run("RESUME SOURCE my")
    wait_until(lambda: session.rows_of("ev") == [(3, "after")], "the table to have only what is new")
    database.wait_equal("t")
    assert session.job("my").state != "STALLED"


def test_what_a_purge_removed_stalls_until_the_tables_are_read_again(session: AttachedSession) -> None:
    with server_of(MARIADB) as server:
        database = Database(session, server.info)
        database.run(
            "CREATE TABLE {d}.t (id INT PRIMARY KEY, word VARCHAR(20))",
            "INSERT INTO {d}.t SELECT seq, CONCAT('w', seq) FROM {d}.seq_1_to_500",
        )
        database.create_source()
        session.run(f"CREATE TABLE t (*) FROM my TABLE '{database.name}.t'")
        database.wait_equal("t")
        session.allow_unsafe()
        session.run("PAUSE SOURCE my")
        database.run(
            "DELETE FROM {d}.t WHERE id BETWEEN 20 AND 30", "INSERT INTO {d}.t VALUES (1000, 'x')", "FLUSH LOGS"
        )

        def is_purged() -> bool:
            files = database.run("SHOW BINARY LOGS")
            database.run(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
            return len(database.run("SHOW BINARY LOGS")) == 1

        wait_until(is_purged, "the log to be purged")
        session.run("RESUME SOURCE my")
        wait_until(lambda: session.job("my").state == "STALLED", "the source to be stalled")
        assert "the server has purged its log up to" in session.job("my").reason
        again = "RESET SOURCE SPLITS my ALLOW GAPS WITH (FORGET_OFFSETS = true)"
        session.run("PAUSE SOURCE my", again, "RESUME SOURCE my")
        database.wait_equal("t")
        # A swap of tables, as gh-ost makes it: another table, which is read again too.
        database.run(
            "CREATE TABLE {d}.new_t LIKE {d}.t",
            "INSERT INTO {d}.new_t SELECT id + 1, word FROM {d}.t",
            "RENAME TABLE {d}.t TO {d}.old_t, {d}.new_t TO {d}.t",
        )
        wait_until(lambda: session.job("my").state == "STALLED", "the source to be stalled")
        assert "was renamed to" in session.job("my").reason
        session.run("PAUSE SOURCE my", again, "RESUME SOURCE my")
        database.wait_equal("t")
        database.run("INSERT INTO {d}.t VALUES (1, 'after')")
        database.wait_equal("t")
        session.detach()


def test_tables_are_added_and_dropped_and_a_new_session_reads_on(
    database: Database, spark: SparkSession, warehouse: str
) -> None:
    session = database.session
    for name in ("a", "b", "c"):
        database.run(
            f"CREATE TABLE {{d}}.{name} (id INT PRIMARY KEY, word VARCHAR(30))",
            f"INSERT INTO {{d}}.{name} SELECT seq, CONCAT('{name}', seq) FROM {{d}}.seq_1_to_50",
        )
    database.create_source()
    session.run(
        f"CREATE TABLE a (*) FROM my TABLE '{database.name}.a'",
        "CREATE TABLE b (id BIGINT PRIMARY KEY, word VARCHAR) WITH (snapshot = 'false') "
        f"FROM my TABLE '{database.name}.b'",
    )
    database.run("INSERT INTO {d}.a VALUES (100, 'new')", "INSERT INTO {d}.b VALUES (100, 'new')")
    database.wait_equal("a")
    wait_until(lambda: session.rows_of("b") == [(100, "new")], "b to have only what is new")
    session.run(f"CREATE TABLE c (*) FROM my TABLE '{database.name}.c'")
    database.run("UPDATE {d}.c SET word = 'changed' WHERE id = 7", "DELETE FROM {d}.a WHERE id = 100")
    database.wait_equal("c")
    database.wait_equal("a")
    session.run("DROP TABLE c")
    session.detach()
    database.run("INSERT INTO {d}.a VALUES (101, 'while nobody reads')", "DROP TABLE {d}.c")
    database.run(
        "CREATE TABLE {d}.c (id INT PRIMARY KEY, word VARCHAR(30))", "INSERT INTO {d}.c VALUES (101, 'unread')"
    )
    database.session = session = AttachedSession(spark, warehouse)
    database.wait_equal("a")
    # A table that is made again begins with the rows that are there, whatever the log has of an older one.
    session.run(f"CREATE TABLE c (*) FROM my TABLE '{database.name}.c'")
    database.wait_equal("c")
    session.run("DROP SOURCE my CASCADE")


def test_undo_of_a_reset_ends_with_the_rows_that_are_upstream(database: Database) -> None:
    session = database.session
    session.allow_unsafe()
    database.run(
        "CREATE TABLE {d}.t (id INT PRIMARY KEY, word VARCHAR(20))",
        "INSERT INTO {d}.t SELECT seq, CONCAT('w', seq) FROM {d}.seq_1_to_3",
    )
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM my TABLE '{database.name}.t'")
    database.wait_equal("t")
    session.run("PAUSE SOURCE my", "RESET SOURCE SPLITS my ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    reset = session.epoch()
    session.run("RESUME SOURCE my")
    database.run("INSERT INTO {d}.t VALUES (4, 'after the reset')")
    database.wait_equal("t")
    session.run("PAUSE SOURCE my")
    database.run("DELETE FROM {d}.t WHERE id = 2")
    rows = session.sql(f"UNDO OPERATION {reset}")
    assert any(f"{database.name}.t is read again" in row.detail for row in rows)
    session.run("RESUME SOURCE my")
    database.wait_equal("t")
    database.run("INSERT INTO {d}.t VALUES (5, 'after the undo')")
    database.wait_equal("t")


def test_moves_find_transactions_by_time_and_skip_them_one_by_one(database: Database) -> None:
    session = database.session
    session.allow_unsafe()
    database.run(
        "CREATE TABLE {d}.t (id INT PRIMARY KEY, word VARCHAR(20))",
        "CREATE TABLE {d}.other (id INT PRIMARY KEY)",
        "INSERT INTO {d}.t VALUES (1, 'one'), (2, 'two')",
    )
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM my TABLE '{database.name}.t'")
    database.wait_equal("t")
    session.run("PAUSE SOURCE my")
    database.run("INSERT INTO {d}.other VALUES (1)", "INSERT INTO {d}.t VALUES (10, 'skipped'), (11, 'skipped')")
    ((second,),) = database.run("SELECT UNIX_TIMESTAMP() + 1")
    wait_until(lambda: database.run("SELECT UNIX_TIMESTAMP()")[0][0] > second, "the second after the next")
    database.run("INSERT INTO {d}.t VALUES (20, 'read')")
    at = datetime.fromtimestamp(second, UTC).isoformat()
    inject = f"INJECT SOURCE OFFSETS my TO TIMESTAMP '{at}' ALLOW GAPS"
    assert "skips 1 transaction with 2 changes" in "\n".join(row[0] for row in session.sql(f"EXPLAIN {inject}"))
    session.run(inject, "RESUME SOURCE my")
    wait_until(lambda: session.rows_of("t", "id") == [(1,), (2,), (20,)], "the table to lack what was skipped")

    session.run("PAUSE SOURCE my")
    database.run(
        "INSERT INTO {d}.other VALUES (2)", "INSERT INTO {d}.t VALUES (30, 'bad')", "INSERT INTO {d}.t VALUES (31, 'a')"
    )
    (split,) = session.sql("SHOW SOURCE SPLITS my")
    assert 0 <= split.lag_ms < 3_600_000
    session.run(f"SKIP RECORD AT '{database.name}' {split.next} ON SOURCE my", "RESUME SOURCE my")
    wait_until(lambda: session.rows_of("t", "id") == [(1,), (2,), (20,), (31,)], "the table to lack one row")

    def is_caught_up() -> bool:
        (split,) = session.sql("SHOW SOURCE SPLITS my")
        return (split.lag, split.lag_ms) == (0, 0)

    wait_until(is_caught_up, "the source to have no lag")
    session.run("PAUSE SOURCE my")
    with pytest.raises(SqlError, match="the server no longer has the changes since") as refused:
        session.sql("INJECT SOURCE OFFSETS my BACK BY INTERVAL '30 days' ALLOW DUPLICATES")
    assert "RESET SOURCE SPLITS my ALLOW GAPS" in (refused.value.hint or "")
