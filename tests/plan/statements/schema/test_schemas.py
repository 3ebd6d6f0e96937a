"""Schemas: names in them, the search path, SET SCHEMA, and what DROP SCHEMA takes along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.model.definitions import view_definition
from rw_sql.plan.ports.tables import TableLook
from rw_sql.plan.statements.session.search_path import path_set
from rw_sql.syntax import parse_statement
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import literal
from tests.conftest import FIXTURES
from tests.plan.canned import HERE, CannedWorld, create_source, refusals, refused
from tests.plan.tables import create_table, tables_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def schemas_world() -> CannedWorld:
    """Sources ``orders`` of the schemas ``raw`` and ``public``, and views of both in ``mart`` and ``public``."""
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.put_topic("new", (0, 5))
    world.run(
        "CREATE SCHEMA raw",
        "CREATE SCHEMA mart",
        create_source("raw.orders", "old"),
        create_source("orders", "new"),
        "CREATE MATERIALIZED VIEW mart.totals AS SELECT orders.id FROM raw.orders",
        "CREATE MATERIALIZED VIEW everything AS SELECT raw.orders.id FROM raw.orders JOIN public.orders AS o "
        "ON raw.orders.id = o.id",
    )
    return world


def names(world: CannedWorld) -> set[tuple[str, str]]:
    return {(record.kind, record.name) for record in world.snapshot.records.values()}


def view(world: CannedWorld, name: str) -> tuple[str, str]:
    """The stored text of a view's query, and the one that its job runs."""
    record = world.snapshot.find("materialized_view", name)
    assert record is not None
    assert str(view_definition(record.definition).name.key) == name
    return view_definition(record.definition).query.text, record.query


def rows(world: CannedWorld, text: str) -> list[tuple[object, ...]]:
    table = world.plan(text).table
    assert table is not None
    return list(table.rows)


def test_objects_of_one_name_live_beside_each_other() -> None:
    world = schemas_world()
    assert {("source", "raw.orders"), ("source", "orders"), ("materialized_view", "mart.totals")} <= names(world)
    assert view(world, "mart.totals") == (
        "SELECT orders.id FROM raw.orders",
        "SELECT orders.id FROM `raw.orders` AS `orders`",
    )
    assert view(world, "everything")[1] == (
        "SELECT orders.id FROM `raw.orders` AS `orders` JOIN orders AS o ON orders.id = o.id"
    )
    inputs = {r.name: [i.name for i in map(world.snapshot.get, r.inputs) if i] for r in world.snapshot.kept}
    assert inputs == {"mart.totals": ["raw.orders"], "everything": ["raw.orders", "orders"]}
    assert world.answers("PAUSE SOURCE raw.orders")
    assert not world.snapshot.find("pause", "orders")
    record = world.snapshot.find("schema", "raw")
    assert record is not None
    assert record_from_json(record_to_json(record)) == record


def test_shown_names_are_qualified_outside_of_public() -> None:
    world = schemas_world()
    assert [row[0] for row in rows(world, "SHOW SOURCES")] == ["orders", "raw.orders"]
    assert [row[0] for row in rows(world, "SHOW SOURCES FROM raw")] == ["raw.orders"]
    assert [row[0] for row in rows(world, "SHOW SOURCES FROM public")] == ["orders"]
    assert [row[0] for row in rows(world, "SHOW SOURCES LIKE 'ord%'")] == ["orders", "raw.orders"]
    assert [row[0] for row in rows(world, "SHOW SOURCES FROM raw LIKE 'raw.%'")] == ["raw.orders"]
    patterns = (r"o_ders", r"o\_ders", r"\order%", r"\%", r"orders\\")
    found = [[row[0] for row in rows(world, f"SHOW SOURCES FROM public LIKE '{like}'")] for like in patterns]
    assert found == [["orders"], [], ["orders"], [], []]
    assert [row[:4] for row in rows(world, "SHOW SCHEMAS")] == [
        ("mart", 0, 0, 1),
        ("public", 0, 1, 1),
        ("raw", 0, 1, 0),
    ]
    ((name, create),) = rows(world, "SHOW CREATE MATERIALIZED VIEW mart.totals")
    assert (name, create) == (
        "mart.totals",
        "CREATE MATERIALIZED VIEW mart.totals AS SELECT orders.id FROM raw.orders",
    )
    assert [row[0] for row in rows(world, "SHOW LINEAGE OF raw.orders")] == ["raw.orders", "mart.totals", "everything"]
    assert rows(world, "DESCRIBE raw.orders") == [("id", "INT", False)]


def test_the_search_path_finds_bare_names_and_takes_new_objects() -> None:
    world = schemas_world()
    world.search_path = ("mart", "raw")
    world.run("CREATE MATERIALIZED VIEW seen AS SELECT id FROM totals WHERE id IN (SELECT id FROM orders)")
    assert view(world, "mart.seen")[0] == "SELECT id FROM mart.totals WHERE id IN (SELECT id FROM raw.orders)"
    world.run("CREATE MATERIALIZED VIEW cte AS WITH orders AS (SELECT 1 AS id) SELECT * FROM orders, totals")
    assert view(world, "mart.cte")[0].endswith("SELECT * FROM orders, mart.totals")
    world.run("PAUSE SOURCE orders")
    assert {record.name for record in world.snapshot.all("pause")} == {"raw.orders"}
    error = refused(world, "CREATE MATERIALIZED VIEW x AS SELECT * FROM everything")
    assert (error.code, error.hint) == ("RW203", '"everything" is in schema public: write public.everything')
    world.search_path = ("nowhere", "public")
    world.run("CREATE MATERIALIZED VIEW late AS SELECT id FROM orders")
    assert view(world, "late")[0] == "SELECT id FROM orders"


def test_a_path_in_risingwaves_dialect() -> None:
    world = schemas_world()
    world.search_path, world.dialect = ("raw",), "risingwave"
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id::varchar AS id FROM orders")
    assert view(world, "raw.v") == (
        "SELECT id::varchar AS id FROM raw.orders",
        "SELECT CAST(id AS STRING) AS id FROM `raw.orders` AS `orders`",
    )


def test_show_create_says_public_where_a_bare_name_would_mean_another_object() -> None:
    world = schemas_world()
    world.run("CREATE MATERIALIZED VIEW plain AS SELECT id FROM orders")
    world.search_path = ("raw", "public")
    ((_, create),) = rows(world, "SHOW CREATE MATERIALIZED VIEW plain")
    assert create == "CREATE MATERIALIZED VIEW public.plain AS SELECT id FROM public.orders"
    world.run("DROP MATERIALIZED VIEW plain", str(create))
    assert view(world, "plain")[1] == "SELECT id FROM orders"


def test_set_schema_keeps_readers_and_definitions_true() -> None:
    world = schemas_world()
    source = world.snapshot.find("source", "raw.orders")
    assert source is not None
    plan = world.run("ALTER SOURCE raw.orders SET SCHEMA mart")
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("mart.orders", "MOVED", "was raw.orders"),
        ("mart.totals", "ALTERED", "reads mart.orders"),
        ("everything", "ALTERED", "reads mart.orders"),
    ]
    moved = world.snapshot.find("source", "mart.orders")
    assert moved is not None
    assert moved.id == source.id
    assert view(world, "mart.totals") == (
        "SELECT orders.id FROM mart.orders",
        "SELECT orders.id FROM `mart.orders` AS `orders`",
    )
    assert view(world, "everything")[0] == (
        "SELECT orders.id FROM mart.orders JOIN public.orders AS o ON orders.id = o.id"
    )
    world.run("ALTER SOURCE orders SET SCHEMA raw", "ALTER SOURCE mart.orders SET SCHEMA public")
    assert view(world, "everything") == (
        "SELECT orders.id FROM orders JOIN raw.orders AS o ON orders.id = o.id",
        "SELECT orders.id FROM orders AS `orders` JOIN `raw.orders` AS o ON orders.id = o.id",
    )
    world.run("ALTER MATERIALIZED VIEW mart.totals RENAME TO sums")
    assert view(world, "mart.sums")[0] == "SELECT orders.id FROM orders"
    world.run("ALTER MATERIALIZED VIEW mart.sums SWAP WITH everything")
    assert view(world, "everything")[0] == "SELECT orders.id FROM orders"
    # What is stored says what it would mean if it were run again.
    for record in world.snapshot.kept:
        text = record.definition.replace("CREATE ", "CREATE OR REPLACE ", 1)
        assert world.plan(text).operation is None


def test_a_connection_moves_with_what_names_it() -> None:
    world = schemas_world()
    world.run(
        f"CREATE CONNECTION raw.broker WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE raw.late (id INT) WITH (connector = 'kafka', connection = raw.broker, topic = 'old') "
        "FORMAT PLAIN ENCODE JSON",
        "ALTER CONNECTION raw.broker SET SCHEMA public",
    )
    source = world.snapshot.find("source", "raw.late")
    assert source is not None
    assert "connection = broker" in source.definition
    assert ("connection", "CONNECTION broker") in source.options
    world.run("RESET SOURCE SPLITS raw.late")


SASL = (
    "properties.security.protocol = 'SASL_PLAINTEXT', properties.sasl.mechanism = 'PLAIN', "
    "properties.sasl.username = 'ann', properties.sasl.password = SECRET raw.pw"
)


def test_a_secret_moves_with_what_names_it() -> None:
    world = schemas_world()
    world.run(
        "CREATE SECRET raw.pw WITH (backend = 'meta') AS 's3cret'",
        "CREATE SECRET raw.elsewhere WITH (backend = 'env', name = 'PW')",
        f"CREATE CONNECTION raw.broker WITH (type = 'kafka', properties.bootstrap.server = '{HERE}', {SASL})",
        "CREATE SOURCE raw.late (id INT) WITH (connector = 'kafka', connection = raw.broker, topic = 'old') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE own (id INT) WITH (connector = 'kafka', topic = 'old', properties.bootstrap.server = "
        f"'{HERE}', {SASL}) FORMAT PLAIN ENCODE JSON",
        "CREATE SINK k FROM own WITH (connector = 'kafka', topic = 'new', properties.bootstrap.server = "
        f"'{HERE}', {SASL}) FORMAT PLAIN ENCODE JSON",
    )
    plan = world.run("ALTER SECRET raw.pw SET SCHEMA public")
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("pw", "MOVED", "was raw.pw"),
        *((name, "ALTERED", "uses pw") for name in ("raw.broker", "raw.late", "own", "k")),
    ]
    pw = world.snapshot.find("secret", "pw")
    assert pw is not None
    assert (pw.definition, pw.sealed) == ("CREATE SECRET pw WITH (backend = 'meta')", "sealed pw")
    for kind, name in (("connection", "raw.broker"), ("source", "own"), ("sink", "k")):
        assert "SECRET pw" in str(getattr(world.snapshot.find(kind, name), "definition", None))
    late = world.snapshot.find("source", "raw.late")
    assert late is not None
    assert pw.id in late.uses
    world.run(f"UNDO OPERATION {world.snapshot.epoch}", "ALTER SECRET raw.elsewhere SET SCHEMA public")
    back, elsewhere = world.snapshot.find("secret", "raw.pw"), world.snapshot.find("secret", "elsewhere")
    assert back is not None
    assert elsewhere is not None
    assert (back.sealed, elsewhere.sealed) == ("sealed raw.pw", None)
    assert refused(world, "ALTER SECRET raw.pw SET SCHEMA nowhere").code == "RW216"
    world.run("CREATE SECRET pw WITH (backend = 'env', name = 'PW')")
    assert refused(world, "ALTER SECRET raw.pw SET SCHEMA public").code == "RW201"


def test_set_schema_and_rename_are_undone_and_done_again() -> None:
    world = schemas_world()
    before = names(world), view(world, "everything")[1]
    world.run("ALTER SOURCE raw.orders SET SCHEMA mart")
    moved = world.snapshot.epoch
    # What was made or altered since stays.
    world.run("CREATE MATERIALIZED VIEW later AS SELECT id FROM mart.orders", "PAUSE SOURCE mart.orders")
    plan = world.run(f"UNDO OPERATION {moved}")
    undone = world.snapshot.epoch
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("raw.orders", "MOVED", "was mart.orders"),
        *((name, "ALTERED", "reads raw.orders") for name in ("mart.totals", "everything", "later")),
    ]
    assert not plan.is_unsafe
    assert names(world) == before[0] | {("materialized_view", "later"), ("pause", "raw.orders")}
    assert view(world, "everything")[1] == before[1]
    assert view(world, "later")[0] == "SELECT id FROM raw.orders"
    assert refused(world, f"UNDO OPERATION {moved}").code == "RW330"
    world.run(f"UNDO OPERATION {undone}")
    assert ("source", "mart.orders") in names(world)
    world.run("ALTER MATERIALIZED VIEW later RENAME TO latest", f"UNDO OPERATION {world.snapshot.epoch + 1}")
    assert ("materialized_view", "later") in names(world)


def test_a_connection_and_a_table_move_back() -> None:
    world = tables_world()
    world.run(
        "CREATE SCHEMA raw",
        create_table("id INT PRIMARY KEY").replace(" t ", " raw.t ", 1),
        f"CREATE CONNECTION raw.broker WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE late (id INT) WITH (connector = 'kafka', connection = raw.broker, topic = 'old') "
        "FORMAT PLAIN ENCODE JSON",
    )
    before = names(world)
    world.run("ALTER TABLE raw.t SET SCHEMA public", "ALTER CONNECTION raw.broker SET SCHEMA public")
    epoch = world.snapshot.epoch
    world.run(f"UNDO OPERATION {epoch}", f"UNDO OPERATION {epoch - 1}")
    assert names(world) == before
    source = world.snapshot.find("source", "late")
    assert source is not None
    assert "connection = raw.broker" in source.definition
    world.run("ALTER TABLE raw.t RENAME TO u", f"UNDO OPERATION {world.snapshot.epoch + 1}")
    assert names(world) == before


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["ALTER SOURCE mart.orders RENAME TO o"], 'source "mart.orders" is now called "mart.o"'),
        (["DROP SOURCE mart.orders CASCADE"], '"mart.orders" was dropped since'),
        (["DROP SCHEMA raw CASCADE"], 'schema "raw" was dropped since'),
        (
            ["CREATE MATERIALIZED VIEW raw.orders AS SELECT id FROM orders"],
            'materialized view "raw.orders" already exists',
        ),
    ],
)
def test_a_move_whose_names_are_gone_is_not_undone(statements: list[str], why: str) -> None:
    world = schemas_world()
    world.run("ALTER SOURCE raw.orders SET SCHEMA mart")
    moved = world.snapshot.epoch
    world.run(*statements)
    error = refused(world, f"UNDO OPERATION {moved}")
    assert (error.code, error.message) == ("RW330", f"operation {moved} cannot be undone: {why}")


def test_an_earlier_operation_is_undone_after_the_rename_that_rests_on_it() -> None:
    world = schemas_world()
    world.run("ALTER SOURCE orders SET source_rate_limit = 5")
    rate = world.snapshot.epoch
    world.run("ALTER SOURCE orders SET SCHEMA mart")
    error = refused(world, f"UNDO OPERATION {rate}")
    assert error.hint == f"UNDO OPERATION {rate + 1}; then UNDO OPERATION {rate}"
    world.run(f"UNDO OPERATION {rate + 1}", f"UNDO OPERATION {rate}")
    source = world.snapshot.find("source", "orders")
    assert source is not None
    assert "rate_limit" not in source.definition


def test_a_table_and_its_source_move_together() -> None:
    world = tables_world()
    world.run(
        "CREATE SCHEMA raw",
        create_table("id INT PRIMARY KEY").replace(" t ", " raw.t ", 1),
        "CREATE MATERIALIZED VIEW mv AS SELECT * FROM raw.t",
    )
    world.run("ALTER TABLE raw.t SET SCHEMA public")
    assert {("table", "t"), ("source", "t")} <= names(world)
    assert view(world, "mv")[1] == "SELECT * FROM t AS `t`"
    world.run("ALTER TABLE t SET SCHEMA raw", "DROP TABLE raw.t CASCADE")
    assert names(world) == {("schema", "raw")}


def test_drop_schema_restricts_or_takes_all_along() -> None:
    world = schemas_world()
    plan = world.run("DROP SCHEMA raw CASCADE")
    assert [(row.object, row.detail) for row in plan.changes] == [
        ("everything", "materialized view"),
        ("mart.totals", "materialized view"),
        ("raw.orders", "source"),
        ("raw", "schema"),
    ]
    assert names(world) == {("schema", "mart"), ("source", "orders")}
    assert not world.snapshot.assigned.get("ingest-3")
    world.run("DROP SCHEMA mart", "DROP SCHEMA IF EXISTS mart", "CREATE SCHEMA IF NOT EXISTS raw")
    assert world.answers("CREATE SCHEMA IF NOT EXISTS raw") == [("NOTHING", 'schema "raw" already exists')]
    assert world.answers("DROP SOURCE IF EXISTS nowhere.orders") == [
        ("NOTHING", 'source "nowhere.orders" does not exist')
    ]


def test_refusals(recorded: Callable[[Path, str], None]) -> None:
    world = schemas_world()
    world.tables["theirs"] = TableLook()
    world.run(
        "CREATE MATERIALIZED VIEW raw.totals AS SELECT id FROM orders",
        create_source('"a.b"', "old"),
    )
    path = FIXTURES / "errors" / "schemas" / "schemas.sql"
    recorded(path.with_suffix(".txt"), "\n\n".join(refusals(world, path)))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("raw, public", ("raw", "public")),
        ('"Raw", public', ("Raw", "public")),
        ("RAW,raw , public", ("raw", "public")),
        ('"a, ""b"""', ('a, "b"',)),
    ],
)
def test_paths_are_read(text: str, path: tuple[str, ...]) -> None:
    statement = parse_statement(f"SET search_path = {literal(text)}")
    assert isinstance(statement, ast.SetParameter)
    assert path_set(statement) == path


def test_set_search_path() -> None:
    world = schemas_world()
    plan = world.plan("SET search_path TO raw, 'nowhere, public'")
    assert plan.session == ("search_path", "raw, nowhere, public")
    assert [(row.change, row.detail) for row in plan.changes] == [
        ("SET", "raw, nowhere, public"),
        ("NOTICE", 'schema "nowhere" does not exist; search_path skips it until CREATE SCHEMA nowhere creates it'),
    ]
    assert world.plan("USE raw").session == ("search_path", "raw")
    assert world.plan("USE public").session == ("search_path", None)
    assert world.plan("SET search_path = DEFAULT").session == ("search_path", None)
    world.search_path = ("raw", "public")
    assert rows(world, "SHOW search_path") == [("raw, public",)]
