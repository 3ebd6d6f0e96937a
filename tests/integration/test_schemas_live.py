"""Schemas in a live session: objects of one name beside each other, views across schemas, moves, restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from tests.integration.attached import AttachedSession

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def _files(folder: Path, *rows: dict[str, int]) -> str:
    """A folder with one more file of rows, as the WITH list of a source."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (
        f"WITH (connector = 'posix_fs', posix_fs.root = '{folder}', match_pattern = '*.json') FORMAT PLAIN ENCODE JSON"
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schemas")


@pytest.fixture(scope="module")
def live(spark: SparkSession, place: Path) -> Iterator[AttachedSession]:
    session = AttachedSession(spark, str(place / "warehouse"))
    session.run(
        "CREATE SCHEMA raw",
        "CREATE SCHEMA mart",
        f"CREATE SOURCE raw.orders (id INT, amount INT) {_files(place / 'raw', {'id': 1, 'amount': 5})}",
        f"CREATE SOURCE orders (id INT, other INT) {_files(place / 'plain', {'id': 1, 'other': 7})}",
        f"CREATE TABLE raw.users (id INT PRIMARY KEY, n INT) {_files(place / 'users', {'id': 1, 'n': 3})}",
        "CREATE MATERIALIZED VIEW mart.totals AS SELECT orders.id, sum(amount) AS s FROM raw.orders GROUP BY orders.id",
        "CREATE MATERIALIZED VIEW totals AS SELECT id, sum(other) AS s FROM public.orders GROUP BY id",
        "CREATE MATERIALIZED VIEW mart.all_of AS SELECT t.id, t.s + p.s + u.n AS s FROM mart.totals AS t "
        "JOIN totals AS p ON t.id = p.id JOIN raw.users AS u ON t.id = u.id",
    )
    yield session
    session.detach()


def test_objects_of_one_name_and_views_across_schemas(live: AttachedSession, place: Path) -> None:
    assert live.flushed_rows_of("mart.all_of") == [(1, 15)]
    assert live.rows_of("mart.totals") == [(1, 5)]
    assert live.rows_of("totals") == [(1, 7)]
    assert live.rows_of("raw.users") == [(1, 3)]
    # A source of a schema is read upstream by plain SQL, beside one of the same name, in joins and by table() too.
    assert live.rows_of("raw.orders") == [(1, 5)]
    assert live.rows_of("orders") == [(1, 7)]
    joined = "SELECT orders.amount + o.other AS n FROM raw.orders JOIN public.orders AS o ON orders.id = o.id"
    assert live.sql(joined.replace("public.orders", "orders"))[0].n == 12
    assert [tuple(row) for row in live.spark.table("raw.orders").collect()] == [(1, 5)]
    assert {row.namespace for row in live.sql("SHOW DATABASES")} >= {"raw", "mart"}
    assert {row.viewName for row in live.sql("SHOW VIEWS FROM mart")} == {"totals", "all_of"}
    assert [row.name for row in live.sql("SHOW SCHEMAS")] == ["mart", "public", "raw"]
    _files(place / "raw", {"id": 1, "amount": 10})
    assert live.flushed_rows_of("mart.all_of") == [(1, 25)]


def test_the_search_path_is_that_of_plain_sql_too(live: AttachedSession) -> None:
    live.sql("FLUSH")
    try:
        live.sql("SET search_path = mart, raw")
        assert live.sql("SHOW search_path")[0].search_path == "mart, raw"
        assert live.rows_of("totals") == live.rows_of("mart.totals")
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
    assert found == {("mart", "mart.totals"), ("mart", "mart.all_of"), ("public", "totals")}
    assert {row.name for row in live.sql("SELECT name FROM rw_catalog.rw_schemas")} == {"public", "raw", "mart"}


def test_moves_and_undo_name_the_schema(live: AttachedSession) -> None:
    live.allow_unsafe()
    live.run("PAUSE SOURCE raw.orders", "RESET SOURCE SPLITS raw.orders")
    operation = live.sql("SHOW UNSAFE OPERATIONS FOR raw.orders")[0]
    assert operation.statement == "RESET SOURCE SPLITS raw.orders"
    assert not live.sql("SHOW UNSAFE OPERATIONS FOR orders")
    live.run(f"UNDO OPERATION {operation.operation}", "RESUME SOURCE raw.orders")
    assert live.flushed_rows_of("mart.totals") == [(1, 15)]


def test_set_schema_and_rename_while_rows_arrive(live: AttachedSession, place: Path) -> None:
    run = live.job("mart.totals").run
    live.run(
        "ALTER SOURCE raw.orders SET SCHEMA mart",
        "ALTER MATERIALIZED VIEW mart.totals SET SCHEMA raw",
        "ALTER MATERIALIZED VIEW raw.totals RENAME TO sums",
    )
    assert run is not None
    _files(place / "raw", {"id": 1, "amount": 100})
    assert live.flushed_rows_of("raw.sums") == [(1, 115)]
    assert live.rows_of("mart.all_of") == [(1, 125)]
    assert live.rows_of("mart.orders", "sum(amount)") == [(115,)]
    (create,) = live.sql("SHOW CREATE MATERIALIZED VIEW mart.all_of")
    assert "FROM raw.sums AS t" in create.create_sql
    assert not live.spark.catalog.tableExists("mart.totals")


def test_a_restart_finds_all_of_it(live: AttachedSession, place: Path) -> None:
    live.sql("FLUSH")
    live.detach()
    assert "raw" not in {row.namespace for row in live.sql("SHOW DATABASES")}
    live.attached = AttachedSession(live.spark, live.warehouse).attached
    _files(place / "raw", {"id": 2, "amount": 1})
    assert live.flushed_rows_of("raw.sums") == [(1, 115), (2, 1)]
    assert live.rows_of("mart.all_of") == [(1, 125)]


def test_drop_schema(live: AttachedSession) -> None:
    live.sql("CREATE DATABASE theirs")
    try:
        with pytest.raises(SqlError) as caught:
            live.sql("CREATE SCHEMA theirs")
        assert caught.value.message == 'Spark has a database "theirs" already, which is not a schema of this warehouse'
    finally:
        live.sql("DROP DATABASE theirs")
    with pytest.raises(SqlError) as caught:
        live.sql("DROP SCHEMA raw")
    assert caught.value.code == "RW306"
    dropped = [(row.object, row.detail) for row in live.sql("DROP SCHEMA raw CASCADE")]
    assert dropped[-1] == ("raw", "schema")
    assert {name for name, _ in dropped} == {"mart.all_of", "raw.users", "raw.sums", "raw"}
    assert "raw" not in {row.namespace for row in live.sql("SHOW DATABASES")}
    assert live.rows_of("totals") == [(1, 7)]
    assert set(live.jobs()) == {"mart.orders", "orders", "totals"}
