"""Tables that are loaded as a whole: their rows after a REFRESH, and the changes that their readers see."""

from __future__ import annotations

import base64
import os
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.connectors.jdbc.reader import _read
from rw_sql.errors import SqlError
from rw_sql.runtime.refresh import job as refresh_job
from rw_sql.runtime.refresh import loading, staging
from rw_sql.runtime.refresh.changes import changed_rows, had_each_key_once, quickly_changed_rows
from rw_sql.runtime.refresh.loading import held
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from rw_sql.syntax.query.maintained_form import KEEP
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.refreshed_table import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


@pytest.fixture
def orders(session: AttachedSession, postgres: PostgresInfo) -> Upstream:
    return Upstream(
        session, postgres, "id INT PRIMARY KEY, word TEXT, n INT", "id INT PRIMARY KEY, word VARCHAR, n INT"
    )


def changes_since(session: AttachedSession, version: int) -> Counter[str]:
    path = session.attached._runtime.context.warehouse.data(_table_id(session), 1)
    rows = DeltaTable(path).load_cdf(starting_version=version).read_all()
    return Counter(rows["_change_type"].to_pylist())


def version_of(session: AttachedSession) -> int:
    return DeltaTable(session.attached._runtime.context.warehouse.data(_table_id(session), 1)).version()


def _table_id(session: AttachedSession) -> int:
    return int(session.sql("SELECT id FROM rw_catalog.rw_tables WHERE name = 't'")[0].id)


@pytest.mark.postgres
def test_dependents_get_what_differs_and_nothing_else(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "CHUNK_ROWS", 10)
    session.run("CREATE MATERIALIZED VIEW per_word AS SELECT word, count(*) AS c, sum(n) AS s FROM t GROUP BY word")
    session.run("CREATE MATERIALIZED VIEW small AS SELECT id, n FROM t WHERE n < 50")
    orders.run("INSERT INTO {t} SELECT i, 'w' || i % 3, i FROM generate_series(1, 200) i")
    assert session.rows_of("t") == []  # nothing is loaded before it is asked for
    orders.refresh()
    assert session.rows_of("t") == [(i, f"w{i % 3}", i) for i in range(1, 201)]
    session.sql("FLUSH")
    before = version_of(session)
    orders.run("UPDATE {t} SET n = n + 1000 WHERE id % 20 = 0")
    orders.run("DELETE FROM {t} WHERE id IN (7, 8, 9)")
    orders.run("INSERT INTO {t} VALUES (1001, 'new', 1), (1002, NULL, NULL)")
    expected = session.rows_of("t")
    orders.refresh()
    rows = {row[0]: row for row in expected if row[0] not in (7, 8, 9)}
    rows |= {key: (key, word, n + 1000) for key, word, n in rows.values() if key % 20 == 0}
    rows |= {1001: (1001, "new", 1), 1002: (1002, None, None)}
    assert session.rows_of("t") == sorted(rows.values())
    assert changes_since(session, before + 1) == {
        "update_preimage": 10,
        "update_postimage": 10,
        "delete": 3,
        "insert": 2,
    }
    counted: dict[str | None, tuple[int, int | None]] = {}
    for _, word, n in rows.values():
        c, s = counted.get(word, (0, None))
        counted[word] = (c + 1, s if n is None else n + (s or 0))
    assert session.flushed_rows_of("per_word") == sorted(
        ((word, *of) for word, of in counted.items()), key=lambda row: (row[0] is not None, row[0])
    )
    assert session.rows_of("small") == sorted((key, n) for key, _, n in rows.values() if n is not None and n < 50)
    (state,) = session.sql("SELECT * FROM rw_catalog.rw_refresh_table_state")
    assert (state.current_status, state.trigger_interval_secs) == ("IDLE", None)
    assert state.last_success_time >= state.last_trigger_time
    chunks = session.sql("SELECT * FROM rw_catalog.rw_refresh_progress WHERE chunk >= 0 ORDER BY chunk")
    assert [(row.refresh, row.rows > 0, row.is_done) for row in chunks] == [(2, True, True)] * 2
    assert chunks[-1].position == '{"id": 1002}'


@pytest.mark.postgres
@pytest.mark.parametrize("divides", ["driver", "spark", "spark by size"])
def test_every_type_comes_through_and_stays_the_same(
    session: AttachedSession, postgres: PostgresInfo, divides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if divides != "driver":
        monkeypatch.setattr(staging, "may_hold", lambda *given: False)
    if divides == "spark by size":
        monkeypatch.setattr(staging, "CHUNK_BYTES", 100)
    monkeypatch.setattr(staging, "CHUNK_ROWS", 1)
    upstream = Upstream(
        session,
        postgres,
        "id BIGINT PRIMARY KEY, f REAL, d DOUBLE PRECISION, m NUMERIC(12, 2), b BOOLEAN, t TEXT, x BYTEA, day DATE, "
        "at TIMESTAMPTZ, plain TIMESTAMP, tags TEXT[], doc JSONB, who JSONB",
        "id BIGINT PRIMARY KEY, f REAL, d DOUBLE, m NUMERIC(12, 2), b BOOLEAN, t VARCHAR, x BYTEA, day DATE, "
        "at TIMESTAMPTZ, plain TIMESTAMP, tags VARCHAR[], doc VARCHAR, who STRUCT<name VARCHAR, age INT>",
    )
    upstream.run(
        "INSERT INTO {t} VALUES (1, 1.5, 0.1, 12.30, true, E'a\\nb', '\\x00ff', '2024-02-29', "
        "'2024-06-01 12:00:00.123456+02', '2024-06-01 12:00:00.5', ARRAY['x', NULL, 'y,z'], '{\"a\": 1}', "
        '\'{"name": "n", "age": 3}\'), '
        "(2, 'NaN', '-Infinity', NULL, NULL, '', '', NULL, NULL, NULL, '{}', NULL, NULL), "
        "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    upstream.refresh()
    one, two, three = session.sql("SELECT * FROM t ORDER BY id")
    assert (one.f, one.d, one.m, one.b, one.t, bytes(one.x)) == (1.5, 0.1, Decimal("12.30"), True, "a\nb", b"\0\xff")
    assert one.day == date(2024, 2, 29)
    assert one.at.astimezone(UTC) == datetime(2024, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert one.plain == datetime(2024, 6, 1, 12, 0, 0, 500000)
    assert (list(one.tags), one.doc, tuple(one.who)) == (["x", None, "y,z"], '{"a": 1}', ("n", 3))
    assert (str(two.f), two.d, two.t, bytes(two.x), list(two.tags)) == ("nan", float("-inf"), "", b"", [])
    assert three.asDict() == {"id": 3, **dict.fromkeys(three.asDict().keys() - {"id"})}
    before = version_of(session)
    upstream.refresh()
    assert version_of(session) == before  # the same rows again are no change


@pytest.mark.postgres
def test_a_second_refresh_meanwhile_is_refused_and_a_failed_one_says_why(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.run("INSERT INTO {t} VALUES (1, 'a', 1)")
    told: dict[str, Any] = {}
    real: Callable[..., Any] = loading.load

    def slow(*given: Any) -> Any:
        with pytest.raises(SqlError) as caught:
            session.sql("REFRESH TABLE t")
        told["refused"] = caught.value.message
        told["job"] = session.job("t")
        return real(*given)

    monkeypatch.setattr(refresh_job, "load", slow)
    orders.refresh()
    assert told["refused"] == (
        "Table 'public.t' is currently in state REFRESHING. Cannot start a new refresh operation."
    )
    # With a warehouse in an object store, Spark has already run tasks for the table's state, whose number is shown.
    assert (told["job"].state, told["job"].reason.split(":")[0]) == ("REFRESHING", "loading")
    monkeypatch.setattr(refresh_job, "load", real)
    orders.run("ALTER TABLE {t} ALTER COLUMN n TYPE TEXT USING 'many'")
    session.sql("REFRESH TABLE t")
    (notice,) = session.sql("WAIT TABLE t")
    assert notice.change == "NOTICE"
    assert "many" in notice.detail
    assert session.job("t").state == "IDLE"
    assert session.rows_of("t") == [(1, "a", 1)]
    orders.run("ALTER TABLE {t} ALTER COLUMN n TYPE INT USING 7")
    orders.refresh()
    assert session.rows_of("t") == [(1, "a", 7)]


@pytest.mark.postgres
def test_a_value_that_does_not_fit_is_named_with_its_row_and_what_to_type(
    session: AttachedSession, postgres: PostgresInfo
) -> None:
    upstream = Upstream(
        session,
        postgres,
        "a INT, b TEXT, v NUMERIC, cost MONEY, raw BYTEA[], d NUMERIC, span INTERVAL, noon TIME, u UUID, "
        "PRIMARY KEY (a, b)",
        "a INT, word VARCHAR FROM b, v NUMERIC(10, 2), cost NUMERIC(20, 2), raw BYTEA[], d DOUBLE, span VARCHAR, "
        "noon VARCHAR, u VARCHAR, PRIMARY KEY (a, word)",
    )
    upstream.run(
        "INSERT INTO {t} VALUES (1, 'x', 1.5, '1234.5', ARRAY['\\x00ff'::bytea, NULL], 'NaN', '1 year 2 days', "
        "'24:00', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), (2, 'y', NULL, NULL, '{}', '-Infinity', NULL, NULL, NULL)"
    )
    upstream.refresh()
    one, two = session.sql("SELECT * FROM t ORDER BY a")
    assert (one.v, one.cost, [each and bytes(each) for each in one.raw]) == (
        Decimal("1.50"), Decimal("1234.50"), [b"\0\xff", None],
    )  # fmt: skip
    assert (str(one.d), two.d, two.raw) == ("nan", float("-inf"), [])
    assert (one.span, one.noon, one.u) == ("1 year 2 days", "24:00:00", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    upstream.run("INSERT INTO {t} VALUES (3, 'z', 'NaN')")
    session.sql("REFRESH TABLE t")
    (notice,) = session.sql("WAIT TABLE t")
    assert notice.detail == (
        'the refresh failed: column "v" of row (a = 3, word = z): NaN is not of type NUMERIC(10, 2): '
        "DROP TABLE t, and create it again as SHOW CREATE TABLE t shows it now, but with v DOUBLE PRECISION; "
        "or correct the row upstream"
    )
    assert len(session.rows_of("t")) == 2
    with pytest.raises(SqlError, match=f'column "raw" of table {upstream.name} is bytea\\[\\]') as caught:
        session.sql(
            f"CREATE TABLE other (a INT PRIMARY KEY, raw INT[]) WITH (connector = 'jdbc', connection = pg, "
            f"table.name = '{upstream.name}', refresh_mode = 'FULL_RELOAD')"
        )
    assert caught.value.code == "RW212"


def test_texts_of_postgres_are_read_exactly_or_not_at_all(spark: SparkSession) -> None:
    good = [
        ("DECIMAL(10,2)", "1.50", Decimal("1.50")), ("DOUBLE", "Infinity", float("inf")), ("FLOAT", "1.5", 1.5),
        ("DATE", "0001-01-01", date(1, 1, 1)), ("DATE", "9999-12-31", date(9999, 12, 31)),
        ("TIMESTAMP_NTZ", "9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("BOOLEAN", "true", True), ("BIGINT", "-9223372036854775808", -(2**63)),
        ("ARRAY<INT>", "[1, null, 3]", [1, None, 3]), ("ARRAY<ARRAY<INT>>", "[[1, 2], [3, null]]", [[1, 2], [3, None]]),
        ("ARRAY<DECIMAL(38,10)>", "[12345678901234567890.0123456789]", [Decimal("12345678901234567890.0123456789")]),
        ("ARRAY<DATE>", '["2024-02-29", null]', [date(2024, 2, 29), None]), ("STRUCT<a: INT>", "null", None),
        ("DECIMAL(10,2)", "1.50000", Decimal("1.50")), ("DECIMAL(10,2)", "1.5e+06", Decimal("1500000.00")),
        ("ARRAY<DECIMAL(10,2)>", "[1.500, null]", [Decimal("1.50"), None]),
        ("DATE", "2024-02-29 00:00:00", date(2024, 2, 29)), ("DATE", "2024-02-29 00:00:00+00", date(2024, 2, 29)),
        ("TIMESTAMP_NTZ", "2024-02-29 01:00:00+00", datetime(2024, 2, 29, 1)), ("INT", " +12 ", 12),
        ("DOUBLE", "1e+20", 1e20), ("BOOLEAN", "1", True),
        ("STRUCT<a: DECIMAL(38,2), t: STRING>", '{"a": 1.5, "t": "0.123"}', (Decimal("1.50"), "0.123")),
    ]  # fmt: skip
    bad = [
        ("DECIMAL(10,2)", "NaN"), ("DECIMAL(10,2)", "-Infinity"), ("DECIMAL(10,2)", "123456789012.5"), ("INT", "NaN"),
        ("INT", "3000000000"), ("INT", "12x"), ("FLOAT", "1e300"), ("DOUBLE", "1e400"), ("BOOLEAN", "perhaps"),
        ("DATE", "infinity"), ("DATE", "0044-03-15 BC"), ("DATE", "12024-03-15"), ("DATE", "2024-02-30"),
        ("TIMESTAMP_NTZ", "-infinity"), ("TIMESTAMP_NTZ", "0044-03-15 00:00:00 BC"),
        ("TIMESTAMP_NTZ", "12024-03-15 00:00:00"), ("TIMESTAMP", "infinityZ"), ("TIMESTAMP", "0044-03-15 00:00:00 BCZ"),
        ("TIMESTAMP", "10000-01-01 00:00:00Z"), ("TIMESTAMP", "294276-12-31 23:59:59Z"),
        ("ARRAY<INT>", "[[1, 2], [3, 4]]"), ("ARRAY<DECIMAL(10,2)>", "[12345678901234.5]"),
        ("ARRAY<DECIMAL(10,2)>", '["NaN"]'), ("ARRAY<DATE>", '["0044-03-15 BC"]'), ("ARRAY<DATE>", '["12024-03-15"]'),
        ("DECIMAL(10,2)", "1.239"), ("DECIMAL(10,0)", "1.5"), ("DECIMAL(10,2)", "1.5e-07"),
        ("DECIMAL(10,2)", f"1.{'0' * 60}1"), ("ARRAY<DECIMAL(10,2)>", "[1.5, 1.239]"),
        ("ARRAY<DECIMAL(10,2)>", f"[1.{'0' * 60}1]"), ("STRUCT<a: DECIMAL(38,2)>", '{"a": 1.239}'),
        ("DATE", "2024-02-29 10:00:00"), ("DATE", "2024-02-29 10:00:00+00"), ("DATE", "2024-02-29T00:00:00.1"),
        ("DATE", "2024-02-29 00:00:00+02"), ("DATE", "2024"), ("DATE", "2024-2-9"), ("DATE", "٢٠٢٤-02-09"),
        ("DATE", "2024-02-29\n"), ("TIMESTAMP_NTZ", "2024-02-29 10:00:00+02"), ("TIMESTAMP_NTZ", "10:00"),
        ("TIMESTAMP_NTZ", "2024-02-29 10:00:00 "), ("TIMESTAMP", "2024-02-29 10:00:00"), ("TIMESTAMP", "now"),
        ("TIMESTAMP", "2024-02-29 10:00:00+02 Z"), ("INT", "٣"), ("INT", "\x0012"), ("INT", "1_000"), ("INT", "0x10"),
        ("INT", "1e3"), ("INT", "12\x1f"), ("DECIMAL(10,2)", "٣"), ("DECIMAL(10,2)", "1E-5"),
        ("DECIMAL(10,2)", "1e600000000"), ("DECIMAL(10,2)", "1_0"), ("DOUBLE", "1d"), ("DOUBLE", "0x1p3"),
        ("DOUBLE", "٣"), ("DOUBLE", "iNfInItY"), ("BOOLEAN", "yes"), ("BOOLEAN", "t"),
        ("ARRAY<TIMESTAMP_NTZ>", '["infinity"]'), ("STRUCT<a: INT, b: DATE>", '{"a": "x"}'),
    ]  # fmt: skip

    texts = {f"c{at}": each[1] for at, each in enumerate([*good, *bad])}
    frame = spark.createDataFrame([tuple(texts.values())], list(texts))
    schema = StructType.fromDDL(", ".join(f"c{at} {each[0]}" for at, each in enumerate([*good, *bad])))
    assert isinstance(schema, StructType)
    kinds = [column.dataType for column in schema.fields]
    read = [_read(f.col(name), kind) for name, kind in zip(texts, kinds, strict=True)]
    values = [value.alias(f"v{at}") for at, (value, _) in enumerate(read[: len(good)])]
    fits = [f.coalesce(fit, f.lit(False)).alias(f"f{at}") for at, (_, fit) in enumerate(read) if fit is not None]
    (row,) = frame.select(*values, *fits).collect()
    assert [row[f"v{at}"] for at in range(len(good))] == [value for _, _, value in good]
    assert [row[f"f{at}"] for at in range(len(texts))] == [True] * len(good) + [False] * len(bad)


@pytest.mark.postgres
def test_a_first_refresh_is_spread_by_what_the_upstream_holds(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is empty at that time, and its own row count would give only two partitions for comparing a whole
    upstream."""
    monkeypatch.setattr(loading, "_PARTITION_ROWS", 100)
    met: list[str | None] = []

    def changed(fresh: Any, table: Any, keys: Any) -> Any:
        met.append(fresh.sparkSession.conf.get("spark.sql.shuffle.partitions"))
        return changed_rows(fresh, table, keys)

    monkeypatch.setattr(loading, "changed_rows", changed)
    orders.refresh()
    orders.run("INSERT INTO {t} SELECT i, 'w', i FROM generate_series(1, 1000) i")
    orders.run("ANALYZE {t}")
    orders.refresh()
    assert met == ["2", "12"]
    assert len(session.rows_of("t")) == 1000


@pytest.mark.long
def test_times_in_json_files_are_read_as_by_a_source(session: AttachedSession, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1, "at": 1712800800000, "day": "2024-02-29"}\n{"id": 2}\n', encoding="utf-8")
    read = f"(connector = 'posix_fs', posix_fs.root = '{folder}'"
    json = "FORMAT PLAIN ENCODE JSON (timestamptz.handling.mode = 'milli')"
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, seen_at TIMESTAMPTZ FROM at, day DATE, again TIMESTAMPTZ AS seen_at) "
        f"WITH {read}, refresh_mode = 'FULL_RELOAD') {json}",
        f"CREATE SOURCE s (id INT, at TIMESTAMPTZ, day DATE) WITH {read}) {json}",
        "REFRESH TABLE t",
        "WAIT TABLE t",
    )
    rows = session.sql("SELECT id, seen_at AS at, day FROM t WHERE again <=> seen_at ORDER BY id")
    assert rows[0].at.astimezone(UTC) == datetime(2024, 4, 11, 2, 0, tzinfo=UTC)
    assert rows == session.sql("SELECT * FROM s ORDER BY id")
    (folder / "a.json").write_text('{"id": 1, "at": "soon"}\n', encoding="utf-8")
    session.sql("REFRESH TABLE t")
    (notice,) = session.sql("WAIT TABLE t")
    assert 'column "seen_at": soon is not of type' in notice.detail
    assert session.sql("SELECT id, seen_at AS at, day FROM t ORDER BY id") == rows


@pytest.fixture
def rows(spark: SparkSession) -> Callable[[list[tuple[Any, ...]]], Any]:
    def made(given: list[tuple[Any, ...]]) -> Any:
        return spark.createDataFrame(
            given, "k STRING, n INT, tags ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<a: INT, b: INT>"
        )

    return made


def test_rows_that_differ_are_distinguished_from_rows_that_do_not(rows: Callable[[list[tuple[Any, ...]]], Any]) -> None:
    same = [
        ("a", 1, ["x"], {"p": 1}, (1, None)),
        (None, None, None, None, None),
        ("b", 2, [], {}, (None, None)),
    ]
    old = [*same, ("c", 1, None, None, None), ("d", None, ["x", None], None, None), ("e", 1, None, None, (1, None))]
    old += [("gone", 1, None, None, None), ("f", 0, None, {"p": 1}, None)]
    new = [*same, ("c", None, None, None, None), ("d", None, [None, "x"], None, None), ("e", 1, None, None, (None, 1))]
    new += [("new", 1, None, None, None), ("f", 0, None, {"p": 2}, None)]
    found = changed_rows(rows(new), rows(old), ["k"]).collect()
    with held(quickly_changed_rows(rows(new), rows(old), ["k"])) as (quick, number):
        assert had_each_key_once(quick, len(old))
        assert number == len(found)
        assert sorted(map(str, quick.collect())) == sorted(map(str, found))
    assert {(row["k"], row[KEEP]) for row in found} == {
        ("c", True),
        ("d", True),
        ("e", True),
        ("f", True),
        ("new", True),
        ("gone", False),
    }
    assert len(found) == 6


def test_of_rows_with_one_key_always_the_same_counts(rows: Callable[[list[tuple[Any, ...]]], Any]) -> None:
    twice = [("a", n, None, None, None) for n in (1, 2, 3)]
    (first,) = changed_rows(rows(twice), None, ["k"]).collect()
    for order in (twice, twice[::-1]):
        assert changed_rows(rows(order), rows([tuple(first)[:5]]), ["k"]).collect() == []


def test_where_a_key_comes_twice_it_is_compared_the_slow_way(rows: Callable[[list[tuple[Any, ...]]], Any]) -> None:
    old = [("a", 1, None, None, None), ("b", 1, None, None, None)]
    for twice in ([*old, old[0]], [*old, ("b", 2, None, None, None)], [("a", 2, None, None, None)] * 2):
        with held(quickly_changed_rows(rows(twice), rows(old), ["k"])) as (quick, _):
            assert not had_each_key_once(quick, len(old))
    # For a key that the table does not have, the row that counts is found here too.
    new = [*old, *(("c", n, None, None, None) for n in (3, 1, 2))]
    with held(quickly_changed_rows(rows(new), rows(old), ["k"])) as (quick, _):
        assert had_each_key_once(quick, len(old))
        assert quick.collect() == changed_rows(rows(new), rows(old), ["k"]).collect()


@pytest.mark.parametrize("name", ["plain", "a b", "aé", "a*b"])
def test_the_tables_rows_are_read_wherever_it_lies(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    write_deltalake(path, pa.table({"k": ["x", "y"], "n": pa.array([1, 2], pa.int32())}))
    schema = spark.createDataFrame([], "k STRING, n INT").schema.json()
    output: Any = SimpleNamespace(path=path, table=DeltaTable(path))
    assert sorted(map(tuple, loading.stored_rows(spark, output, schema).collect())) == [("x", 1), ("y", 2)]


@pytest.mark.parametrize("quick_rows", [loading.QUICK_ROWS, 0], ids=["quick", "slow"])
@pytest.mark.postgres
def test_both_ways_come_to_the_same(
    session: AttachedSession, orders: Upstream, monkeypatch: pytest.MonkeyPatch, quick_rows: int
) -> None:
    monkeypatch.setattr(loading, "QUICK_ROWS", quick_rows)
    orders.run("INSERT INTO {t} SELECT i, 'x' || i, i FROM generate_series(1, 50) AS i")
    orders.refresh()
    orders.run("DELETE FROM {t} WHERE id <= 5")
    orders.run("UPDATE {t} SET n = -n WHERE id <= 10")
    orders.run("INSERT INTO {t} VALUES (100, NULL, NULL)")
    before = version_of(session)
    orders.refresh()
    assert version_of(session) > before
    kept = [(n, f"x{n}", -n if n <= 10 else n) for n in range(6, 51)]
    assert session.rows_of("t") == [*kept, (100, None, None)]


@pytest.mark.postgres
def test_a_scheduled_refresh_waits_for_a_paused_source(session: AttachedSession, orders: Upstream) -> None:
    session.run(
        f"CREATE TABLE every (id INT PRIMARY KEY, n INT) WITH (connector = 'jdbc', connection = pg, "
        f"table.name = '{orders.name}', refresh_mode = 'FULL_RELOAD', refresh_interval_sec = '1')"
    )
    orders.run("INSERT INTO {t} VALUES (1, 'a', 1)")
    wait_until(lambda: session.rows_of("every") == [(1, 1)], "the first rows")
    orders.run("UPDATE {t} SET n = 2")
    wait_until(lambda: session.rows_of("every") == [(1, 2)], "the next rows")
    session.run("PAUSE SOURCE every", "WAIT TABLE every")
    with pytest.raises(SqlError, match="cannot be refreshed while its source is paused"):
        session.sql("REFRESH TABLE every")
    session.run("DROP TABLE every")
