"""The names that errors of Spark suggest: those of Spark, and those of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from rw_sql.errors import SPARK_ERROR, SqlError
from rw_sql.runtime.spark import spark_errors
from tests.plan.canned import HERE, CannedWorld, create_source

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot

SPARK: Any = None


@pytest.fixture(autouse=True)
def spark_that_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise Py4JError("no table")

    monkeypatch.setattr(spark_errors, "java_session", fail)


def catalog() -> Snapshot:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(
        create_source("orders", "t"),
        "CREATE SCHEMA raw",
        "CREATE MATERIALIZED VIEW raw.totals AS SELECT count(*) AS n FROM orders",
        f"CREATE SINK late FROM orders WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = '{HERE}') "
        "FORMAT PLAIN ENCODE JSON",
    )
    return world.snapshot


@pytest.mark.parametrize("name", ["orders", "Orders", "`orders`", "default.orders", "public.orders"])
def test_the_columns_of_a_source_are_known_though_spark_has_no_such_view(name: str) -> None:
    columns = list(spark_errors.known_names(SPARK, catalog).columns(name))
    assert columns
    assert "id" in columns


def test_the_columns_of_an_unknown_relation_are_unknown() -> None:
    known = spark_errors.known_names(SPARK, catalog)
    for name in ("other", "raw.orders", "late"):
        assert list(known.columns(name)) == []


def test_the_catalog_has_relations_and_other_objects() -> None:
    known = spark_errors.known_names(SPARK, catalog)
    assert list(known.relations()) == ["orders", "raw.totals"]
    assert known.others() == {"late": "sink"}


def test_without_a_readable_catalog_no_names_are_known() -> None:
    def unreadable() -> Snapshot:
        raise SqlError(SPARK_ERROR, "the catalog cannot be read")

    for read in (None, unreadable):
        known = spark_errors.known_names(SPARK, read)
        assert (list(known.relations()), known.others(), list(known.columns("orders"))) == ([], {}, [])
