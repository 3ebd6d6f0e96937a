"""CREATE OR REPLACE: one operation of the necessary statements, refused if there are none."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.model.definitions import connection_definition, sink_definition, source_definition, table_definition
from rw_sql.model.relations import schema_columns
from rw_sql.plan.statements.replace.least_change import least_change
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.syntax import parse_statement
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world, refused
from tests.plan.tables import create_table, sink, source, table, tables_world


def replacing(text: str) -> str:
    return text.replace("CREATE ", "CREATE OR REPLACE ", 1)


def settled(world: CannedWorld, text: str) -> bool:
    """True if the catalog's object equals a CREATE, and running the CREATE again changes nothing."""
    before = world.snapshot
    plan = world.run(replacing(text))
    return plan.operation is None and [row.change for row in plan.changes] == ["NOTHING"] and world.snapshot is before


def test_a_missing_object_is_created() -> None:
    world = moved_world()
    text = create_source("fresh", "new")
    plan = world.run(replacing(text))
    assert [(row.object, row.change) for row in plan.changes] == [("fresh", "CREATED")]
    record = world.snapshot.find("source", "fresh")
    assert record is not None
    assert "OR REPLACE" not in record.definition
    assert settled(world, text)


def test_a_safe_property_needs_no_confirmation() -> None:
    world = moved_world()
    text = create_source("s", "old", "properties.client.id = 'mine'")
    plan = world.run(replacing(text))
    assert not plan.is_unsafe
    assert plan.operation is not None
    assert plan.operation.kind == "ALTER CONNECTOR"
    assert plan.operation.statement.startswith("CREATE OR REPLACE SOURCE s")
    assert settled(world, text)


def test_another_topic_is_an_unsafe_set_with_its_preview_and_undo() -> None:
    world = moved_world()
    before = source(world, "s")
    text = create_source("s", "new", "source_rate_limit = 5")
    shown = world.explained(replacing(text))
    assert "topic" in shown
    plan = world.run(replacing(text))
    assert plan.is_unsafe
    assert plan.operation is not None
    assert (plan.operation.kind, len(world.operations)) == ("UNSAFE SET", 3)
    assert world.named("s") == ("new",)
    assert dict(source(world, "s").options)["source_rate_limit"] == "5"
    assert settled(world, text)
    world.run(f"UNDO OPERATION {world.snapshot.epoch}")
    assert source(world, "s") == before


def test_a_connection_and_a_property_in_one_operation() -> None:
    world = moved_world()
    world.run(f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')")
    text = (
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old', "
        "properties.client.id = 'x') FORMAT PLAIN ENCODE JSON"
    )
    before = world.snapshot.epoch
    plan = world.run(replacing(text))
    assert world.snapshot.epoch == before + 1
    assert {row.detail.split(" ")[0].rstrip(":") for row in plan.changes} >= {"connection"}
    wanted = parse_statement(text)
    connections = {c.name: connection_definition(c.definition) for c in world.snapshot.all("connection")}
    assert least_change(source_definition(source(world, "s").definition), wanted, connections).is_empty  # type: ignore[arg-type]


def test_a_connection() -> None:
    world = moved_world()
    text = (
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}', properties.client.id = 'x')"
    )
    world.run(replacing(text))
    other = text.replace(", properties.client.id = 'x'", "")
    plan = world.run(replacing(other))
    assert plan.operation is not None
    assert plan.operation.kind == "ALTER CONNECTION"
    assert settled(world, other)


def test_columns_of_a_table() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, sum INT"))
    text = create_table("id INT PRIMARY KEY, total INT FROM sum, note VARCHAR")
    plan = world.run(replacing(text))
    assert plan.operation is not None
    assert plan.operation.kind == "ADD COLUMN"
    assert [column.name for column in table_definition(table(world).definition).columns] == ["id", "total", "note"]
    assert [column.name for column in source_definition(source(world).definition).columns] == ["id", "sum", "note"]
    assert settled(world, text)


def test_a_sink() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, name VARCHAR"))
    text = sink("UPSERT").replace("topic =", "primary_key = 'id', topic =")
    world.run(text)
    assert settled(world, text)
    record = world.snapshot.find("sink", "k")
    assert record is not None
    assert sink_definition(record.definition).name.last == "k"
    error = refused(world, replacing(text.replace("topic = 'new'", "topic = 'old'")))
    assert error.code == "RW312"
    assert "topic of a sink cannot change" in error.message


def test_a_view_of_another_query_is_made_beside_its_old_rows() -> None:
    world = moved_world()
    assert settled(world, "CREATE MATERIALIZED VIEW v AS select id from s")
    text = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id + 1 AS id FROM s"
    plan = world.run(text)
    assert [(row.object, row.change) for row in plan.changes] == [("v", "REBUILDING")]
    assert world.run(text).changes[0].detail == "a rebuild with this definition is already running"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT id FROM s", "RW212"),
        ("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT id FROM v", "RW201"),
        (replacing(create_source("v", "new")), "RW201"),
        (replacing(create_source("s", "gone")), "RW402"),
        (replacing(create_source("s", "new", "topik = 'x'")), "RW204"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    error = refused(moved_world(), text)
    assert error.code == code


def test_a_refusal_points_into_the_statement() -> None:
    text = replacing(create_source("s", "old", "properties.client.id = ''"))
    with pytest.raises(SqlError) as caught:
        moved_world().run(text)
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] in ("''", "properties.client.id = ''")


@pytest.mark.parametrize("again", ["CREATE OR REPLACE MATERIALIZED VIEW v AS {0}", "ALTER MATERIALIZED VIEW v AS {0}"])
def test_a_view_with_a_star_is_rebuilt_with_the_columns_that_its_table_got(again: str) -> None:
    query = "SELECT * FROM t"
    world = tables_world(create_table("id INT PRIMARY KEY"), f"CREATE MATERIALIZED VIEW v AS {query}")
    world.run("ALTER TABLE t ADD COLUMN n INT")
    plan = world.run(again.format(query))
    assert [(row.object, row.change) for row in plan.changes[:1]] == [("v", "REBUILDING")]
    assert "columns after the change: with n" in [row.detail for row in plan.changes]
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild.view is not None
    assert [name for name, _ in schema_columns(rebuild.view.schema)] == ["id", "n"]
    (row,) = world.run(again.format(query)).changes
    assert row.detail.startswith("a rebuild with this definition is already running")
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))
    assert [row.detail for row in world.run(again.format(query)).changes] == ["it already has this definition"]


def test_the_columns_join_a_rebuild_that_is_running_without_them() -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"
    world = tables_world(create_table("id INT PRIMARY KEY"), text, "REBUILD MATERIALIZED VIEW v")
    world.run("ALTER TABLE t ADD COLUMN n INT", replacing(text))
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild.view is not None
    assert [name for name, _ in schema_columns(rebuild.view.schema)] == ["id", "n"]
