"""Schemas in a live session: objects of one name beside each other, views across schemas, moves, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Topics:
    """Topics of the module's own, by short names."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = f"schemas-{uuid4().hex[:8]}"
        for name in ("raw", "plain", "users"):
            create_topic(bootstrap, f"{self._prefix}-{name}", 1)

    def put(self, name: str, **values: int) -> str:
        """One more record in a topic; the rest of a statement that creates a source on it."""
        topic = f"{self._prefix}-{name}"
        produce_json(self._bootstrap, topic, [values])
        server = f"properties.bootstrap.server = '{self._bootstrap}'"
        return f"WITH (connector = 'kafka', topic = '{topic}', {server}) FORMAT PLAIN ENCODE JSON"


@pytest.fixture(scope="module")
def topics(broker: BrokerInfo) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture(scope="module")
def live(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedSession]:
    session = AttachedSession(spark, str(tmp_path_factory.mktemp("schemas") / "warehouse"))
    session.run(
        "CREATE SCHEMA raw",
        "CREATE SCHEMA mart",
        f"CREATE SOURCE raw.orders (id INT, amount INT) {topics.put('raw', id=1, amount=5)}",
        f"CREATE SOURCE orders (id INT, other INT) {topics.put('plain', id=1, other=7)}",
        f"CREATE TABLE raw.users (id INT PRIMARY KEY, n INT) {topics.put('users', id=1, n=3)}",
        "CREATE MATERIALIZED VIEW mart.totals AS SELECT orders.id, orders.amount FROM raw.orders",
        "CREATE MATERIALIZED VIEW totals AS SELECT id, other FROM public.orders",
        "CREATE MATERIALIZED VIEW mart.next AS SELECT t.id, t.amount + 1 AS n FROM mart.totals AS t",
        "CREATE MATERIALIZED VIEW mart.counted AS SELECT users.n, count(*) AS c FROM raw.users GROUP BY users.n",
    )
    yield session
    session.detach()


def test_objects_of_one_name_and_views_across_schemas(live: AttachedSession, topics: Topics) -> None:
    assert live.flushed_rows_of("mart.next") == [(1, 6)]
    assert live.rows_of("mart.totals") == [(1, 5)]
    assert live.rows_of("totals") == [(1, 7)]
    assert live.rows_of("raw.users") == [(1, 3)]
    assert live.rows_of("mart.counted") == [(3, 1)]
    assert {row.namespace for row in live.sql("SHOW DATABASES")} >= {"raw", "mart"}
    assert {row.viewName for row in live.sql("SHOW VIEWS FROM mart")} == {"totals", "next", "counted"}
    assert [row.name for row in live.sql("SHOW SCHEMAS")] == ["mart", "public", "raw"]
    topics.put("raw", id=1, amount=10)
    assert live.flushed_rows_of("mart.next") == [(1, 6), (1, 11)]


def test_sources_of_one_name_are_read_by_plain_sql(live: AttachedSession) -> None:
    assert live.rows_of("raw.orders") == [(1, 5), (1, 10)]
    assert live.rows_of("orders") == [(1, 7)]
    joined = "SELECT sum(orders.amount + o.other) FROM raw.orders JOIN orders AS o ON orders.id = o.id"
    assert live.sql(joined)[0][0] == 29
    assert len(live.spark.table("raw.orders").collect()) == 2


def test_the_search_path_is_that_of_plain_sql_too(live: AttachedSession) -> None:
    live.sql("FLUSH")
    try:
        live.sql("SET search_path = mart, raw")
        assert live.sql("SHOW search_path")[0].search_path == "mart, raw"
        assert live.rows_of("totals") == [(1, 5), (1, 10)]
        assert live.rows_of("users") == [(1, 3)]
        assert live.rows_of("orders") == live.rows_of("raw.orders")
        live.sql("CREATE TABLE own USING delta AS SELECT id FROM orders LIMIT 1")
        assert live.rows_of("mart.own") == [(1,)]
        live.sql("DROP TABLE own")
        live.sql("USE raw")
        assert live.spark.catalog.currentDatabase() == "raw"
        with pytest.raises(SqlError) as caught:
            live.sql("REBUILD MATERIALIZED VIEW totals")
        assert caught.value.hint == '"totals" is in the schemas mart, public: write mart.totals or public.totals'
        live.sql("PAUSE SOURCE orders")
        assert {row.name: row.state for row in live.sql("SHOW SOURCES")}["raw.orders"] == "PAUSED"
        live.sql("RESUME SOURCE orders")
    finally:
        live.sql("USE default")
    assert live.spark.catalog.currentDatabase() == "default"
    assert live.sql("SHOW search_path")[0].search_path == "public"
    assert live.rows_of("totals") == [(1, 7)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DROP VIEW mart.totals", '"mart.totals" is a materialized view: DROP VIEW does not drop it'),
        ("INSERT INTO raw.users VALUES (1, 2)", '"raw.users" is a table'),
        ("DROP DATABASE raw CASCADE", '"raw" is a schema: DROP DATABASE does not drop it'),
        ("CREATE VIEW mart.totals AS SELECT 1", 'materialized view "mart.totals" already exists'),
    ],
)
def test_plain_sql_does_not_change_what_is_in_schemas(live: AttachedSession, text: str, told: str) -> None:
    with pytest.raises(SqlError) as caught:
        live.sql(text)
    assert told in caught.value.message


def test_catalog_views_say_the_schema(live: AttachedSession) -> None:
    found = {tuple(row) for row in live.sql("SELECT schema_name, name FROM rw_catalog.rw_sources")}
    assert found == {("raw", "raw.orders"), ("raw", "raw.users"), ("public", "orders")}
    found = {tuple(row) for row in live.sql("SELECT schema_name, name FROM rw_catalog.rw_materialized_views")}
    assert found == {("mart", "mart.totals"), ("mart", "mart.next"), ("mart", "mart.counted"), ("public", "totals")}
    assert {row.name for row in live.sql("SELECT name FROM rw_catalog.rw_schemas")} == {"public", "raw", "mart"}


def test_moves_and_undo_name_the_schema(live: AttachedSession) -> None:
    live.allow_unsafe()
    live.run("PAUSE SOURCE raw.orders", "ALTER SOURCE raw.orders UNSAFE SET (properties.client.id = 'moved')")
    operation = live.sql("SHOW UNSAFE OPERATIONS FOR raw.orders")[0]
    assert operation.statement.startswith("ALTER SOURCE raw.orders UNSAFE SET")
    assert not live.sql("SHOW UNSAFE OPERATIONS FOR orders")
    live.run(f"UNDO OPERATION {operation.operation}", "RESUME SOURCE raw.orders")
    assert live.flushed_rows_of("mart.totals") == [(1, 5), (1, 10)]


def test_set_schema_and_rename_while_rows_arrive(live: AttachedSession, topics: Topics) -> None:
    live.run(
        "ALTER SOURCE raw.orders SET SCHEMA mart",
        "ALTER MATERIALIZED VIEW mart.totals SET SCHEMA raw",
        "ALTER MATERIALIZED VIEW raw.totals RENAME TO sums",
    )
    topics.put("raw", id=2, amount=100)
    assert live.flushed_rows_of("mart.next") == [(1, 6), (1, 11), (2, 101)]
    assert live.rows_of("raw.sums", "sum(amount)") == [(115,)]
    assert live.rows_of("mart.orders", "sum(amount)") == [(115,)]
    (create,) = live.sql("SHOW CREATE MATERIALIZED VIEW mart.next")
    assert create.create_sql.endswith("SELECT t.id, t.amount + 1 AS n FROM raw.sums AS t")
    assert not live.spark.catalog.tableExists("mart.totals")


def test_a_restart_finds_all_of_it(live: AttachedSession, topics: Topics) -> None:
    live.detach()
    assert "raw" not in {row.namespace for row in live.sql("SHOW DATABASES")}
    live.attached = AttachedSession(live.spark, live.warehouse).attached
    topics.put("raw", id=3, amount=1)
    topics.put("users", id=1, n=4)
    assert live.flushed_rows_of("mart.next", "max(id), sum(n)") == [(3, 120)]
    assert live.rows_of("mart.counted") == [(4, 1)]


def test_drop_schema(live: AttachedSession) -> None:
    live.sql("CREATE DATABASE theirs")
    try:
        with pytest.raises(SqlError) as caught:
            live.sql("CREATE SCHEMA theirs")
        assert caught.value.message == 'Spark already has a database "theirs", which is not a schema of this warehouse'
    finally:
        live.sql("DROP DATABASE theirs")
    with pytest.raises(SqlError) as caught:
        live.sql("DROP SCHEMA raw")
    assert caught.value.code == "RW306"
    dropped = [row.object for row in live.sql("DROP SCHEMA raw CASCADE")]
    assert dropped[-1] == "raw"
    assert set(dropped) == {"mart.next", "mart.counted", "raw.users", "raw.sums", "raw"}
    assert "raw" not in {row.namespace for row in live.sql("SHOW DATABASES")}
    assert live.rows_of("totals") == [(1, 7)]
    assert set(live.jobs()) == {"mart.orders", "orders", "totals"}
