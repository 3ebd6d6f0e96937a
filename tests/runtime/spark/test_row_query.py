"""A row-by-row query that the driver computes has the rows that Spark's own jobs compute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.runtime.spark import row_query
from rw_sql.runtime.spark.row_query import RowQuery
from rw_sql.runtime.spark.sessions import SparkSessions, plain_sql, register_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("k", pa.string()),
        ("ratio", pa.float64()),
        ("cents", pa.decimal128(18, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("bare", pa.timestamp("us")),
        ("day", pa.date32()),
        ("is_on", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)

QUERIES = (
    "SELECT id, k FROM s",
    "SELECT * FROM s",
    "SELECT id + 1 AS n, upper(k) AS k, concat_ws('-', k, CAST(id AS STRING)) AS c FROM s WHERE id > 0",
    "SELECT date_trunc('hour', at) AS h, date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS t, year(day) AS y FROM s",
    "SELECT CASE WHEN ratio > 0 THEN 'up' ELSE 'down' END AS w, ratio * 2 AS r, round(ratio, 2) q FROM s",
    "SELECT cents * 3 AS c, CAST(cents AS DECIMAL(20, 4)) AS d, abs(cents) AS a FROM s WHERE cents IS NOT NULL",
    "SELECT tags[0] AS first, size(tags) AS n, array_sort(tags) AS t, transform(tags, x -> x || '!') AS f FROM s",
    "SELECT place.city, place.zip + 1 AS z, map_keys(counts) AS ks, counts['a'] AS a, struct(id) AS o FROM s",
    "SELECT hex(raw) AS h, md5(raw) AS m, length(k) AS l, k LIKE 'a%' AS a, regexp_extract(k, '(.)b', 1) AS e FROM s",
    "SELECT coalesce(k, 'none') AS k, nvl(id, -1) AS i, is_on AND id > 3 AS b, bare + INTERVAL 1 DAY AS d FROM s",
    "SELECT t.n FROM (SELECT id * 2 AS n, is_on FROM s WHERE k IS NOT NULL) t WHERE t.is_on OR t.n > 10",
    "SELECT try_divide(id, small) AS d, try_cast(k AS INT) i, from_json('{\"a\":' || id || '}', 'a INT').a j FROM s",
    "SELECT id, k FROM s WHERE false",
    "SELECT * FROM s WHERE k = NULL",
    "SELECT id FROM s WHERE 'dev' = 'prod' AND id > 0",
    "SELECT id FROM s WHERE small > 100000",
    "SELECT id FROM s WHERE true AND 1 = 1",
    "SELECT timestampadd(HOUR, small, at) AS t, unix_micros(at) AS u, datediff(day, DATE'2020-01-01') AS n FROM s",
)

TEXTS = ("a", "ab", "", "Ab", "ä😀", "12", None, "null", "\u0000x")


def drawn(random: Random, count: int) -> pa.Table:
    def some(make: Callable[[], Any]) -> list[Any]:
        return [None if random.random() < 0.15 else make() for _ in range(count)]

    def text() -> str | None:
        return random.choice(TEXTS)

    since = datetime(1, 1, 1, tzinfo=UTC)
    moments = some(lambda: since + timedelta(microseconds=random.randrange(9_000 * 365 * 86_400 * 10**6)))
    values: dict[str, list[Any]] = {
        "id": some(lambda: random.randint(-5, 20)),
        "small": some(lambda: random.randint(-3, 3)),
        "k": [text() for _ in range(count)],
        "ratio": some(lambda: random.choice((0.0, -0.0, 1.5, -2.25, 1e300, float("nan"), float("inf")))),
        "cents": some(lambda: Decimal(random.randint(-(10**6), 10**6)) / 100),
        "at": moments,
        "bare": [None if at is None else at.replace(tzinfo=None) for at in moments],
        "day": some(lambda: date(1, 1, 1) + timedelta(days=random.randrange(9_000 * 365))),
        "is_on": some(lambda: random.random() < 0.5),
        "raw": some(lambda: random.randbytes(3)),
        "tags": some(lambda: [text() for _ in range(random.randint(1, 3))]),
        "place": some(lambda: {"city": text(), "zip": random.randint(0, 9)}),
        "counts": some(lambda: [("a", 1), ("b", None)][: random.randint(0, 2)]),
    }
    return pa.table([pa.array(values[column.name], column.type) for column in SCHEMA], schema=SCHEMA)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return SparkSessions(spark, is_local=True).new()


def query_of(session: SparkSession, text: str) -> Callable[[DataFrame], DataFrame]:
    def query(rows: DataFrame) -> DataFrame:
        register_view(rows, "s")
        return plain_sql(session, text)

    return query


@pytest.mark.parametrize("text", QUERIES)
def test_the_driver_computes_what_jobs_compute(session: SparkSession, text: str) -> None:
    prepared = RowQuery.of(session, SCHEMA, query_of(session, text))
    assert prepared is not None
    for count in (1, 0, 40, 3):
        given = drawn(Random(f"{text}{count}"), count)
        rows = prepared.rows(given)
        assert rows is not None
        register_view(session.createDataFrame(given).repartition(2), "s")
        expected = plain_sql(session, text).toArrow()
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, expected.to_pylist()))
        if rows.num_rows:
            assert [column.type for column in rows.schema] == [column.type for column in expected.schema]


@pytest.mark.parametrize(
    "text",
    [
        # not row-by-row
        "SELECT count(*) AS n FROM s",
        "SELECT explode(tags) AS t FROM s",
        "SELECT a.id FROM s a JOIN s b ON a.id = b.id",
        "SELECT DISTINCT k FROM s",
        "SELECT id FROM s ORDER BY id LIMIT 3",
        "SELECT id FROM s WHERE id IN (SELECT small FROM s)",
        "SELECT id FROM s UNION ALL SELECT small FROM s",
        # values that change by themselves
        "SELECT id, current_timestamp() AS t FROM s",
        "SELECT id FROM s WHERE day < current_date()",
        "SELECT id, now() AS t FROM s",
        "SELECT id, localtimestamp() AS t FROM s",
        "SELECT id FROM s WHERE day = CAST('today' AS DATE)",
        "SELECT id, 'yesterday'::date AS d FROM s",
        "SELECT id FROM s WHERE day = to_date('today')",
        "SELECT id, try_to_timestamp('now') AS t FROM s",
        "SELECT id FROM s WHERE at < 'now'",
        f"SELECT {', '.join(f'id AS c{at}' for at in range(30))}, datediff(current_date(), day) AS age FROM s",
        f"SELECT {', '.join(f'id AS c{at}' for at in range(30))}, CAST('tomorrow' AS TIMESTAMP) AS t FROM s",
        f"SELECT greatest({', '.join(f'id + {at}' for at in range(30))}, year('today'::date)) AS g FROM s",
        "SELECT id, rand() AS r FROM s",
        "SELECT id FROM s WHERE rand() < 0.5",
        "SELECT id, uuid() AS u FROM s",
        "SELECT id, monotonically_increasing_id() AS u FROM s",
    ],
)
def test_other_queries_are_not_prepared(session: SparkSession, text: str) -> None:
    assert RowQuery.of(session, SCHEMA, query_of(session, text)) is None


def test_many_bytes_are_computed_by_a_job(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = RowQuery.of(session, SCHEMA, query_of(session, "SELECT id, k FROM s WHERE id > 0"))
    assert prepared is not None
    given = drawn(Random("bytes"), 40)
    few = prepared.rows(given)
    monkeypatch.setattr(row_query, "_MOST_COPIED_BYTES", 100)
    many = prepared.rows(given)
    assert few is not None
    assert many is not None
    assert many.num_rows
    assert many.to_pylist() == few.to_pylist()


def test_an_error_of_an_expression_is_raised_and_later_rows_are_computed(session: SparkSession) -> None:
    prepared = RowQuery.of(session, SCHEMA, query_of(session, "SELECT 10 div id AS n FROM s WHERE id IS NOT NULL"))
    assert prepared is not None
    rows = drawn(Random("errors"), 1)
    zero = rows.set_column(0, "id", pa.array([0], pa.int64()))
    with pytest.raises((PySparkException, Py4JError), match="DIVIDE_BY_ZERO"):
        prepared.rows(zero)
    five = prepared.rows(rows.set_column(0, "id", pa.array([5], pa.int64())))
    assert five is not None
    assert five.to_pylist() == [{"n": 2}]


def test_a_setting_of_the_user_is_kept(session: SparkSession) -> None:
    name = "spark.sql.optimizer.excludedRules"
    session.conf.set(name, "org.apache.spark.sql.catalyst.optimizer.CombineFilters")
    try:
        assert RowQuery.of(session, SCHEMA, query_of(session, "SELECT id FROM s")) is not None
        assert session.conf.get(name) == "org.apache.spark.sql.catalyst.optimizer.CombineFilters"
    finally:
        session.conf.unset(name)


def test_preparing_does_not_change_later_frames(session: SparkSession) -> None:
    assert RowQuery.of(session, SCHEMA, query_of(session, "SELECT id FROM s WHERE id > 3")) is not None
    frame = local_frame(session, drawn(Random("later"), 5)).where("id > 3")
    assert frame.count() == sum((row or 0) > 3 for row in drawn(Random("later"), 5)["id"].to_pylist())
