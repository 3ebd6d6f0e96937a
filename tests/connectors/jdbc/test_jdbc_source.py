"""The JDBC connector against a real server: the columns and rows that it reads, all parts at one moment."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.jdbc.source import page_ranges
from rw_sql.connectors.jdbc.url import connect
from rw_sql.connectors.snapshots import SnapshotReader
from rw_sql.errors import SqlError
from tests.connectors.jdbc.reads import JDBC, held, options, read_parts
from tests.support.postgres import PASSWORD, PostgresInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "\ufeff"


def test_pages_are_cut_so_that_each_is_read_once() -> None:
    assert page_ranges(0, 1) == [(0, 0)]
    assert page_ranges(0, 4) == [(0, 0)]
    assert page_ranges(10, 3) == [(0, 4), (4, 8), (8, 0)]
    assert page_ranges(2, 5) == [(0, 1), (1, 0)]
    for pages in range(1, 40):
        for count in range(1, 12):
            ranges = page_ranges(pages, count)
            assert ranges[-1][1] == 0
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
            assert len(ranges) <= count


def test_jdbc_is_a_batch_connector() -> None:
    assert isinstance(JDBC, SnapshotReader)
    assert JDBC.spec.is_batch
    with pytest.raises(SqlError, match="it has no splits and no positions"):
        JDBC.read_stream(None, {}, {}, max_records=None)  # type: ignore[arg-type]


@pytest.mark.postgres
@pytest.mark.parametrize("password", ["of : a \\ role", "pä€ \r\n"])
def test_the_workers_log_in_with_the_password_of_the_options(
    postgres: PostgresInfo, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"u_{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    postgres.run(f"CREATE USER {user} PASSWORD '{password}'")
    postgres.run(f"CREATE VIEW {user}_v AS SELECT current_user::text AS c")
    postgres.run(f"GRANT SELECT ON {user}_v TO {user}")
    given = options(postgres, f"{user}_v") | {"user": user, "password": password}
    connection, snapshot = held(given)
    try:
        assert read_parts(given, f"SELECT c FROM {user}_v", ["c0"], snapshot, [(0, 0)]) == [(user,)]
    finally:
        connection.close()


@pytest.mark.postgres
def test_a_look_tells_of_the_server_the_table_and_the_right_to_read(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    assert JDBC.look(options(postgres, table)).missing == (f"public.{table}",)
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    assert JDBC.look(options(postgres, table)) == JDBC.look(options(postgres, table))
    assert JDBC.look(options(postgres, table)).is_reachable
    wrong = JDBC.look(options(postgres, table, password="guessed"))
    assert wrong.error is not None
    assert "guessed" not in wrong.error
    postgres.run(f"CREATE ROLE {table}_u LOGIN PASSWORD '{PASSWORD}'")
    assert JDBC.look(options(postgres, table, user=f"{table}_u")).error == (
        f"the user lacks the privilege SELECT on table {table}"
    )


@pytest.mark.postgres
def test_every_part_of_a_read_sees_the_moment_at_which_it_began(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"INSERT INTO {table} SELECT i, repeat('x', 200) || i FROM generate_series(1, 5000) i")
    given = options(postgres, table, **{"partition.num": "4"})
    connection, snapshot = held(given)
    try:
        parts = JDBC._parts(connection, given, 1)
        assert len(parts) == 4
        postgres.run(f"UPDATE {table} SET word = 'later'")
        postgres.run(f"DELETE FROM {table} WHERE id <= 100")
        postgres.run(f"INSERT INTO {table} VALUES (6000, 'later')")
        rows = read_parts(given, f"SELECT id::text, word FROM {table}", ["a", "b"], snapshot, parts)
    finally:
        connection.close()
    assert sorted((int(key), word) for key, word in rows) == [(i, "x" * 200 + str(i)) for i in range(1, 5001)]


@pytest.mark.postgres
@pytest.mark.spark
def test_a_read_outlasts_the_limits_of_the_role(spark: SparkSession, postgres: PostgresInfo) -> None:
    """The snapshot's transaction is idle while Spark works, and a part may take longer than any statement may."""
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    postgres.run(f"INSERT INTO {table} VALUES (1), (2)")
    postgres.run(f"CREATE VIEW {table}_v AS SELECT id, (SELECT 'x' FROM pg_sleep(2)) AS word FROM {table}")
    postgres.run(f"CREATE ROLE {table}_u LOGIN PASSWORD '{PASSWORD}'")
    postgres.run(f"GRANT SELECT ON {table}_v TO {table}_u")
    postgres.run(f"ALTER ROLE {table}_u SET idle_in_transaction_session_timeout = '1ms'")
    postgres.run(f"ALTER ROLE {table}_u SET statement_timeout = '1s'")
    given = options(postgres, f"{table}_v", user=f"{table}_u")
    frame = JDBC.read_snapshot(spark, given, {"id": "INT", "word": "STRING"})
    assert sorted(tuple(row) for row in frame.collect()) == [(1, "x"), (2, "x")]


@pytest.mark.postgres
def test_text_is_read_from_a_database_with_another_encoding(postgres: PostgresInfo) -> None:
    base = f"d_{uuid.uuid4().hex[:8]}"
    for encoding in ("LATIN1", "SQL_ASCII"):
        name = f"{base}_{encoding.lower()}"
        with connect(options(postgres, "t"), 8.0) as server:
            server.autocommit = True
            server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
        given = options(postgres, "t")
        given["jdbc.url"] = given["jdbc.url"].rpartition("/")[0] + f"/{name}"
        connection = connect(given, 8.0)
        connection.execute("SET client_encoding = 'UTF8'")
        connection.execute("CREATE TABLE t (word TEXT, span INTERVAL)")
        connection.execute("INSERT INTO t VALUES ('é', '1 day 2 hours')")
        connection.execute(f"ALTER DATABASE {name} SET intervalstyle = 'iso_8601'".encode())
        connection.commit()
        connection.close()
        connection, snapshot = held(given)
        try:
            rows = read_parts(given, "SELECT word, span::text FROM t", ["a", "b"], snapshot, [(0, 0)])
        finally:
            connection.close()
        assert rows == [("é", "1 day 02:00:00")]


@pytest.mark.postgres
def test_text_comes_as_it_is(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (word TEXT)")
    words = ["", None, "a,b", 'say "x"', "two\nlines", "\\N", "NULL", "ü 漢 🦀", " ", MARK]
    for word in words:
        with connect(options(postgres, table), 8.0) as one:
            one.execute(f"INSERT INTO {table} VALUES (%s)", [word])
    given = options(postgres, table)
    connection, snapshot = held(given)
    try:
        rows = read_parts(given, f"SELECT word FROM {table}", ["a"], snapshot, [(0, 0)])
        assert read_parts(given, f"SELECT word FROM {table} WHERE false", ["a"], snapshot, [(0, 0)]) == []
    finally:
        connection.close()
    assert [word for (word,) in rows] == words


@pytest.mark.postgres
@pytest.mark.parametrize("word", [f"{MARK}ann", MARK, f"{MARK}{MARK}", f"{MARK}a,b", f'{MARK}"', "", None, "a"])
def test_a_byte_order_mark_at_the_beginning_of_a_part_is_a_character(postgres: PostgresInfo, word: str | None) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (word TEXT, n INT)")
    given = options(postgres, table)
    with connect(given, 8.0) as one:
        one.execute(f"INSERT INTO {table} VALUES (%s, 1), (%s, 2)", [word, word])
    connection, snapshot = held(given)
    try:
        for columns, width in (("word", 1), ("word, n::text", 2)):
            query = f"SELECT {columns} FROM {table}"
            rows = read_parts(given, query, ["a", "b"][:width], snapshot, [(0, 1), (1, 0)])
            assert rows == [(word, "1")[:width], (word, "2")[:width]]
    finally:
        connection.close()


@pytest.mark.postgres
def test_a_view_is_read_in_one_part_and_a_missing_column_is_named(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT)")
    postgres.run(f"CREATE VIEW {table}_v AS SELECT id FROM {table}")
    given = options(postgres, f"{table}_v", **{"partition.num": "4"})
    connection, _ = held(given)
    try:
        assert JDBC._parts(connection, given, 4) == [(0, 0)]
        with pytest.raises(SqlError, match=f'table {table}_v has no column "word"') as caught:
            JDBC._require_columns(connection, given, {"id": "INT", "word": "STRING"})
        assert caught.value.hint == "its columns: id"
    finally:
        connection.close()


@pytest.mark.postgres
def test_columns_that_a_table_cannot_give_are_found(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE DOMAIN {table}_age AS INT; CREATE TYPE {table}_mood AS ENUM ('well')")
    postgres.run(
        f"CREATE TABLE {table} (id INT, word TEXT, at TIMESTAMPTZ, b BOOL, raw BYTEA, tags TEXT[], ns INT[], "
        f"doc JSONB, m MONEY, age {table}_age, mood {table}_mood, u UUID)"
    )
    given = options(postgres, table)
    fitting = {
        "id": "BIGINT", "word": "STRING", "at": "TIMESTAMP", "b": "BOOLEAN", "raw": "BINARY", "tags": "ARRAY<STRING>",
        "ns": "ARRAY<ARRAY<DECIMAL(10, 2)>>", "doc": "STRUCT<`a`: INT>", "m": "DECIMAL(20, 2)", "age": "INT",
        "mood": "STRING", "u": "STRING",
    }  # fmt: skip
    assert JDBC.column_misfit(given, fitting) is None
    missing = JDBC.column_misfit(given, {"id": "INT", "wrod": "STRING"})
    assert missing is not None
    assert (missing.column, missing.is_missing) == ("wrod", True)
    assert missing.hint.startswith('did you mean "word"? its columns: age, at, b, ')
    for column, kind in (
        ("word", "INT"), ("word", "DATE"), ("at", "INT"), ("b", "DOUBLE"), ("word", "BINARY"), ("id", "ARRAY<INT>"),
        ("tags", "ARRAY<INT>"), ("id", "TIMESTAMP_NTZ"), ("raw", "STRUCT<`a`: INT>"), ("age", "DATE"), ("u", "BIGINT"),
    ):  # fmt: skip
        misfit = JDBC.column_misfit(given, {column: kind})
        assert misfit is not None, (column, kind)
        assert f'column "{column}" of table {table} is ' in misfit.message
    assert JDBC.column_misfit(given | {"password": "wrong"}, {"wrod": "INT"}) is None


@pytest.mark.postgres
def test_rows_are_estimated_before_and_after_a_table_is_analyzed(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT, word TEXT) PARTITION BY RANGE (id)")
    for low in (0, 10_000):
        postgres.run(f"CREATE TABLE {table}_{low} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({low + 10_000})")
    assert JDBC.row_estimate(options(postgres, table)) == 0
    postgres.run(f"INSERT INTO {table} SELECT i, repeat('x', 20) FROM generate_series(0, 19999) i")
    assert 10_000 < (JDBC.row_estimate(options(postgres, table)) or 0) < 40_000
    postgres.run(f"ANALYZE {table}")
    assert JDBC.row_estimate(options(postgres, table)) == 20_000
    postgres.run(f"CREATE VIEW {table}_v AS SELECT * FROM {table}")
    assert JDBC.row_estimate(options(postgres, f"{table}_v")) is None
