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


REWRITTEN, DETACHED, ATTACHED = "truncated or rewritten", "detached or dropped", "attached"
CHANGES = {
    "truncated": ("", ["TRUNCATE {t}", "INSERT INTO {t} SELECT generate_series(1, 500)"], "{t}", REWRITTEN),
    "moved to other pages": ("", ["DELETE FROM {t} WHERE id < 100", "VACUUM FULL {t}"], "{t}", REWRITTEN),
    "rewritten": ("", ["ALTER TABLE {t} ALTER id TYPE BIGINT"], "{t}", REWRITTEN),
    "swapped": (
        "",
        [
            "CREATE TABLE {t}_n (LIKE {t})",
            "INSERT INTO {t}_n SELECT * FROM {t}",
            "ALTER TABLE {t} RENAME TO {t}_o",
            "ALTER TABLE {t}_n RENAME TO {t}",
        ],
        '"public"."{t}"',
        "replaced",
    ),
    "truncated below a view": ("_v", ["TRUNCATE {t}"], "{t}", REWRITTEN),
    "truncated below a function": ("_f", ["TRUNCATE {t}"], "{t}", REWRITTEN),
    "replaced below a view": (
        "_v",
        ["CREATE TABLE {t}_n AS SELECT * FROM {t}", "CREATE OR REPLACE VIEW {t}_v AS SELECT id FROM {t}_n"],
        "{t}_n",
        "created",
    ),
    "detached below a view": ("_pv", ["ALTER TABLE {t}_p DETACH PARTITION {t}_p1"], "{t}_p1", DETACHED),
    "refreshed": ("_m", ["REFRESH MATERIALIZED VIEW {t}_m"], "{t}_m", REWRITTEN),
    "truncated in a partition": ("_p", ["TRUNCATE {t}_p1"], "{t}_p1", REWRITTEN),
    "detached": ("_p", ["ALTER TABLE {t}_p DETACH PARTITION {t}_p1"], "{t}_p1", DETACHED),
    "dropped": ("_p", ["DROP TABLE {t}_p1"], "{t}_p1", DETACHED),
    "replaced in a partition": (
        "_p",
        ["DROP TABLE {t}_p1", "CREATE TABLE {t}_p1 PARTITION OF {t}_p FOR VALUES FROM (1) TO (100)"],
        "{t}_p1",
        DETACHED,
    ),
    "attached": (
        "_p",
        ["ALTER TABLE {t}_p ATTACH PARTITION {t}_x FOR VALUES FROM (1000) TO (2000)"],
        "{t}_x",
        ATTACHED,
    ),
    "attached as a child": ("_i", ["ALTER TABLE {t}_x INHERIT {t}_i"], "{t}_x", ATTACHED),
    "attached below a view": ("_iv", ["ALTER TABLE {t}_x INHERIT {t}_i"], "{t}_x", ATTACHED),
    "truncated in a child": ("_i", ["TRUNCATE {t}_i1"], "{t}_i1", REWRITTEN),
    "detached as a child": ("_i", ["ALTER TABLE {t}_i1 NO INHERIT {t}_i"], "{t}_i1", DETACHED),
}


def derived(postgres: PostgresInfo, table: str) -> None:
    """Views, a materialized view, a partitioned table and a table with a child, with the rows of the table; and a
    filled table that is not a child yet."""
    for statement in (
        f"CREATE FUNCTION {table}_rows() RETURNS SETOF INT LANGUAGE plpgsql "
        f"AS 'BEGIN RETURN QUERY SELECT id FROM {table}; END'",
        f"CREATE VIEW {table}_f AS SELECT id FROM {table}_rows() f (id)",
        f"CREATE VIEW {table}_v AS SELECT id FROM {table}",
        f"CREATE MATERIALIZED VIEW {table}_m AS SELECT id FROM {table}",
        f"CREATE TABLE {table}_p (id INT) PARTITION BY RANGE (id)",
        f"CREATE TABLE {table}_p1 PARTITION OF {table}_p FOR VALUES FROM (1) TO (100)",
        f"CREATE TABLE {table}_p2 PARTITION OF {table}_p DEFAULT",
        f"INSERT INTO {table}_p SELECT id FROM {table}",
        f"CREATE TABLE {table}_i (id INT)",
        f"CREATE TABLE {table}_i1 () INHERITS ({table}_i)",
        f"INSERT INTO {table}_i1 SELECT id FROM {table}",
        f"CREATE VIEW {table}_pv AS SELECT id FROM {table}_p",
        f"CREATE VIEW {table}_iv AS SELECT id FROM {table}_i",
        f"CREATE TABLE {table}_x (id INT)",
        f"INSERT INTO {table}_x SELECT generate_series(1000, 1009)",
    ):
        postgres.run(statement)


@pytest.mark.parametrize("what", CHANGES)
def test_a_table_that_is_changed_between_two_parts_ends_the_read(postgres: PostgresInfo, table: str, what: str) -> None:
    suffix, statements, named, happened = CHANGES[what]
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
            name = named.format(t=table) if named.startswith('"') else f"public.{named.format(t=table)}"
            assert str(caught.value) == f"table {name} was {happened} during the read: run REFRESH TABLE again"
    finally:
        connection.close()


def test_changes_that_leave_the_rows_in_place_do_not_end_the_read(postgres: PostgresInfo, table: str) -> None:
    derived(postgres, table)
    postgres.run(f"CREATE TABLE {table}_long (id INT)")
    for at, suffix in enumerate(("", "_v", "_m", "_p", "_i", "_f", "_pv", "_iv")):
        name = table + suffix
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
                    f"CREATE TABLE {table}_p_{at} PARTITION OF {table}_p "
                    f"FOR VALUES FROM ({at + 1}000) TO ({at + 2}000) PARTITION BY RANGE (id)",
                    f"CREATE TABLE {table}_p_{at}_1 PARTITION OF {table}_p_{at} DEFAULT",
                    f"INSERT INTO {table}_p VALUES ({at + 1}000)",
                    f"CREATE TABLE {table}_i_{at} () INHERITS ({table}_i)",
                    f"INSERT INTO {table}_i_{at} VALUES ({at + 1}000)",
                ):
                    other.execute(statement.encode())
            rows = read_parts(given, f"SELECT id::text FROM {name}", ["a"], snapshot, [(0, 0)])
        finally:
            connection.close()
        assert sorted(int(row[0]) for row in rows if int(row[0]) < 1000) == list(range(1, 501))
        newer = at if suffix in ("_p", "_i", "_pv", "_iv") else 0
        assert sorted(int(row[0]) for row in rows if int(row[0]) >= 1000) == [1000 * (n + 1) for n in range(newer)]


def detach_partly(postgres: PostgresInfo, table: str) -> None:
    """Leaves the detachment of a partition pending. The default partition would not allow it."""
    import psycopg

    given = options(postgres, table)
    with connect(given, 8.0) as other, connect(given, 8.0) as detach:
        other.execute(f"LOCK TABLE {table}_p IN ACCESS SHARE MODE".encode())
        detach.autocommit = True
        detach.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            detach.execute(f"ALTER TABLE {table}_p DETACH PARTITION {table}_p1 CONCURRENTLY".encode())


@pytest.mark.parametrize("suffix", ["_p", "_pv"])
@pytest.mark.parametrize("is_later", [False, True], ids=["before the snapshot", "during the read"])
def test_a_partition_whose_detachment_is_pending_is_read_if_the_snapshot_contains_it(
    postgres: PostgresInfo, table: str, suffix: str, is_later: bool
) -> None:
    derived(postgres, table)
    postgres.run(f"ALTER TABLE {table}_p DETACH PARTITION {table}_p2")
    if not is_later:
        detach_partly(postgres, table)
    given = options(postgres, table + suffix)
    connection, snapshot = held(given)
    try:
        if is_later:
            detach_partly(postgres, table)
        rows = read_parts(given, f"SELECT id::text FROM {table}{suffix}", ["a"], snapshot, [(0, 0)])
    finally:
        connection.close()
    assert sorted(int(row[0]) for row in rows) == (list(range(1, 100)) if is_later else [])


@pytest.mark.parametrize("condition", ["FROM ONLY {t}_i", "FROM {t}_p WHERE id >= 100"])
def test_a_view_that_excludes_a_child_may_be_read(postgres: PostgresInfo, table: str, condition: str) -> None:
    derived(postgres, table)
    postgres.run(f"INSERT INTO {table}_i VALUES (100)")
    postgres.run(f"CREATE VIEW {table}_w AS SELECT id {condition.format(t=table)}")
    given = options(postgres, f"{table}_w")
    connection, snapshot = held(given)
    try:
        rows = read_parts(given, f"SELECT id::text FROM {table}_w", ["a"], snapshot, [(0, 0)])
    finally:
        connection.close()
    assert ("100",) in rows


def test_a_row_policy_that_excludes_a_partition_does_not_end_the_read(postgres: PostgresInfo, table: str) -> None:
    derived(postgres, table)
    for statement in (
        f"ALTER TABLE {table}_p ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY later ON {table}_p USING (id >= 100)",
        f"CREATE ROLE {table}_u LOGIN PASSWORD 'reader'",
        f"GRANT SELECT ON {table}_p TO {table}_u",
    ):
        postgres.run(statement)
    given = options(postgres, f"{table}_p", user=f"{table}_u", password="reader")
    connection, snapshot = held(given)
    try:
        rows = read_parts(given, f"SELECT id::text FROM {table}_p", ["a"], snapshot, [(0, 0)])
    finally:
        connection.close()
    assert sorted(int(row[0]) for row in rows) == list(range(100, 501))


def test_a_reload_that_a_function_waits_for_ends_the_read(
    postgres: PostgresInfo, table: str, made: list[jdbc_reader.Upstream], thread: ThreadPoolExecutor
) -> None:
    """The tables that a function reads are known only when the query runs."""
    derived(postgres, table)
    given = options(postgres, f"{table}_f")
    with connect(options(postgres, table), 8.0) as reload:
        reload.execute(RELOADS["a table"].format(t=table).encode())
        frame = JDBC.read_columns(SPARK, given, COLUMNS, jdbc_source.jdbc_misfit)
        reading = thread.submit(rows_of, given, made[0])
        wait_until(lambda: reading.done() or waits(postgres) > 0, "the read waits")
        reload.commit()
        with pytest.raises(RuntimeError, match=f"table public.{table} was truncated or rewritten during the read"):
            reading.result(LAST_RESORT_SECONDS)
    del frame


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("_m", 1), ("_p", 1), ("_i", 1), ("_v", 3)])
def test_only_a_read_of_a_view_opens_further_connections(
    postgres: PostgresInfo, table: str, monkeypatch: pytest.MonkeyPatch, suffix: str, count: int
) -> None:
    import psycopg

    derived(postgres, table)
    given = options(postgres, table + suffix)
    connection, snapshot = held(given)
    opened: list[psycopg.Connection[Any]] = []
    real = psycopg.connect

    def connected(**server: Any) -> psycopg.Connection[Any]:
        opened.append(real(**server))
        return opened[-1]

    monkeypatch.setattr(psycopg, "connect", connected)
    try:
        assert len(read_parts(given, f"SELECT id::text FROM {table}{suffix}", ["a"], snapshot, [(0, 0)])) == 500
    finally:
        connection.close()
    assert len(opened) == count


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
