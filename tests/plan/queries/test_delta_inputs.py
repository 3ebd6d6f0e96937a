"""The user's own Delta tables as inputs of views and sinks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rw_sql.model.job_specs import SinkSpec, ViewSpec, desired_jobs
from rw_sql.plan.ports.tables import TableLook
from rw_sql.syntax.query.tables_read import replaced_tables, table_places
from tests.plan.canned import HERE, CannedWorld, create_source, refused
from tests.plan.tables import tables_world

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("id", "n")],
    }
)


def world_of(**paths: bool) -> CannedWorld:
    """A world with Delta tables ``orders``, ``shop.orders``, … ; each with or without a change feed."""
    world = tables_world()
    for name, has_feed in paths.items():
        written = name.replace("__", ".")
        world.tables[written] = TableLook(path=f"/data/{name}", schema=SCHEMA, has_change_feed=has_feed)
    return world


def view_spec(world: CannedWorld, job: str) -> ViewSpec:
    spec = desired_jobs(world.snapshot)[job]
    assert isinstance(spec, ViewSpec)
    return spec


def test_appends_flow_and_more_needs_a_change_feed() -> None:
    world = world_of(orders=False)
    created, notice = world.answers("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    assert created == ("CREATED", "append-only")
    assert notice[0] == "NOTICE"
    assert "ALTER TABLE orders SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in notice[1]
    (given,) = view_spec(world, "mv-2").inputs
    assert (given.name, given.path, given.is_changing) == ("orders", "/data/orders", False)


def test_with_a_change_feed_its_rows_change() -> None:
    world = world_of(orders=True)
    assert len(world.answers("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM orders")) == 1
    spec = view_spec(world, "mv-2")
    assert spec.inputs[0].is_changing
    assert spec.maintenance.strategy == "combined"
    assert spec.is_signed
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM orders")
    assert view_spec(world, "mv-3").maintenance.strategy == "diff"
    assert view_spec(world, "mv-3").inputs[0].id == spec.inputs[0].id


def test_a_column_with_a_similar_name_makes_no_signed_rows() -> None:
    world = world_of(orders=False)
    world.put_topic("t", (0, 10))
    world.run(create_source("s", "t").replace("(id INT)", "(id INT, a_rw_sign INT)"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s WHERE a_rw_sign IS NOT NULL")
    (record,) = world.snapshot.all("materialized_view")
    assert not view_spec(world, f"mv-{record.id}").is_signed


def test_names_of_several_parts_and_paths() -> None:
    world = world_of(orders=False)
    world.tables |= {
        "shop.orders": TableLook(path="/data/shop", schema=SCHEMA),
        "delta.`/lake/2026 orders`": TableLook(path="/lake/2026 orders", schema=SCHEMA),
    }
    query = "SELECT orders.id, b.n FROM shop.orders JOIN delta.`/lake/2026 orders` AS b ON orders.id = b.id"
    world.run(f"CREATE MATERIALIZED VIEW v AS {query}")
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert view.query == ("SELECT orders.id, b.n FROM `orders` JOIN `lake_2026_orders` AS b ON orders.id = b.id")
    assert "shop.orders" in view.definition
    world.run("CREATE MATERIALIZED VIEW w AS SELECT orders.id FROM orders")
    other = world.snapshot.find("materialized_view", "w")
    assert other is not None
    assert other.query == "SELECT orders.id FROM `orders_2` AS `orders`"


def test_beside_something_of_ours_it_is_read_as_of_each_batch() -> None:
    world = world_of(orders=True)
    world.run(
        create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT s.id FROM s JOIN orders ON s.id = orders.id"
    )
    assert [given.name for given in view_spec(world, "mv-2").inputs] == ["s"]


def test_the_catalog_forgets_a_table_that_nothing_reads_any_more() -> None:
    world = world_of(orders=False)
    world.run(
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders", "CREATE MATERIALIZED VIEW w AS SELECT n FROM orders"
    )
    assert world.answers("DROP MATERIALIZED VIEW v") == [("DROPPED", "materialized view")]
    assert [table.name for table in world.snapshot.all("delta_table")] == ["orders"]
    world.run("DROP MATERIALIZED VIEW w")
    assert not world.snapshot.records


def sink(name: str, of: str, how: str, more: str = "") -> str:
    return (
        f"CREATE SINK {name} FROM {of} WITH (connector = 'kafka', topic = 'new', "
        f"properties.bootstrap.server = '{HERE}'{more}) FORMAT {how} ENCODE JSON"
    )


def test_a_sink_takes_a_users_table() -> None:
    world = world_of(orders=True)
    world.tables["`orders`"] = world.tables["orders"]
    assert refused(world, sink("k", "orders", "PLAIN")).code == "RW320"
    assert refused(world, sink("k", "orders", "UPSERT")).code == "RW207"
    world.run(
        sink("k", "orders", "UPSERT", ", primary_key = 'id'"), sink("l", "orders", "DEBEZIUM", ", primary_key = 'id'")
    )
    spec = desired_jobs(world.snapshot)["sink-2"]
    assert isinstance(spec, SinkSpec)
    assert (spec.inputs[0].has_feed, spec.shape.keys) == (True, ("id",))
    world.run("DROP SINK k", "DROP SINK l")
    assert not world.snapshot.records


def test_a_sink_without_a_snapshot_begins_after_the_newest_version_of_a_users_table() -> None:
    world = world_of(orders=True)
    world.tables["`orders`"] = world.tables["orders"]
    world.run(sink("k", "orders", "UPSERT", ", primary_key = 'id', snapshot = 'false'"))
    (record,) = world.snapshot.all("sink")
    assert record.starts == ((record.inputs[0], 7),)


def test_a_table_that_only_spark_can_read_is_refused() -> None:
    world = world_of(orders=False)
    written, reason = "delta.`s3a://lake/orders`", "Unable to locate credentials"
    look = replace(world.tables["orders"], path="s3a://lake/orders", unreadable=reason)
    world.tables |= {written: look, "`orders`": look}
    statement = f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {written}"
    error = refused(world, statement)
    assert (error.code, error.message) == ("RW401", f"only Spark can read the table {written}: {reason}")
    assert error.hint is not None
    assert "AWS_ENDPOINT_URL" in error.hint
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == written
    assert refused(world, sink("k", "orders", "PLAIN")).code == "RW401"
    assert not world.snapshot.records
    # Beside something of rw_sql, only Spark reads the table.
    world.run(
        create_source("s", "old"),
        f"CREATE MATERIALIZED VIEW v AS SELECT s.id FROM s JOIN {written} AS o ON s.id = o.id",
    )


@pytest.mark.parametrize(
    ("query", "places", "replaced"),
    [
        ("SELECT a FROM t", ["t"], "SELECT a FROM t"),
        ("SELECT a FROM d.t", ["d.t"], "SELECT a FROM `x` AS `t`"),
        ("SELECT a FROM c.d.t AS u, `t` v", ["c.d.t", "`t`"], "SELECT a FROM `x` AS u, `t` v"),
        (
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t, d.t AS u",
            ["d.t"],
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t, `x` AS u",
        ),
    ],
)
def test_where_a_query_reads_tables(query: str, places: list[str], replaced: str) -> None:
    assert [place.written for place in table_places(query)] == places
    assert replaced_tables(query, {"d.t": "x", "c.d.t": "x"}) == replaced


def test_a_table_of_the_current_database_beside_an_object_needs_its_full_name() -> None:
    """The job's session has another current database than the statement's session."""
    world = tables_world(create_source("s", "old"))
    world.current_tables = {"dim": "`spark_catalog`.`sales`.`dim`"}
    for what in ("MATERIALIZED VIEW v", "SINK k"):
        error = refused(world, f"CREATE {what} AS SELECT s.id FROM s JOIN dim AS d ON s.id = d.id{SINK_OPTIONS[what]}")
        assert error.code == "RW215"
        assert "the table dim is in Spark's current database" in error.message
        assert error.hint == "write `spark_catalog`.`sales`.`dim`"
        assert error.span is not None
    for other in ("sales.dim", "`spark_catalog`.`sales`.`dim`", "other"):
        world.plan(f"CREATE MATERIALIZED VIEW v AS SELECT s.id FROM s JOIN {other} AS d ON s.id = d.id")
    world.plan("CREATE MATERIALIZED VIEW v AS WITH dim AS (SELECT id FROM s) SELECT id FROM dim")


SINK_OPTIONS = {
    "MATERIALIZED VIEW v": "",
    "SINK k": f" WITH (connector = 'kafka', topic = 'new', properties.bootstrap.server = '{HERE}') FORMAT PLAIN "
    "ENCODE JSON",
}
