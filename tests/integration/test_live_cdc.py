"""Change data capture in a live session: the tables of a source equal those of a real PostgreSQL."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.captured_database import Database
from tests.support.postgres import PASSWORD, running_copy, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.postgres import PostgresInfo, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


@pytest.fixture
def database(session: AttachedSession, postgres: PostgresInfo) -> Iterator[Database]:
    made = Database(session, postgres)
    yield made
    made.session.detach()
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


def test_tables_are_added_and_dropped_and_a_new_session_reads_on(
    database: Database, spark: SparkSession, warehouse: str
) -> None:
    session = database.session
    for name in ("a", "b", "c"):
        database.run(
            f"CREATE TABLE {{s}}.{name} (id INT PRIMARY KEY, word TEXT)",
            f"INSERT INTO {{s}}.{name} SELECT g, '{name}' || g FROM generate_series(1, 50) g",
        )
    database.create_source()
    session.run(
        f"CREATE TABLE a (*) FROM pg TABLE '{database.schema}.a'",
        f"CREATE TABLE b (id BIGINT PRIMARY KEY, w VARCHAR FROM word) INCLUDE table_name AS t INCLUDE schema_name AS s "
        f"WITH (snapshot = 'false') FROM pg TABLE '{database.schema}.b'",
    )
    database.run("INSERT INTO {s}.a VALUES (100, 'new')", "INSERT INTO {s}.b VALUES (100, 'new')")
    database.wait_equal("a")
    wait_until(lambda: session.rows_of("b") == [(100, "new", "b", database.schema)], "b to have only what is new")
    session.run(f"CREATE TABLE c (*) FROM pg TABLE '{database.schema}.c'")
    database.run("UPDATE {s}.c SET word = 'changed' WHERE id = 7", "DELETE FROM {s}.a WHERE id = 100")
    database.wait_equal("c")
    database.wait_equal("a")
    session.run("DROP TABLE c")
    session.detach()
    database.run("INSERT INTO {s}.a VALUES (101, 'while nobody reads')", "INSERT INTO {s}.c VALUES (101, 'unread')")
    database.session = session = AttachedSession(spark, warehouse)
    database.wait_equal("a")
    # A table that is made again begins with the rows that are there.
    session.run(f"CREATE TABLE c (*) FROM pg TABLE '{database.schema}.c'")
    database.wait_equal("c")
    session.run("DROP SOURCE pg CASCADE")
    wait_until(lambda: not database.slots(), "the slot to be dropped with its source")


def test_tables_of_one_upstream_table_get_the_rows_that_each_needs(database: Database) -> None:
    session = database.session
    database.run("CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT)")
    database.run("INSERT INTO {s}.t SELECT g, 'w' || g FROM generate_series(1, 5) g")
    database.create_source()
    upstream = f"FROM pg TABLE '{database.schema}.t'"
    session.run(f"CREATE TABLE late (*) WITH (snapshot = 'false') {upstream}")
    session.run(f"CREATE TABLE a (id INT PRIMARY KEY) {upstream}", f"CREATE TABLE b (*) {upstream}")
    database.wait_equal("a", "id", "t")
    database.wait_equal("b", upstream="t")
    database.run("DELETE FROM {s}.t WHERE id = 2")
    session.run("ALTER TABLE a ADD COLUMN word VARCHAR")
    database.wait_equal("a", "id, word", "t")
    read = session.rows_of("pg", "op").count(("r",))
    session.run("DROP TABLE b")
    database.run("INSERT INTO {s}.t VALUES (9, 'new')", "DELETE FROM {s}.t WHERE id = 3")
    database.wait_equal("a", "id, word", "t")
    wait_until(lambda: session.rows_of("late") == [(9, "new")], "the table to have only what is new")
    assert session.rows_of("pg", "op").count(("r",)) == read


def test_rows_that_are_read_again_keep_their_times_and_stay_if_they_do_not_fit(database: Database) -> None:
    session = database.session
    database.run("CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT)")
    database.run("INSERT INTO {s}.t SELECT g, 'w' || g FROM generate_series(1, 5) g")
    database.create_source()
    upstream = f"FROM pg TABLE '{database.schema}.t'"
    session.run(f"CREATE TABLE t (*) INCLUDE timestamp AS at {upstream}")
    database.wait_equal("t", "id, word")
    database.run(
        "ALTER TABLE {s}.t ADD COLUMN valid_to DATE NOT NULL DEFAULT 'infinity'",
        "UPDATE {s}.t SET valid_to = '2024-02-29', word = 'new' WHERE id = 2",
        "DELETE FROM {s}.t WHERE id = 3",
    )
    wait_until(lambda: ("new",) in session.rows_of("t", "word"), "the update")
    session.run("ALTER TABLE t ADD COLUMN valid_to DATE")
    wait_until(lambda: ("s",) in session.rows_of("pg", "op"), "the end of the repeated snapshot")
    wait_until(lambda: len(session.rows_of("`t$errors`", "reason")) == 3, "the rows that do not fit")
    expected = [(1, "w1", "", 1970), (2, "new", "2024-02-29", 2020), (4, "w4", "", 1970), (5, "w5", "", 1970)]
    shown = "id, word, coalesce(string(valid_to), ''), CASE WHEN year(at) > 2020 THEN 2020 ELSE year(at) END"
    assert session.flushed_rows_of("t", shown) == expected
    session.run(f"CREATE TABLE u (id INT PRIMARY KEY) {upstream}")
    database.wait_equal("u", "id", "t")
    assert session.flushed_rows_of("t", shown) == expected


def test_a_value_that_does_not_fit_is_an_error_that_names_the_column(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, n NUMERIC, d DATE, b BYTEA, ok BOOLEAN, at TIMESTAMPTZ, tags TEXT[])",
        "INSERT INTO {s}.t VALUES (1, 1.5, '2024-02-29', '\\x00ff', true, '2024-02-29 12:00:00.000001+02', '{a,NULL}')",
        "INSERT INTO {s}.t VALUES (2, 'NaN', '2024-02-29', NULL, false, NULL, NULL)",
        "INSERT INTO {s}.t VALUES (3, 1, 'infinity', NULL, NULL, NULL, '{}')",
    )
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM pg TABLE '{database.schema}.t'")
    wait_until(lambda: len(session.rows_of("t", "id")) == 1, "the row that fits")
    (row,) = session.sql("SELECT id, n, d, b, ok, at, tags FROM t")
    assert (row.id, float(row.n), str(row.d), bytes(row.b), row.ok, row.tags) == (
        1, 1.5, "2024-02-29", b"\x00\xff", True, ["a", None],
    )  # fmt: skip
    assert session.sql("SELECT unix_micros(at) FROM t")[0][0] == 1_709_200_800_000_001
    reasons = sorted(row.reason for row in session.sql("SELECT reason FROM `t$errors`"))
    assert [reason.split(":")[0] for reason in reasons] == ['column "d"', 'column "n"']
    database.run("UPDATE {s}.t SET n = 2 WHERE id = 2")
    wait_until(lambda: len(session.rows_of("t", "id")) == 2, "a row that fits now")


def test_a_pause_a_new_slot_and_a_snapshot_once_more(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT)",
        "INSERT INTO {s}.t SELECT g, 'w' || g FROM generate_series(1, 500) g",
    )
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM pg TABLE '{database.schema}.t'")
    database.wait_equal("t")
    session.allow_unsafe()
    (row,) = session.sql("SHOW SOURCE SPLITS pg")
    assert (row.split, row.status, row.slot, row.wal_status) == ("postgres", "OK", database.slot, "reserved")
    paused = session.sql("PAUSE SOURCE pg")
    assert "the server keeps its log" in paused[1].detail
    other = f"other_{database.schema}"
    wait_until(lambda: database.slots()[0][1] is None, "the reader to leave the slot")
    # The new slot has everything from the position on: a copy of the first.
    database.run(
        f"SELECT pg_copy_logical_replication_slot('{database.slot}', '{other}')",
        "UPDATE {s}.t SET word = 'while paused' WHERE id < 10",
        "DELETE FROM {s}.t WHERE id = 11",
    )
    session.run(f"ALTER SOURCE pg UNSAFE SET (slot.name = '{other}')", "RESUME SOURCE pg")
    database.wait_equal("t")
    # The slot is dropped by somebody, and changes are lost: never in silence.
    session.run("PAUSE SOURCE pg")
    wait_until(lambda: all(pid is None for _, pid in database.slots()), "the reader to leave the slot")
    database.run(
        f"SELECT pg_drop_replication_slot('{other}')",
        "DELETE FROM {s}.t WHERE id BETWEEN 20 AND 30",
        "INSERT INTO {s}.t VALUES (1000, 'unseen')",
    )
    (row,) = session.sql("SHOW SOURCE SPLITS pg")
    assert (row.status, row.slot) == ("UNREADABLE", None)
    again = "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)"
    assert row.reason == f'replication slot "{other}" does not exist: {again} reads every table again'
    session.run("RESUME SOURCE pg")
    wait_until(lambda: session.job("pg").state == "STALLED", "the source to be stalled")
    assert other in session.job("pg").reason
    session.run("PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)", "RESUME SOURCE pg")
    database.wait_equal("t")
    database.run("INSERT INTO {s}.t VALUES (1001, 'after')")
    database.wait_equal("t")


def test_columns_follow_the_database(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT, gone INT, other INT)",
        "INSERT INTO {s}.t SELECT g, 'w' || g, g, g FROM generate_series(1, 300) g",
    )
    database.create_source(auto__schema__change="true")
    session.run(f"CREATE TABLE t (*) FROM pg TABLE '{database.schema}.t'")
    session.run("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, max(id) AS last FROM t")
    database.wait_equal("t")
    # A new column with a default: rows that are there have it upstream without a change of theirs.
    database.run(
        "ALTER TABLE {s}.t ADD COLUMN extra INT DEFAULT 7",
        "INSERT INTO {s}.t VALUES (301, 'new', 1, 1, 8)",
        "ALTER TABLE {s}.t ADD COLUMN late TEXT",
        "UPDATE {s}.t SET late = 'x' WHERE id = 5",
    )
    wait_until(lambda: {"extra", "late"} <= set(session.spark.table("t").columns), "the new columns")
    database.wait_equal("t", "id, word, gone, other, extra, late")
    wait_until(lambda: session.rows_of("v") == [(301, 301)], "the view above to continue")
    # A column that is dropped or gets another type stalls the source, with the statements to type.
    database.run(
        "ALTER TABLE {s}.t DROP COLUMN gone",
        "ALTER TABLE {s}.t ALTER COLUMN other TYPE TEXT USING 'n' || other",
        "INSERT INTO {s}.t VALUES (302, 'after', 'n1', 9, 'y')",
    )
    wait_until(lambda: session.job("pg").state == "STALLED", "the source to be stalled")
    reason = session.job("pg").reason
    assert "COLUMNS" in reason
    session.run(*(part.strip() for part in reason[reason.index("ALTER TABLE") :].split(";")[:2]))
    session.run("ALTER TABLE t ADD COLUMN other VARCHAR")
    database.wait_equal("t", "id, word, other, extra, late")
    wait_until(lambda: session.rows_of("v") == [(302, 302)], "the view above to continue")


def test_a_renamed_column_is_followed(database: Database) -> None:
    session = database.session
    database.run(
        "CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT)",
        "INSERT INTO {s}.t SELECT g, 'w' || g FROM generate_series(1, 20) g",
    )
    database.create_source(auto__schema__change="true")
    session.run(f"CREATE TABLE t (*) FROM pg TABLE '{database.schema}.t'")
    database.wait_equal("t")
    # A column that is added before the old one is gone, and one that is there in its place: both come.
    database.run(
        "ALTER TABLE {s}.t ADD COLUMN more INT DEFAULT 7",
        "INSERT INTO {s}.t VALUES (21, 'a', 1)",
        "ALTER TABLE {s}.t RENAME COLUMN word TO said",
        "INSERT INTO {s}.t VALUES (22, 'b', 2)",
    )
    wait_until(lambda: "DROP COLUMN" in session.job("pg").reason, "the source to be stalled")
    reason = session.job("pg").reason
    session.run(reason[reason.index("ALTER TABLE") :])
    wait_until(lambda: {"more", "said"} <= set(session.spark.table("t").columns), "the new columns")
    database.wait_equal("t", "id, more, said")


def test_a_new_column_is_shown_until_a_table_reads_it(database: Database, spark: SparkSession, warehouse: str) -> None:
    session = database.session
    database.run("CREATE TABLE {s}.t (id INT PRIMARY KEY, word TEXT)", "INSERT INTO {s}.t VALUES (1, 'a')")
    database.create_source()
    session.run(f"CREATE TABLE t (*) FROM pg TABLE '{database.schema}.t'")
    database.wait_equal("t")
    assert not session.job("pg").reason
    database.run("ALTER TABLE {s}.t ADD COLUMN more INT DEFAULT 7", "INSERT INTO {s}.t VALUES (2, 'b', 8)")
    database.wait_equal("t", "id, word")
    named = "ALTER TABLE t ADD COLUMN more integer"
    wait_until(lambda: (session.job("pg").reason or "").endswith(named), "the notice")
    assert session.job("pg").state == "RUNNING"
    assert session.sql("SHOW SOURCES")[0].reason == session.job("pg").reason
    session.detach()
    database.session = session = AttachedSession(spark, warehouse)
    wait_until(lambda: (session.job("pg").reason or "").endswith(named), "the notice after a restart")
    session.run(named)
    database.wait_equal("t", "id, word, more")
    wait_until(lambda: session.job("pg").state == "RUNNING" and not session.job("pg").reason, "no notice")


def test_moves_between_servers_are_reported_and_never_continued_by_number(session: AttachedSession) -> None:
    settings = {"wal_level": "logical", "max_wal_senders": "10", "max_replication_slots": "10"}
    session.run(f"CREATE SECRET pw WITH (backend = 'meta') AS '{PASSWORD}'")
    session.allow_unsafe()

    def is_equal_to(server: PostgresServer) -> bool:
        return session.rows_of("t") == sorted(server.run("SELECT id, word FROM t"))

    def move_to(server: PostgresServer, why: str) -> None:
        """UNSAFE SET to a server that is another cluster: it stalls with the reason and the statement to type."""
        session.run("PAUSE SOURCE pg", f"ALTER SOURCE pg UNSAFE SET (port = '{server.info.port}')")
        assert "UNKNOWN (other cluster)" in session.questions[-1].preview
        session.run("RESUME SOURCE pg")
        wait_until(lambda: session.job("pg").state == "STALLED", "the source to be stalled")
        reason = session.job("pg").reason
        assert why in reason, reason
        session.run("PAUSE SOURCE pg", reason[reason.index("RESET SOURCE SPLITS") :], "RESUME SOURCE pg")
        wait_until(lambda: is_equal_to(server), "the table to equal the new server's")
        server.run("INSERT INTO t SELECT max(id) + 1, 'streamed' FROM t")
        wait_until(lambda: is_equal_to(server), "changes of the new server")

    with running_server(**settings) as first, running_server(**settings) as alien:
        for server, word in ((first, "first"), (alien, "alien")):
            server.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
            server.run(f"INSERT INTO t SELECT g, '{word}' || g FROM generate_series(1, 100) g")
        session.run(
            "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', username = 'postgres', "
            f"port = '{first.info.port}', database.name = 'postgres', slot.name = 'moving', publication.name = 'p', "
            "password = SECRET pw)",
            "CREATE TABLE t (*) FROM pg TABLE 'public.t'",
        )
        wait_until(lambda: is_equal_to(first), "the table to equal the first server's")
        with running_copy(first, is_standby=True) as standby:
            first.run("INSERT INTO t VALUES (1000, 'replicated')")
            wait_until(lambda: standby.run("SELECT 1 FROM t WHERE id = 1000") == [(1,)], "the standby to have it")
            standby.run("SELECT pg_promote()")
            move_to(standby, "a standby was promoted")
        # The slot of the first server is still there: its positions mean something only there.
        move_to(first, "timeline 1")
        move_to(alien, "belongs to another server")
        # A backup of the same timeline has no slot: its numbers would be the same.
        with running_copy(alien, is_standby=False) as restored:
            alien.run("INSERT INTO t VALUES (2000, 'after the backup')")
            wait_until(lambda: is_equal_to(alien), "the change after the backup")
            session.run("PAUSE SOURCE pg", f"ALTER SOURCE pg UNSAFE SET (port = '{restored.info.port}')")
            assert 'slot "moving" does not exist there' in session.questions[-1].preview
            session.run("RESUME SOURCE pg")
            wait_until(lambda: session.job("pg").state == "STALLED", "the source to be stalled")
            session.run(
                "PAUSE SOURCE pg",
                "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)",
                "RESUME SOURCE pg",
            )
            wait_until(lambda: is_equal_to(restored), "the table to equal the restored server's")
        session.detach()
