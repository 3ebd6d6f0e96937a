"""ALTER TABLE … ADD, DROP and RENAME COLUMN as they lower: what becomes of both definitions and of views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.plan.definitions import definition_of
from rw_sql.plan.desired import ViewSpec, desired_jobs
from tests.plan.canned import CannedWorld, refused
from tests.plan.tables import KEYED, analyzed, both_are_true, create_table, sink, source, table, tables_world


def test_add_column_gives_it_to_both() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY", include="INCLUDE offset AS at"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    before = table(world)
    plan = world.run("ALTER TABLE t ADD COLUMN name VARCHAR")
    assert [(row.object, row.change) for row in plan.changes] == [("t", "ALTERED")]
    assert table(world).query == "SELECT `id`, `name`, `at` FROM `t`"
    assert (table(world).id, table(world).has_change_feed) == (before.id, True)
    both_are_true(world)
    world.run("ALTER TABLE t ADD COLUMN twice INT AS id * 2")
    assert [column.name for column in definition_of(source(world)).columns] == ["id", "name"]
    both_are_true(world)
    assert world.answers("ALTER TABLE t ADD COLUMN IF NOT EXISTS name INT") == [
        ("NOTHING", 'column "name" already exists')
    ]


def test_a_connector_stays_until_the_table_has_its_new_columns() -> None:
    world = tables_world(KEYED, "PAUSE SOURCE t", "ALTER TABLE t ADD COLUMN n INT")
    waiting = JobStatus(job="mv-2", object_id=2, state="STALLED", reason="WAITING until the job of source t has added")
    world.jobs["mv-2"] = waiting
    assert "its new columns yet" in refused(world, "ALTER TABLE t DROP CONNECTOR").message
    world.jobs["mv-2"] = replace(waiting, state="RUNNING", reason="")
    world.run("ALTER TABLE t DROP CONNECTOR")


@pytest.mark.parametrize(
    ("column", "code"),
    [("id INT", "RW105"), ("a INT DEFAULT 1", "RW301"), ("a INT PRIMARY KEY", "RW301"), ("a INTERVAL", "RW206")],
)
def test_columns_that_cannot_be_added(column: str, code: str) -> None:
    assert refused(tables_world(KEYED), f"ALTER TABLE t ADD COLUMN {column}").code == code


def columns_read(world: CannedWorld, view: str) -> tuple[str, ...]:
    (spec,) = [spec for spec in desired_jobs(world.snapshot).values() if getattr(spec, "name", "") == view]
    assert isinstance(spec, ViewSpec)
    return spec.inputs[0].columns


def test_a_view_sees_the_columns_that_its_table_had_when_it_was_made() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW before AS SELECT * FROM t")
    world.run("ALTER TABLE t ADD COLUMN n INT", "CREATE MATERIALIZED VIEW after AS SELECT * FROM t")
    assert columns_read(world, "before") == ("id", "name")
    assert columns_read(world, "after") == ("id", "name", "n")
    assert 'use it: materialized view "after"' in refused(world, "ALTER TABLE t DROP COLUMN n").message
    world.run("DROP MATERIALIZED VIEW after", "ALTER TABLE t DROP COLUMN n")
    assert columns_read(world, "before") == ("id", "name")
    assert 'use it: materialized view "before"' in refused(world, "ALTER TABLE t DROP COLUMN name").message


def test_drop_column_takes_it_from_both() -> None:
    columns = "id INT PRIMARY KEY, name VARCHAR, n INT DEFAULT 7, twice INT AS id * 2"
    world = tables_world(
        create_table(columns), "CREATE MATERIALIZED VIEW v AS SELECT id, n FROM t", sink("UPSERT", "v")
    )
    before = table(world)
    plan = world.run("ALTER TABLE t DROP COLUMN name")
    assert [(row.object, row.change) for row in plan.changes] == [("t", "ALTERED")]
    assert (
        table(world).query
        == "SELECT `id`, coalesce(`n`, CAST((7) AS INT)) AS `n`, CAST((id * 2) AS INT) AS `twice` FROM `t`"
    )
    assert (table(world).id, table(world).dropped_columns) == (before.id, ("name",))
    both_are_true(world)
    world.run("ALTER TABLE t DROP COLUMN twice")
    assert [column.name for column in definition_of(source(world)).columns] == ["id", "n"]
    both_are_true(world)
    assert world.answers("ALTER TABLE t DROP COLUMN IF EXISTS name") == [("NOTHING", 'column "name" does not exist')]
    error = refused(world, "ALTER TABLE t ADD COLUMN NAME VARCHAR")
    assert (error.code, 'had a column "name"' in error.message) == ("RW201", True)
    error = refused(world, "ALTER TABLE t DROP COLUMN n")
    assert (error.code, error.message) == (
        "RW306",
        'cannot drop column "n" of table "t" because other objects use it: materialized view "v"',
    )
    assert "CASCADE drops none" in refused(world, "ALTER TABLE t DROP COLUMN n CASCADE").hint
    world.run("DROP MATERIALIZED VIEW v CASCADE", "ALTER TABLE t DROP COLUMN n")
    both_are_true(world)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT id, eur AS price, price * 2 AS total FROM t",
        "SELECT id, struct(*) AS s FROM t",
        "SELECT id FROM (SELECT DISTINCT * FROM t) AS d",
        "SELECT id FROM t WHERE PRICE > 3",
        "SELECT id, count(*) AS n FROM t GROUP BY id, price",
    ],
)
def test_a_query_that_may_use_a_column_holds_it(query: str) -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, price INT, eur INT"))
    world.run("CREATE MATERIALIZED VIEW free AS SELECT id, count(*) AS n FROM t GROUP BY id")
    world.analyze = None
    world.run(f"CREATE MATERIALIZED VIEW v AS {query}")
    world.analyze = analyzed
    assert refused(world, "ALTER TABLE t DROP COLUMN price").message.endswith('use it: materialized view "v"')
    world.run("DROP MATERIALIZED VIEW v", "ALTER TABLE t DROP COLUMN price")


def test_the_jobs_above_a_table_begin_again_with_its_columns_and_the_plan_says_so() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    for statement in ("ALTER TABLE t ADD COLUMN n INT", "ALTER TABLE t DROP COLUMN name"):
        plan = world.run(statement)
        assert [step.subject for step in plan.steps if not step.is_catalog] == ["ingest-1", "mv-2", "mv-3"]
        assert plan.affected == (1, 2, 3)


def test_what_could_not_be_null_in_older_files_still_cannot() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, b INT DEFAULT 7, c INT"))
    made = table(world)
    old = replace(
        made,
        schema=made.schema.replace(
            '"b", "type": "integer", "nullable": true', '"b", "type": "integer", "nullable": false'
        ),
    )
    assert old != made
    world.commit(Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=old),)))
    for _ in range(2):
        assert "made by an older version" in refused(world, "ALTER TABLE t DROP COLUMN b").message
        world.run("ALTER TABLE t ADD COLUMN IF NOT EXISTS d INT")


def test_a_sink_of_a_whole_table_uses_each_column_that_it_had() -> None:
    world = tables_world(KEYED, sink("UPSERT"), "ALTER TABLE t ADD COLUMN n INT")
    world.run("ALTER TABLE t DROP COLUMN n")
    assert 'use it: sink "k"' in refused(world, "ALTER TABLE t DROP COLUMN name").message


@pytest.mark.parametrize(
    ("columns", "rest", "dropped", "code", "said"),
    [
        ("id INT PRIMARY KEY, a INT", "", "id", "RW212", "identifies the rows"),
        (
            "id INT PRIMARY KEY, v INT",
            "ON CONFLICT DO UPDATE FULL WITH VERSION COLUMN (v)",
            "v",
            "RW212",
            "the versions",
        ),
        ("a INT, b INT AS 1", "", "a", "RW212", "the only one"),
        ("id INT PRIMARY KEY, a INT, b INT AS a * 2", "", "a", "RW212", "is used in its definition"),
        ("id INT PRIMARY KEY, a INT", "", "aa", "RW205", 'has no column "aa"'),
    ],
)
def test_columns_that_cannot_be_dropped(columns: str, rest: str, dropped: str, code: str, said: str) -> None:
    error = refused(tables_world(create_table(columns, rest)), f"ALTER TABLE t DROP COLUMN {dropped}")
    assert (error.code, said in error.message) == (code, True)


def test_a_column_keeps_its_name() -> None:
    error = refused(tables_world(KEYED), "ALTER TABLE t RENAME COLUMN name TO called")
    assert (error.code, error.hint) == (
        "RW301",
        "ALTER TABLE t ADD COLUMN called …, which records fill from then on; "
        "or a materialized view with name AS called",
    )


def test_the_fields_of_csv_stay() -> None:
    csv = KEYED.replace("ENCODE JSON", "ENCODE CSV (without_header = 'true', delimiter = ',')")
    assert "by their places" in refused(tables_world(csv), "ALTER TABLE t DROP COLUMN name").message


def test_columns_of_include_stay() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY", include="INCLUDE offset AS at"))
    assert world.answers("ALTER TABLE t ADD COLUMN IF NOT EXISTS at INT") == [("NOTHING", 'column "at" already exists')]
    assert "comes from INCLUDE" in refused(world, "ALTER TABLE t DROP COLUMN at").message
