"""ALTER TABLE … ADD, DROP and RENAME COLUMN in lowering: the effect on both definitions and on views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.definitions import definition_of
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.model.relations import schema_columns
from tests.plan.canned import CannedWorld, refused
from tests.plan.tables import KEYED, analyzed, both_are_true, create_table, shown, sink, source, table, tables_world


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
    assert "the new columns yet" in refused(world, "ALTER TABLE t DROP CONNECTOR").message
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
    error = refused(world, "ALTER TABLE t DROP COLUMN n")
    assert (error.code, error.message) == (
        "RW306",
        'cannot drop column "n" of table "t" because other objects use it: materialized view "v"',
    )
    assert "CASCADE does not drop them" in str(refused(world, "ALTER TABLE t DROP COLUMN n CASCADE").hint)
    world.run("DROP MATERIALIZED VIEW v CASCADE", "ALTER TABLE t DROP COLUMN n")
    both_are_true(world)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT id, eur AS price, price * 2 AS total FROM t",
        "SELECT id, struct(*) AS s FROM t",
        "SELECT id, count(* EXCEPT (eur)) AS n FROM t GROUP BY id",
        "SELECT id FROM (SELECT DISTINCT * FROM t) AS d",
        "SELECT id FROM t WHERE PRICE > 3",
        "SELECT id, count(*) AS n FROM t GROUP BY id, price",
    ],
)
def test_a_column_that_a_query_may_use_is_not_dropped(query: str) -> None:
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
        assert "an older version of rw_sql wrote" in refused(world, "ALTER TABLE t DROP COLUMN b").message
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
            "is a version column",
        ),
        ("a INT, b INT AS 1", "", "a", "RW212", "the only column"),
        ("id INT PRIMARY KEY, a INT, b INT AS a * 2", "", "a", "RW212", "is used in its definition"),
        ("id INT PRIMARY KEY, a INT", "", "aa", "RW205", 'has no column "aa"'),
    ],
)
def test_columns_that_cannot_be_dropped(columns: str, rest: str, dropped: str, code: str, said: str) -> None:
    error = refused(tables_world(create_table(columns, rest)), f"ALTER TABLE t DROP COLUMN {dropped}")
    assert (error.code, said in error.message) == (code, True)


def test_a_column_that_is_renamed_is_read_and_stored_as_before() -> None:
    columns = "id INT PRIMARY KEY, n INT DEFAULT 7, twice INT AS id * 2"
    world = tables_world(create_table(columns, include="INCLUDE offset AS at"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
    before, of_source = table(world), source(world)
    plan = world.run("ALTER TABLE t RENAME COLUMN id TO key")
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("t", "ALTERED", "column id renamed to key: it is still read from field id of the records")
    ]
    assert [step.subject for step in plan.steps if not step.is_catalog] == ["mv-2", "mv-3"]
    then = table(world)
    assert (then.id, source(world), then.dropped_columns, then.added_columns) == (before.id, of_source, (), ())
    assert (then.keys, then.primary_key, then.stored_names) == (("key",), ("key",), (("key", "id"),))
    assert [name for name, _ in schema_columns(then.schema)] == ["key", "n", "twice", "at"]
    assert "key INT FROM id PRIMARY KEY" in shown(world, "TABLE")
    assert "twice INT AS key * 2" in shown(world, "TABLE")
    both_are_true(world)
    made, above = specs(world)
    assert (made.keys, made.keyed and made.keyed.primary_key) == (("id",), ("id",))
    assert [name for name, _ in schema_columns(made.schema)] == ["id", "n", "twice", "at"]
    assert made.inputs[0].selected[:3] == ("`id` AS `key`", "`n`", "`at`")
    assert made.inputs[0].stored[:3] == ("id", "n", "at")
    assert made.query.startswith(
        "SELECT `key`, coalesce(`n`, CAST((7) AS INT)) AS `n`, CAST((key * 2) AS INT) AS `twice`, `at`"
    )
    assert made.stored_names == (("key", "id"),)
    assert above.inputs[0].selected == ("`id` AS `key`", "`n`", "`twice`", "`at`")
    assert above.inputs[0].keys == ("key",)
    world.run("ALTER TABLE t RENAME key TO id")
    assert (table(world).definition, table(world).stored_names) == (
        before.definition,
        (),
    )


def specs(world: CannedWorld) -> tuple[ViewSpec, ViewSpec]:
    """The jobs of the table and of the view above it."""
    found = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert len(found) == 2
    return found[0], found[1]


def test_names_come_and_go() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, a INT, b INT AS a + 1"))
    world.run("ALTER TABLE t RENAME COLUMN b TO c", "ALTER TABLE t ADD COLUMN b INT AS a + 2")
    assert table(world).stored_names == (("c", "b"), ("b", "b_2"))
    assert "b INT AS a + 2" in shown(world, "TABLE")
    assert "c INT AS a + 1" in shown(world, "TABLE")
    both_are_true(world)
    world.run("ALTER TABLE t DROP COLUMN b", "ALTER TABLE t DROP COLUMN c", "ALTER TABLE t RENAME COLUMN a TO b")
    assert (table(world).dropped_columns, table(world).stored_names) == (("b_2", "b"), (("b", "a"),))
    world.run("ALTER TABLE t ADD COLUMN m INT", "ALTER TABLE t RENAME COLUMN m TO n", "ALTER TABLE t DROP COLUMN n")
    # Another column may have another name in the files; in the source's log it has the name of the records' field.
    for again in ("m INT", '"M" VARCHAR', "n VARCHAR FROM m"):
        assert refused(world, f"ALTER TABLE t ADD COLUMN {again}").code == "RW201"
    world.run('ALTER TABLE t ADD COLUMN "M" INT AS b * 3')
    assert table(world).stored_names == (("b", "a"), ("M", "M_2"))
    both_are_true(world)
    (made,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert [name for name, _ in schema_columns(made.schema)] == ["id", "a", "M_2"]
    error = refused(world, "ALTER TABLE t ADD COLUMN a INT")
    assert (error.code, error.message) == ("RW105", 'columns "b" and "a" are both read from field "a"')
    world.run("ALTER TABLE t ADD COLUMN a INT AS b * 2")


def test_a_renamed_column_is_one_of_the_tables_own_without_a_connector() -> None:
    world = tables_world(KEYED, "ALTER TABLE t RENAME COLUMN name TO called", "ALTER TABLE t DROP CONNECTOR")
    assert "FROM" not in shown(world, "TABLE")
    assert table(world).stored_names == (("called", "name"),)
    world.run("CREATE MATERIALIZED VIEW v AS SELECT called FROM t")
    (view,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert view.inputs[0].selected == ("`id`", "`name` AS `called`")


def test_what_names_a_column_in_the_definition_gets_its_new_name() -> None:
    world = tables_world(
        create_table("k INT, v INT, PRIMARY KEY (k)", "ON CONFLICT DO UPDATE FULL WITH VERSION COLUMN (v)")
    )
    world.run("ALTER TABLE t RENAME COLUMN v TO version", 'ALTER TABLE t RENAME COLUMN k TO "a key"')
    text = shown(world, "TABLE")
    assert "VERSION COLUMN (version)" in text
    assert 'PRIMARY KEY ("a key")' in text
    both_are_true(world)
    (made,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert made.keyed is not None
    assert (made.keyed.primary_key, made.keyed.version_columns) == (("k",), ("v",))
    appended = create_table("at TIMESTAMPTZ, n INT, WATERMARK FOR at AS at - INTERVAL '1' SECOND", "APPEND ONLY")
    world = tables_world(appended, "ALTER TABLE t RENAME COLUMN at TO seen_at")
    assert "WATERMARK FOR seen_at AS seen_at - INTERVAL '1' SECOND" in shown(world, "TABLE")
    both_are_true(world)


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("aa", "b", "RW205", 'has no column "aa"'),
        ("a", '"ID"', "RW105", 'already has a column "ID"'),
        ("a", "_rw_b", "RW212", "begin with _rw_"),
        ("at", "b", "RW301", "comes from INCLUDE: renaming it"),
        ("a", "y", "RW301", "may refer to something other"),
        ("y", "b", "RW205", 'has no column "y"'),
    ],
)
def test_columns_that_cannot_be_renamed(old: str, new: str, code: str, said: str) -> None:
    columns = "id INT PRIMARY KEY, a INT, c BOOLEAN AS exists(array(1), y -> y > a)"
    error = refused(
        tables_world(create_table(columns, include="INCLUDE offset AS at")),
        f"ALTER TABLE t RENAME COLUMN {old} TO {new}",
    )
    assert (error.code, said in error.message) == (code, True)


@pytest.mark.parametrize("old", ["x", "X", "_rw"])
def test_every_name_of_a_column_can_be_renamed_where_a_column_is_computed_from_it(old: str) -> None:
    name = f'"{old}"'
    world = tables_world(create_table(f"id INT PRIMARY KEY, {name} INT, d INT AS {old} + 1"))
    world.run(f"ALTER TABLE t RENAME COLUMN {name} TO y")
    assert "d INT AS y + 1" in shown(world, "TABLE")


def test_a_column_that_may_be_used_keeps_its_name() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW v AS SELECT name FROM t")
    error = refused(world, "ALTER TABLE t RENAME COLUMN name TO called")
    assert (error.code, error.message) == (
        "RW306",
        'cannot rename column "name" of table "t" because other objects use it: materialized view "v"',
    )
    assert "create them again with the new name" in str(error.hint)


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT id * 2 AS called, called + 1 AS more FROM t", "name"),
        ("SELECT id % 10 AS called, count(*) AS n FROM t GROUP BY called", "name"),
    ],
)
def test_what_a_view_would_take_for_something_else_is_no_name(query: str, column: str) -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, name VARCHAR, n INT"))
    world.analyze = None
    world.run(f"CREATE MATERIALIZED VIEW v AS {query}")
    world.analyze = analyzed
    error = refused(world, f"ALTER TABLE t RENAME COLUMN {column} TO called")
    assert (error.code, 'materialized view "v"' in error.message) == ("RW306", True)


def test_a_key_by_which_a_view_is_kept_keeps_its_name() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW v AS SELECT name FROM t")
    (view,) = world.snapshot.all("materialized_view")
    assert "`id` AS" in view.maintenance.query
    error = refused(world, "ALTER TABLE t RENAME COLUMN id TO key")
    assert error.message.endswith('because other objects use it: materialized view "v"')


def test_expressions_mean_what_they_meant() -> None:
    columns = "id INT PRIMARY KEY, a INT, half INT AS a + 1, text VARCHAR AS to_json(struct(a)), c INT DEFAULT a"
    world = tables_world(create_table(columns))
    world.run("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN half TO a")
    text = shown(world, "TABLE")
    for part in ("b INT FROM a", "a INT AS b + 1", "AS to_json(struct(b AS a))", "c INT DEFAULT b"):
        assert part in text
    both_are_true(world)
    # A name that is not a present column is not found by its name in the files either.
    world = tables_world(create_table("id INT PRIMARY KEY, a INT"), "ALTER TABLE t RENAME COLUMN a TO b")
    assert "cannot be resolved" in refused(world, "ALTER TABLE t ADD COLUMN d INT AS a + 1").message


def test_a_field_may_have_another_name_from_the_start() -> None:
    world = tables_world(create_table('id INT FROM "order-id" PRIMARY KEY, n INT FROM n, twice INT AS id * 2'))
    assert [column.name for column in definition_of(source(world)).columns] == ["order-id", "n"]
    assert (table(world).stored_names, table(world).keys) == ((), ("id",))
    assert 'id INT FROM "order-id" PRIMARY KEY,\n  n INT,' in shown(world, "TABLE")
    both_are_true(world)
    world.run("ALTER TABLE t UNSAFE SET (topic = 'new')")
    both_are_true(world)
    world.run("ALTER TABLE t ADD COLUMN m INT FROM k")
    both_are_true(world)


@pytest.mark.parametrize(
    ("columns", "code", "said"),
    [
        ("id INT, a INT FROM id", "RW105", 'both read from field "id"'),
        ("id INT, a INT FROM _rw_offset", "RW212", "begins with _rw_"),
        ("id INT, a INT FROM id AS id + 1", "RW105", "both generated and read from field"),
    ],
)
def test_fields_that_cannot_be_read(columns: str, code: str, said: str) -> None:
    error = refused(tables_world(), create_table(columns))
    assert (error.code, said in error.message) == (code, True)


def test_a_source_calls_its_columns_as_records_do() -> None:
    text = create_table("id INT FROM key").replace("CREATE TABLE", "CREATE SOURCE")
    error = refused(tables_world(), text)
    assert (error.code, "only a table supports FROM" in str(error.hint)) == ("RW301", True)


def test_the_fields_of_csv_stay() -> None:
    csv = KEYED.replace("ENCODE JSON", "ENCODE CSV (without_header = 'true', delimiter = ',')")
    assert "by position" in refused(tables_world(csv), "ALTER TABLE t DROP COLUMN name").message


def test_columns_of_include_stay() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY", include="INCLUDE offset AS at"))
    assert world.answers("ALTER TABLE t ADD COLUMN IF NOT EXISTS at INT") == [("NOTHING", 'column "at" already exists')]
    assert "comes from INCLUDE" in refused(world, "ALTER TABLE t DROP COLUMN at").message
