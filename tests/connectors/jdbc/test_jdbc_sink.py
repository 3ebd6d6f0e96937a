"""The JDBC sink against a real server: a row that is upserted twice is there once, and a failed batch leaves no
rows."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from psycopg.pq import TransactionStatus

from rw_sql.connectors.jdbc import url
from rw_sql.connectors.jdbc.sink import JdbcSink
from rw_sql.connectors.jdbc.url import connect, conninfo
from rw_sql.connectors.sink import DELETE, INSERT, OP, UPDATE, SinkError, SinkShape
from rw_sql.errors import SqlError
from tests.support.lossy_relay import relay
from tests.support.postgres import PASSWORD, PostgresInfo, running_server
from tests.support.sink_batches import batch, shape
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.sink import SinkWriter

UPSERT = shape("upsert", "id")


def options(server: PostgresInfo, table: str, **more: str) -> dict[str, str]:
    return {"jdbc.url": server.url, "user": "postgres", "password": PASSWORD, "table.name": table, **more}


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    """A table (id PRIMARY KEY, word, note) that only this test uses."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT NOT NULL, note TEXT DEFAULT 'kept')")
    return name


@pytest.fixture
def writer(postgres: PostgresInfo, table: str) -> Iterator[SinkWriter]:
    opened = JdbcSink().open(options(postgres, table), UPSERT, "me")
    yield opened
    opened.close()


@pytest.mark.postgres
def test_an_upsert_played_twice_leaves_the_same(postgres: PostgresInfo, table: str, writer: SinkWriter) -> None:
    assert writer.fence(1, 1) is None
    for _ in range(2):
        writer.write(batch((1, "a"), (2, "b"), (1, "c", UPDATE), (3, "d")), 0)
        writer.write(batch((2, "b", DELETE), (3, "e", UPDATE), (4, "gone"), (4, "gone", DELETE)), 1)
    assert postgres.run(f"SELECT * FROM {table} ORDER BY id") == [(1, "c", "kept"), (3, "e", "kept")]


@pytest.mark.postgres
def test_a_key_that_is_null_is_one_key(postgres: PostgresInfo) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT, word TEXT UNIQUE)")
    by_word = shape("upsert", "word")
    look = JdbcSink().look(options(postgres, table), by_word)
    assert look.misfit == (
        f"table public.{table} accepts several rows with NULL in (word), because its UNIQUE constraint treats NULLs as "
        "different"
    )
    postgres.run(f"ALTER TABLE {table} ADD UNIQUE NULLS NOT DISTINCT (word)")
    assert JdbcSink().look(options(postgres, table), by_word).misfit is None
    writer = JdbcSink().open(options(postgres, table), by_word, "me")
    writer.write(batch((1, None), (2, "b")), 0)
    writer.write(batch((3, None)), 1)
    assert postgres.run(f"SELECT id, word FROM {table} ORDER BY id") == [(2, "b"), (3, None)]
    writer.write(batch((3, None, DELETE)), 2)
    writer.close()
    assert postgres.run(f"SELECT id, word FROM {table}") == [(2, "b")]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("column", "kind", "one", "other"),
    [
        ("FLOAT8", "double", 0.0, -0.0),
        ("CHAR(5)", "string", "a", "a "),
        ("TEXT COLLATE no_case", "string", "Ann", "ann"),
        ("NUMERIC(10, 1)", "decimal(20,4)", Decimal("1.1100"), Decimal("1.1200")),
        ("DATE", "timestamp", datetime(2026, 1, 1, 8, tzinfo=UTC), datetime(2026, 1, 1, 9, tzinfo=UTC)),
    ],
)
def test_keys_that_the_table_considers_equal_are_one_row(
    postgres: PostgresInfo, column: str, kind: str, one: Any, other: Any
) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(
        "CREATE COLLATION IF NOT EXISTS no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    postgres.run(f"CREATE TABLE {table} (k {column} PRIMARY KEY, word TEXT)")
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in
              (("k", kind), ("word", "string"))]  # fmt: skip
    of = replace(shape("upsert", "k"), schema=json.dumps({"type": "struct", "fields": fields}))
    arrow = {"double": pa.float64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
    rows = pa.schema([("k", arrow.get(kind, pa.decimal128(20, 4))), ("word", pa.string()), (OP, pa.string())])
    writer = JdbcSink().open(options(postgres, table), of, "me")
    for number, pair in enumerate(((one, other), (other, one), (one, other))):
        given = [{"k": key, "word": f"{number}{at}", OP: UPDATE} for at, key in enumerate(pair)]
        writer.write(pa.Table.from_pylist(given, rows), number)
        assert postgres.run(f"SELECT word FROM {table}") == [(f"{number}1",)]
    writer.close()


@pytest.mark.postgres
def test_times_without_a_zone_are_utc_whatever_the_server_s_zone(postgres: PostgresInfo) -> None:
    table, role = f"t_{uuid.uuid4().hex[:8]}", f"r_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT, at TIMESTAMPTZ, day TIMESTAMPTZ)")
    postgres.run(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    postgres.run(f"ALTER ROLE {role} SET TimeZone = 'America/New_York'")
    postgres.run(f"GRANT INSERT ON {table} TO {role}")
    types = (("id", "integer"), ("at", "timestamp_ntz"), ("day", "date"))
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types]
    of = replace(shape(), schema=json.dumps({"type": "struct", "fields": fields}))
    schema = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us")), ("day", pa.date32()), (OP, pa.string())])
    # In New York, 02:30 does not exist on this day.
    at = datetime(2026, 3, 8, 2, 30)
    writer = JdbcSink().open(options(postgres, table, user=role), of, "me")
    writer.write(pa.Table.from_pylist([{"id": 1, "at": at, "day": at.date(), OP: INSERT}], schema), 0)
    writer.close()
    found = postgres.run(f"SELECT (at AT TIME ZONE 'UTC')::text, (day AT TIME ZONE 'UTC')::text FROM {table}")
    assert found == [("2026-03-08 02:30:00", "2026-03-08 00:00:00")]


@pytest.mark.postgres
def test_a_batch_that_fails_leaves_nothing_and_the_next_one_works(
    postgres: PostgresInfo, table: str, writer: SinkWriter
) -> None:
    with pytest.raises(SinkError, match="not-null constraint"):
        writer.write(batch((1, "a"), (2, None)), 0)
    assert postgres.run(f"SELECT * FROM {table}") == []
    writer.write(batch((1, "a")), 0)
    assert postgres.run(f"SELECT id FROM {table}") == [(1,)]
    writer.cancel()
    with pytest.raises(SinkError, match="stopped"):
        writer.write(batch((2, "b")), 1)
    assert postgres.run(f"SELECT id FROM {table}") == [(1,)]


@pytest.mark.postgres
def test_append_only_repeats_what_is_played_twice(postgres: PostgresInfo) -> None:
    postgres.run('CREATE SCHEMA "Odd one"')
    postgres.run('CREATE TABLE "Odd one"."T" (id INT, word TEXT)')
    given = options(postgres, "T", **{"schema.name": "Odd one"})
    assert JdbcSink().look(given, shape()).misfit is None
    writer = JdbcSink().open(given, shape(), "me")
    for _ in range(2):
        writer.write(batch((1, "a")), 0)
    writer.close()
    assert postgres.run('SELECT * FROM "Odd one"."T"') == [(1, "a"), (1, "a")]


@pytest.mark.postgres
def test_types_arrive_as_they_are(postgres: PostgresInfo) -> None:
    postgres.run(
        "CREATE TABLE typed "
        "(k BIGINT PRIMARY KEY, at TIMESTAMPTZ, n NUMERIC, raw BYTEA, tags TEXT[], doc JSONB, f FLOAT8)"
    )
    kinds: dict[str, Any] = {
        "k": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(20, 2),
        "raw": pa.binary(),
        "tags": pa.list_(pa.string()),
        "doc": pa.struct([("a", pa.decimal128(4, 1))]),
        "f": pa.float64(),
    }
    row = (
        1,
        datetime(2026, 1, 31, 8, tzinfo=UTC),
        Decimal("12.50"),
        b"\\x\n\t",
        ["a,b", None],
        {"a": Decimal("1.5")},
        0.1,
    )
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in kinds]
    of = SinkShape(name="k", type="upsert", keys=("k",), schema=json.dumps({"type": "struct", "fields": fields}))
    rows = pa.Table.from_pylist(
        [dict(zip(kinds, row, strict=True)) | {OP: INSERT}], pa.schema([*kinds.items(), (OP, pa.string())])
    )
    writer = JdbcSink().open(options(postgres, "typed"), of, "me")
    writer.write(rows, 0)
    writer.close()
    assert postgres.run("SELECT k, at, n, raw, tags, doc, f FROM typed") == [(*row[:5], {"a": "1.5"}, 0.1)]


@pytest.mark.postgres
def test_numbers_have_no_exponent_in_a_column_of_texts(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (t TEXT, n NUMERIC(38, 18), ts TEXT[], ns NUMERIC[])")
    numbers = [Decimal(text) for text in ("0E-18", "1E-18", "-12345678901234567890.123456789012345678")]
    kind, array = "decimal(38,18)", {"type": "array", "elementType": "decimal(38,18)", "containsNull": True}
    columns: dict[str, Any] = {"t": kind, "n": kind, "ts": array, "ns": array}
    fields = [{"name": key, "type": of, "nullable": True, "metadata": {}} for key, of in columns.items()]
    of = SinkShape(name="k", type="append-only", schema=json.dumps({"type": "struct", "fields": fields}))
    plain = pa.array([*numbers, None], pa.decimal128(38, 18))
    lists = pa.array([*([number, None] for number in numbers), None], pa.list_(pa.decimal128(38, 18)))
    writer = JdbcSink().open(options(postgres, name), of, "me")
    writer.write(pa.table({"t": plain, "n": plain, "ts": lists, "ns": lists, OP: [INSERT] * 4}), 0)
    writer.close()
    assert postgres.run(f"SELECT * FROM {name}") == [
        *((f"{number:f}", number, [f"{number:f}", None], [number, None]) for number in numbers),
        (None, None, None, None),
    ]


@pytest.mark.postgres
def test_arrays_without_items_and_items_that_are_null(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    kinds: list[tuple[str, str, pa.DataType, Any]] = [
        ("n", "NUMERIC[]", pa.decimal128(20, 2), Decimal("1.50")),
        ("f", "FLOAT8[]", pa.float64(), 0.5),
        ("i", "BIGINT[]", pa.int64(), 1),
        ("b", "BOOLEAN[]", pa.bool_(), True),
        ("t", "TEXT[]", pa.string(), "a"),
        ("d", "DATE[]", pa.date32(), at.date()),
        ("s", "TIMESTAMPTZ[]", pa.timestamp("us", "UTC"), at),
        ("raw", "BYTEA[]", pa.binary(), b"\\x\n"),
    ]
    postgres.run(f"CREATE TABLE {name} ({', '.join(f'{key} {of}' for key, of, _, _ in kinds)}, deep JSONB)")
    names = [*(name for name, *_ in kinds), "deep"]
    fields = [{"name": key, "type": "string", "nullable": True, "metadata": {}} for key in names]
    of = SinkShape(name="k", type="append-only", schema=json.dumps({"type": "struct", "fields": fields}))
    columns: dict[str, Any] = {
        key: pa.array([[], [None], [None, value, None], None], pa.list_(kind)) for key, _, kind, value in kinds
    }
    nested = pa.list_(pa.list_(pa.decimal128(20, 2)))
    columns["deep"] = pa.array([[], [None], [[], [None, Decimal("1.50")]], None], nested)
    writer = JdbcSink().open(options(postgres, name), of, "me")
    writer.write(pa.table({**columns, OP: [INSERT] * 4}), 0)
    writer.close()
    values = [value for *_, value in kinds]
    assert postgres.run(f"SELECT * FROM {name}") == [
        (*([] for _ in values), []),
        (*([None] for _ in values), [None]),
        (*([None, value, None] for value in values), [[], [None, "1.50"]]),
        (*(None for _ in values), None),
    ]


@pytest.mark.postgres
def test_the_look_reports_what_does_not_fit(postgres: PostgresInfo, table: str) -> None:
    sink = JdbcSink()
    assert sink.look(options(postgres, table), UPSERT) == sink.look(options(postgres, table), None)
    assert sink.look(options(postgres, "nowhere"), UPSERT).missing == "table public.nowhere"
    by_word = sink.look(options(postgres, table), shape("upsert", "word"))
    assert by_word.misfit == f"table public.{table} has no PRIMARY KEY or UNIQUE constraint on (word)"
    postgres.run(f"CREATE UNIQUE INDEX ON {table} (word) WHERE id > 0")
    assert sink.look(options(postgres, table), shape("upsert", "word")).misfit == by_word.misfit
    postgres.run(f"CREATE UNIQUE INDEX ON {table} (word) INCLUDE (note)")
    assert sink.look(options(postgres, table), shape("upsert", "word")).misfit is None
    postgres.run(f"ALTER TABLE {table} ADD COLUMN needed INT NOT NULL")
    assert sink.look(options(postgres, table), UPSERT).misfit == (
        f'column "needed" of table public.{table} does not allow NULL and has no default'
    )
    postgres.run(f"ALTER TABLE {table} DROP COLUMN needed, DROP COLUMN word")
    assert sink.look(options(postgres, table), UPSERT).misfit == f'table public.{table} has no column "word"'


@pytest.mark.postgres
def test_the_look_reports_types_that_do_not_fit_and_names_that_are_near(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(
        f"CREATE DOMAIN {name}_years AS INT; CREATE DOMAIN {name}_age AS {name}_years CHECK (value < 200);"
        f"CREATE TABLE {name} (ids INT, at TIMESTAMPTZ, n NUMERIC, b BOOL, raw BYTEA, tags TEXT[], doc JSONB, u UUID, "
        f"g INT GENERATED ALWAYS AS (ids + 1) STORED, age {name}_age)"
    )
    given = options(postgres, name)

    def look(column: str, kind: Any) -> tuple[str | None, str | None]:
        fields = [{"name": column, "type": kind, "nullable": True, "metadata": {}}]
        of = SinkShape(name="k", type="append-only", schema=json.dumps({"type": "struct", "fields": fields}))
        found = JdbcSink().look(given, of)
        assert found.error is None
        return found.misfit or found.doubt, found.hint

    missing, hint = look("id", "integer")
    assert missing == f'table public.{name} has no column "id"'
    assert (hint or "").startswith('did you mean "ids"? AS SELECT id AS ids …; or ALTER TABLE')
    assert look("g", "integer")[0] == f'column "g" of table public.{name} is generated and cannot be written'
    array = {"type": "array", "elementType": "string", "containsNull": True}
    struct = {"type": "struct", "fields": []}
    for column, kind in (
        ("ids", "string"), ("at", "string"), ("at", "long"), ("b", "integer"), ("ids", "double"), ("raw", "string"),
        ("ids", "decimal(10,2)"), ("doc", array), ("ids", struct), ("tags", "integer"), ("b", "timestamp"),
    ):  # fmt: skip
        doubt, hint = look(column, kind)
        assert doubt is not None, (column, kind)
        assert f'column "{column}" of table public.{name} is ' in doubt
        assert (hint or "").startswith("CAST it in the sink's query")
    for column, kind in (
        ("ids", "long"), ("ids", "decimal(10,0)"), ("at", "date"), ("at", "timestamp_ntz"), ("n", "double"),
        ("b", "boolean"), ("raw", "binary"), ("tags", array), ("doc", struct), ("doc", "string"), ("u", "string"),
        ("age", "integer"),
    ):  # fmt: skip
        assert look(column, kind) == (None, None), (column, kind)


@pytest.mark.postgres
def test_rights_and_passwords_are_tried(postgres: PostgresInfo, table: str) -> None:
    user = f"u_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE USER {user} PASSWORD 'other'")
    given = {**options(postgres, table), "user": user, "password": "other"}
    assert JdbcSink().look(given, UPSERT).misfit == f"the user lacks the privilege INSERT on table public.{table}"
    postgres.run(f"GRANT INSERT, SELECT, UPDATE ON {table} TO {user}")
    assert JdbcSink().look(given, UPSERT).misfit is None
    deleting = replace(UPSERT, deletes=True)
    assert JdbcSink().look(given, deleting).misfit == f"the user lacks the privilege DELETE on table public.{table}"
    postgres.run(f"GRANT DELETE ON {table} TO {user}")
    assert JdbcSink().look(given, deleting).misfit is None
    wrong = JdbcSink().look({**given, "password": "hunter2"}, UPSERT)
    assert "password authentication failed" in (wrong.error or "")
    assert "hunter2" not in (wrong.error or "")


@pytest.mark.parametrize(
    ("url", "made"),
    [
        ("jdbc:postgresql://db/shop", {"host": "db", "port": "5432", "dbname": "shop"}),
        ("jdbc:postgresql://[::1]:5433/a%20b", {"host": "::1", "port": "5433", "dbname": "a b"}),
        (
            "jdbc:postgresql://db/shop?sslmode=require&user=me",
            {"host": "db", "port": "5432", "dbname": "shop", "sslmode": "require", "user": "me"},
        ),
    ],
)
def test_urls(url: str, made: dict[str, str]) -> None:
    assert conninfo({"jdbc.url": url}) == made


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop",
        "jdbc:mysql://db/shop",
        "jdbc:postgresql:shop",
        "jdbc:postgresql://db",
        "jdbc:postgresql://db:port/shop",
        "jdbc:postgresql://me:hunter2@db/shop",
        "jdbc:postgresql://db/shop?password=hunter2",
        "jdbc:postgresql://db/shop?nonsense=1",
    ],
)
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(SqlError) as caught:
        conninfo({"jdbc.url": url})
    assert caught.value.code == "RW208"
    assert "hunter2" not in caught.value.message


def test_a_server_that_does_not_answer_is_reported() -> None:
    given = {"jdbc.url": "jdbc:postgresql://127.0.0.1:1/shop", "table.name": "t"}
    assert "Connection refused" in (JdbcSink().look(given, UPSERT, timeout=2).error or "")


@pytest.mark.postgres
def test_a_constraint_that_on_conflict_does_not_accept(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT NOT NULL, word TEXT, UNIQUE (id) DEFERRABLE)")
    given = options(postgres, name)
    with pytest.raises(SinkError, match="deferrable unique constraints"):
        JdbcSink().open(given, UPSERT, "me").write(batch((1, "a")), 0)
    found = JdbcSink().look(given, UPSERT)
    assert found.misfit == f"the constraint of table public.{name} on (id) is DEFERRABLE: an upsert cannot use it"
    assert found.hint == f"in the database: ALTER TABLE public.{name} DROP CONSTRAINT …, ADD UNIQUE (id)"
    postgres.run(f"ALTER TABLE {name} DROP CONSTRAINT {name}_id_key, ADD UNIQUE (id)")
    assert JdbcSink().look(given, UPSERT).misfit is None
    JdbcSink().open(given, UPSERT, "me").write(batch((1, "a")), 0)


@pytest.mark.postgres
def test_a_write_ends_although_the_server_answers_nothing() -> None:
    with running_server() as server:
        server.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        writer = JdbcSink().open(options(server.info, "t"), UPSERT, "me")
        told: list[str] = []

        def write() -> None:
            with pytest.raises(SinkError) as caught:
                writer.write(batch((1, "a")), 0)
            told.append(str(caught.value))

        thread = threading.Thread(target=write)
        with server.frozen():
            thread.start()
            wait_until(lambda: writer._connection.info.transaction_status != TransactionStatus.IDLE, "it writes")
            writer.cancel()
            wait_until(lambda: not thread.is_alive(), "the write has ended")
        writer.close()
        assert told == ["stopped"]
        assert server.run("SELECT * FROM t") == []


@pytest.mark.postgres
def test_a_write_ends_although_the_network_loses_every_packet(
    postgres: PostgresInfo, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url.limits({})["tcp_user_timeout"] == "60000"
    assert url.limits({url.QUERY_TIMEOUT: "300"})["tcp_user_timeout"] == "300000"
    monkeypatch.setattr(url, "_MOST_UNANSWERED_SECONDS", 1)
    with relay(postgres.port) as (port, lose):
        given = options(postgres, table)
        given["jdbc.url"] = given["jdbc.url"].replace(f":{postgres.port}/", f":{port}/")
        writer = JdbcSink().open(given, UPSERT, "me")
        writer.write(batch((1, "a")), 0)
        lose()
        with pytest.raises(SinkError):
            writer.write(batch((2, "b")), 1)
        writer.close()
    assert postgres.run(f"SELECT id FROM {table}") == [(1,)]


@pytest.mark.postgres
def test_the_right_to_temporary_tables_is_tried(postgres: PostgresInfo) -> None:
    """An upsert stores its batch in one; a database may refuse that to its users."""
    base, user = f"d_{uuid.uuid4().hex[:8]}", f"u_{uuid.uuid4().hex[:8]}"
    with connect(options(postgres, "t"), 8.0) as server:
        server.autocommit = True
        server.execute(f"CREATE DATABASE {base}".encode())
    postgres.run(f"CREATE USER {user} PASSWORD 'other'")
    postgres.run(f"REVOKE TEMPORARY ON DATABASE {base} FROM PUBLIC")
    given = options(postgres, "t")
    given["jdbc.url"] = given["jdbc.url"].rpartition("/")[0] + f"/{base}"
    with connect(given, 8.0) as connection:
        connection.execute("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        connection.execute(f"GRANT INSERT, SELECT, UPDATE ON t TO {user}".encode())
    theirs = {**given, "user": user, "password": "other"}
    misfit = JdbcSink().look(theirs, UPSERT).misfit
    assert misfit is not None
    assert "lacks the privilege TEMPORARY on the database" in misfit
    assert JdbcSink().look(theirs, shape()).misfit is None
    with connect(given, 8.0) as connection:
        connection.execute(f"GRANT TEMPORARY ON DATABASE {base} TO {user}".encode())
    assert JdbcSink().look(theirs, UPSERT).misfit is None
    writer = JdbcSink().open(theirs, UPSERT, "me")
    writer.write(batch((1, "a")), 0)
    writer.close()
