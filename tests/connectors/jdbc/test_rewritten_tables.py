"""Reads of tables that are truncated, rewritten or replaced at the same time: no row is lost without an error."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.jdbc import reader as jdbc_reader
from rw_sql.connectors.jdbc import source as jdbc_source
from rw_sql.connectors.jdbc.url import connect
from rw_sql.connectors.support.connections.interruption import interruptible
from rw_sql.errors import SqlError
from tests.connectors.jdbc.reads import JDBC, held, options, read_parts
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
COLUMNS = {"id": "INT"}


class Frame:
    """Replaces a DataFrame."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[jdbc_reader.Upstream]:
    """The upstreams that were to be read; Spark is not needed."""
    found: list[jdbc_reader.Upstream] = []

    def read_snapshot(spark: Any, upstream: jdbc_reader.Upstream, columns: Any, misfit: Any) -> Frame:
        found.append(upstream)
        return Frame()

    monkeypatch.setattr(jdbc_reader, "read_snapshot", read_snapshot)
    return found


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"INSERT INTO {name} SELECT i, repeat('x', 200) FROM generate_series(1, 500) i")
    return name


def waits(postgres: PostgresInfo) -> int:
    """The number of connections that wait for a lock on a table."""
    return int(postgres.run("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted")[0][0])


def rows_of(given: dict[str, str], upstream: jdbc_reader.Upstream) -> list[int]:
    query = f"SELECT id::text FROM {upstream.table}"
    return sorted(int(row[0]) for row in read_parts(given, query, ["a"], upstream.snapshot, list(upstream.parts)))


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


NEW_ROWS = "INSERT INTO {t} SELECT generate_series(1, 900)"
RELOADS = {
    "a table": f"TRUNCATE {{t}}; {NEW_ROWS}",
    "the table of a view": f"TRUNCATE {{t}}; {NEW_ROWS}",
    "a materialized view": f"TRUNCATE {{t}}; {NEW_ROWS}; REFRESH MATERIALIZED VIEW {{t}}_m",
    "a new table": f"DROP TABLE {{t}} CASCADE; CREATE TABLE {{t}} (id INT); {NEW_ROWS}",
}


@pytest.mark.parametrize("what", RELOADS)
def test_a_read_waits_for_a_reload_that_has_begun_and_gives_its_rows(
    postgres: PostgresInfo, table: str, made: list[jdbc_reader.Upstream], thread: ThreadPoolExecutor, what: str
) -> None:
    postgres.run(f"CREATE VIEW {table}_v AS SELECT id FROM {table}")
    postgres.run(f"CREATE MATERIALIZED VIEW {table}_m AS SELECT id FROM {table}")
    suffix = {"the table of a view": "_v", "a materialized view": "_m"}.get(what, "")
    given = options(postgres, table + suffix, **{"partition.num": "2"})
    with connect(options(postgres, table), 8.0) as reload:
        reload.execute(RELOADS[what].format(t=table).encode())
        reading = thread.submit(JDBC.read_columns, SPARK, given, COLUMNS, jdbc_source.jdbc_misfit)
        wait_until(lambda: reading.done() or waits(postgres) > 0, "the read waits")
        reload.commit()
        frame = reading.result(LAST_RESORT_SECONDS)
    assert rows_of(given, made[0]) == list(range(1, 901))
    del frame


CHANGES = {
    "truncated": ("", ["TRUNCATE {t}", "INSERT INTO {t} SELECT generate_series(1, 500)"], "public.{t}"),
    "moved to other pages": ("", ["DELETE FROM {t} WHERE id < 100", "VACUUM FULL {t}"], "public.{t}"),
    "rewritten": ("", ["ALTER TABLE {t} ALTER id TYPE BIGINT"], "public.{t}"),
    "swapped": (
        "",
        [
            "CREATE TABLE {t}_n (LIKE {t})",
            "INSERT INTO {t}_n SELECT * FROM {t}",
            "ALTER TABLE {t} RENAME TO {t}_o",
            "ALTER TABLE {t}_n RENAME TO {t}",
        ],
        "public.{t}",
    ),
    "truncated below a view": ("_v", ["TRUNCATE {t}"], "public.{t}"),
    "replaced below a view": (
        "_v",
        ["CREATE TABLE {t}_n AS SELECT * FROM {t}", "CREATE OR REPLACE VIEW {t}_v AS SELECT id FROM {t}_n"],
        "public.{t}_n",
    ),
    "refreshed": ("_m", ["REFRESH MATERIALIZED VIEW {t}_m"], "public.{t}_m"),
    "truncated in a partition": ("_p", ["TRUNCATE {t}_p1"], "public.{t}_p1"),
    "detached": ("_p", ["ALTER TABLE {t}_p DETACH PARTITION {t}_p1"], "public.{t}_p1"),
    "truncated in a child": ("_i", ["TRUNCATE {t}_i1"], "public.{t}_i1"),
}


def derived(postgres: PostgresInfo, table: str) -> None:
    """A view, a materialized view, a partitioned table and a table with a child, with the rows of the table."""
    for statement in (
        f"CREATE VIEW {table}_v AS SELECT id FROM {table}",
        f"CREATE MATERIALIZED VIEW {table}_m AS SELECT id FROM {table}",
        f"CREATE TABLE {table}_p (id INT) PARTITION BY RANGE (id)",
        f"CREATE TABLE {table}_p1 PARTITION OF {table}_p FOR VALUES FROM (1) TO (100)",
        f"CREATE TABLE {table}_p2 PARTITION OF {table}_p DEFAULT",
        f"INSERT INTO {table}_p SELECT id FROM {table}",
        f"CREATE TABLE {table}_i (id INT)",
        f"CREATE TABLE {table}_i1 () INHERITS ({table}_i)",
        f"INSERT INTO {table}_i1 SELECT id FROM {table}",
    ):
        postgres.run(statement)


@pytest.mark.parametrize("what", CHANGES)
def test_a_table_that_is_changed_between_two_parts_ends_the_read(postgres: PostgresInfo, table: str, what: str) -> None:
    suffix, statements, named = CHANGES[what]
    if suffix:
        derived(postgres, table)
    given = options(postgres, table + suffix)
    connection, snapshot = held(given)
    parts = [(0, 3), (3, 0)] if suffix in ("", "_p", "_i") else [(0, 0)]
    query = f"SELECT id::text FROM {table}{suffix}"
    try:
        before = [row for part in parts for row in read_parts(given, query, ["a"], snapshot, [part])]
        assert sorted(int(row[0]) for row in before) == list(range(1, 501))
        with connect(given, 8.0) as other:
            other.autocommit = True
            for statement in statements:
                other.execute(statement.format(t=table).encode())
        for part in parts:
            with pytest.raises(RuntimeError) as caught:
                read_parts(given, query, ["a"], snapshot, [part])
            assert str(caught.value) == (
                f"table {named.format(t=table)} was truncated, rewritten or replaced while it was read: "
                "run REFRESH TABLE again"
            )
    finally:
        connection.close()


def test_changes_that_leave_the_rows_in_place_do_not_end_the_read(postgres: PostgresInfo, table: str) -> None:
    derived(postgres, table)
    postgres.run(f"CREATE TABLE {table}_long (id INT)")
    for name in (table, f"{table}_v", f"{table}_m", f"{table}_p", f"{table}_i"):
        given = options(postgres, name)
        connection, snapshot = held(given)
        try:
            with connect(given, 8.0) as other:
                other.autocommit = True
                for statement in (
                    f"CREATE INDEX ON {table} (word)",
                    f"REINDEX TABLE {table}",
                    f"ALTER TABLE {table} ADD COLUMN c_{name} INT DEFAULT 1",
                    f"UPDATE {table} SET word = 'later' WHERE id < 50",
                    f"VACUUM ANALYZE {table}",
                ):
                    other.execute(statement.encode())
            rows = read_parts(given, f"SELECT id::text FROM {name}", ["a"], snapshot, [(0, 0)])
        finally:
            connection.close()
        assert sorted(int(row[0]) for row in rows) == list(range(1, 501))


def test_odd_and_long_names_are_the_same_table(postgres: PostgresInfo) -> None:
    schema = f'S."{uuid.uuid4().hex[:6]}'
    in_sql = '"' + schema.replace('"', '""') + '"'
    postgres.run(f"CREATE SCHEMA {in_sql}")
    for name in ("a b", 'say "x"', "Ü%s", "x" * 70, "a.b"):
        quoted = '"' + name.replace('"', '""') + '"'
        postgres.run(f"CREATE TABLE {in_sql}.{quoted} (id INT)")
        postgres.run(f"INSERT INTO {in_sql}.{quoted} VALUES (1)")
        given = options(postgres, name, **{"schema.name": schema})
        connection, snapshot = held(given)
        try:
            rows = read_parts(given, f"SELECT id::text FROM {in_sql}.{quoted}", ["a"], snapshot, [(0, 0)])
        finally:
            connection.close()
        assert rows == [("1",)]


def test_a_user_with_the_right_to_read_a_view_may_read_it(postgres: PostgresInfo, table: str) -> None:
    """LOCK TABLE would need more privileges of the view's owner than a query."""
    for statement in (
        f"CREATE ROLE {table}_owner",
        f"GRANT CREATE ON SCHEMA public TO {table}_owner",
        f"GRANT SELECT (id) ON {table} TO {table}_owner",
        f"CREATE VIEW {table}_v AS SELECT id FROM {table}",
        f"ALTER VIEW {table}_v OWNER TO {table}_owner",
        f"CREATE ROLE {table}_u LOGIN PASSWORD 'reader'",
        f"GRANT SELECT (id) ON {table}_v TO {table}_u",
    ):
        postgres.run(statement)
    given = options(postgres, f"{table}_v", user=f"{table}_u", password="reader")
    connection, snapshot = held(given)
    try:
        jdbc_source._wait_for_rewrites(connection, JDBC._quoted(given))
        rows = read_parts(given, f"SELECT id::text FROM {table}_v", ["a"], snapshot, [(0, 0)])
    finally:
        connection.close()
    assert len(rows) == 500


@pytest.mark.parametrize("suffix", ["", "_v", "_m", "_p", "_i"])
def test_between_two_parts_no_table_is_locked(
    postgres: PostgresInfo, table: str, made: list[jdbc_reader.Upstream], suffix: str
) -> None:
    """Otherwise, a statement that needs the table for itself would wait for the read, and the next part for it."""
    derived(postgres, table)
    given = options(postgres, table + suffix)
    frame = JDBC.read_columns(SPARK, given, COLUMNS, jdbc_source.jdbc_misfit)
    for _ in range(2):
        assert rows_of(given, made[0]) == list(range(1, 501))
        with connect(given, 8.0) as other:
            other.execute("SET lock_timeout = '5s'")
            other.execute(f"TRUNCATE {table}, {table}_p, {table}_i".encode())
            other.execute(f"REFRESH MATERIALIZED VIEW {table}_m".encode())
            other.rollback()
    del frame


def begun(thread: ThreadPoolExecutor, read: Callable[[], object]) -> tuple[Future[object], Callable[[], None]]:
    """Begins a read that may be interrupted; returns it and the function that interrupts it."""
    is_begun = threading.Event()
    found: list[Callable[[], None]] = []

    def reading() -> object:
        with interruptible() as interrupt:
            found.append(interrupt)
            is_begun.set()
            return read()

    work = thread.submit(reading)
    assert is_begun.wait(LAST_RESORT_SECONDS)
    return work, found[0]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_wait_for_a_lock_can_be_interrupted(
    postgres: PostgresInfo,
    table: str,
    made: list[jdbc_reader.Upstream],
    thread: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    is_silent: bool,
) -> None:
    import psycopg

    if is_silent:  # The server accepts the cancellations, and goes on.
        monkeypatch.setattr(psycopg.Connection, "cancel_safe", lambda self, *, timeout: None)
    given = options(postgres, table)
    with connect(given, 8.0) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        work, interrupt = begun(thread, lambda: JDBC.read_columns(SPARK, given, COLUMNS, jdbc_source.jdbc_misfit))
        wait_until(lambda: work.done() or waits(postgres) > 0, "the read waits")
        assert not work.done()

        def is_over() -> bool:
            interrupt()
            return work.done()

        wait_until(is_over, "the read ends")
        with pytest.raises(SqlError, match=None if is_silent else "canceling statement due to user request"):
            work.result()
    assert made == []


def test_an_estimate_of_rows_does_not_wait_for_a_lock(
    postgres: PostgresInfo, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdbc_source, "_ESTIMATE_LOCK_MS", 50)
    given = options(postgres, table)
    with connect(given, 8.0) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        assert JDBC.row_estimate(given) is None
    assert JDBC.row_estimate(given) is not None
