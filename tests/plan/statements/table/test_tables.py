"""CREATE TABLE with a connector in lowering: two objects with one name, and the effect of a statement on both."""

from __future__ import annotations

import pytest

from rw_sql.model.definitions import definition_of, source_of_table, table_definition
from rw_sql.model.job_specs import IngestSpec, SinkSpec, ViewSpec, desired_jobs
from rw_sql.plan.lower import lower
from rw_sql.syntax.parsing.script import parse
from rw_sql.syntax.statements import UnsafeBlock
from tests.plan.canned import HERE, refused
from tests.plan.refreshing import refreshable_world, state
from tests.plan.tables import KEYED, both_are_true, create_table, sink, source, table, tables_world


def test_one_commit_makes_the_source_and_the_table() -> None:
    world = tables_world()
    assert world.answers(KEYED) == [("CREATED", "2 splits; rows are replaced by key (id)")]
    made, of = table(world), source(world)
    assert (made.source_id, made.inputs, made.keys, made.primary_key) == (of.id, (of.id,), ("id",), ("id",))
    assert (made.conflict, made.is_append_only, made.version_columns) == ("overwrite", False, ())
    assert world.snapshot.table_of(of.id) == made
    assert world.assigned("t") == ("old:0", "old:1")
    ingest, job = desired_jobs(world.snapshot).values()
    assert isinstance(ingest, IngestSpec)
    assert isinstance(job, ViewSpec)
    assert job.keyed is not None
    assert job.inputs[0].columns == ("id", "name", "_rw_run", "_rw_batch", "_rw_split", "_rw_offset")
    assert job.query == "SELECT `id`, `name`, `_rw_run`, `_rw_batch`, `_rw_split`, `_rw_offset` FROM `t`"
    both_are_true(world)


def test_a_table_without_a_key_appends() -> None:
    world = tables_world(create_table("id INT, at TIMESTAMPTZ"))
    assert (table(world).keys, table(world).is_append_only) == ((), True)
    (job,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert job.keyed is None
    assert job.query == "SELECT `id`, `at` FROM `t`"


def test_generated_columns_and_defaults_are_computed_of_the_source_s() -> None:
    text = create_table("id INT PRIMARY KEY, a INT DEFAULT 7, twice BIGINT AS a * 2", include="INCLUDE offset AS at")
    world = tables_world(text)
    assert table(world).query == (
        "SELECT `id`, coalesce(`a`, CAST((7) AS INT)) AS `a`, CAST((a * 2) AS BIGINT) AS `twice`, `at` FROM `t`"
    )
    assert [c.name for c in definition_of(source(world)).columns] == ["id", "a"]
    both_are_true(world)


def test_expressions_in_risingwaves_sql_reach_spark_as_its_own() -> None:
    world = tables_world()
    world.dialect = "risingwave"
    world.run(create_table("id INT PRIMARY KEY, name VARCHAR AS id::varchar"))
    assert "CAST((CAST(id AS STRING)) AS STRING) AS `name`" in table(world).query


def test_the_key_may_be_an_included_column() -> None:
    world = tables_world(create_table("a INT, PRIMARY KEY (k, p)", include="INCLUDE key AS k INCLUDE partition AS p"))
    assert table(world).primary_key == ("k", "p")


@pytest.mark.parametrize(
    ("clause", "conflict", "versions"),
    [
        ("ON CONFLICT DO NOTHING", "ignore", ()),
        ("ON CONFLICT DO UPDATE FULL WITH VERSION COLUMN (v)", "overwrite", ("v",)),
        ("ON CONFLICT DO UPDATE IF NOT NULL", "if_not_null", ()),
        ("APPEND ONLY ON CONFLICT DO NOTHING", "ignore", ()),
        ("APPEND ONLY", "ignore", ()),
    ],
)
def test_what_becomes_of_rows_in_conflict(clause: str, conflict: str, versions: tuple[str, ...]) -> None:
    world = tables_world(create_table("id INT PRIMARY KEY, v BIGINT", clause))
    assert (table(world).conflict, table(world).version_columns) == (conflict, versions)
    assert table(world).keys == (() if "APPEND" in clause else ("id",))
    both_are_true(world)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (create_table("id INT", "ON CONFLICT DO NOTHING"), "RW212", "needs a primary key"),
        (create_table("id INT PRIMARY KEY", "APPEND ONLY ON CONFLICT DO UPDATE FULL"), "RW212", "must be DO NOTHING"),
        (
            create_table("id INT PRIMARY KEY, v INT", "ON CONFLICT DO NOTHING WITH VERSION COLUMN (v)"),
            "RW212",
            "cannot be used with the ignore behavior",
        ),
        (create_table("id INT PRIMARY KEY", "WITH VERSION COLUMN (v)"), "RW205", "VERSION COLUMN does not exist"),
        (create_table("id INT, PRIMARY KEY (x)"), "RW205", "of the primary key does not exist"),
        (create_table("id MAP(VARCHAR, INT) PRIMARY KEY"), "RW212", "cannot identify a row"),
        (
            create_table("id INT PRIMARY KEY, at TIMESTAMPTZ, WATERMARK FOR at AS at - INTERVAL '5' SECOND"),
            "RW301",
            "requires the table to be append only",
        ),
        (create_table("id INT UNIQUE"), "RW301", "only PRIMARY KEY is enforced"),
        (create_table("id INT, UNIQUE (id)"), "RW301", "only PRIMARY KEY is enforced"),
        (create_table("id INT NOT NULL"), "RW301", "not supported yet"),
        (create_table("_rw_a INT"), "RW212", "cannot begin with _rw_"),
        (create_table("a INT, b INT AS a", include="INCLUDE offset AS b"), "RW105", "more than once"),
        ("CREATE TABLE t (id INT) APPEND ONLY", "RW301", "needs a connector"),
        (create_table("id INT").replace("PLAIN", "UPSERT"), "RW212", "primary key must be specified"),
        (
            create_table("id INT").replace("PLAIN", "DEBEZIUM").replace(") ", ") APPEND ONLY ", 1),
            "RW212",
            "an append only table does not support",
        ),
        (create_table("id INT").replace("TABLE", "TEMPORARY TABLE"), "RW301", "TEMPORARY"),
        (create_table("*"), "RW212", "Wildcard in user-defined schema is only allowed when"),
        (create_table("id INT", topic="nowhere"), "RW402", "has no topic"),
    ],
)
def test_tables_that_cannot_be(text: str, code: str, words: str) -> None:
    error = refused(tables_world(), text)
    assert error.code == code, error.message
    assert words in f"{error.message} {error.hint}"


def test_a_name_is_taken_by_both() -> None:
    world = tables_world(KEYED)
    for text in (KEYED, KEYED.replace("TABLE", "SOURCE").replace(" PRIMARY KEY", "")):
        assert refused(world, text).message == 'table "t" already exists'
    assert world.answers(KEYED.replace("TABLE t", "TABLE IF NOT EXISTS t")) == [("NOTHING", 'table "t" already exists')]


def test_a_source_whose_records_change_rows_needs_a_table() -> None:
    text = create_table("id INT").replace("TABLE", "SOURCE").replace("PLAIN", "UPSERT")
    assert refused(tables_world(), text).message == "can't CREATE SOURCE with FORMAT UPSERT"


def test_drop_table_takes_its_source_with_it() -> None:
    world = tables_world(KEYED, "PAUSE SOURCE t", "CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    assert 'depend on it: materialized view "v"' in refused(world, "DROP TABLE t").message
    assert "belongs to table" in refused(world, "DROP SOURCE t CASCADE").message
    assert world.answers("DROP TABLE t CASCADE") == [("DROPPED", "materialized view"), ("DROPPED", "table")]
    assert not world.snapshot.records
    assert not world.snapshot.assigned
    assert world.answers("DROP TABLE IF EXISTS t") == [("NOTHING", 'table "t" does not exist')]


def test_a_view_reads_the_table_and_not_its_source() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW v AS SELECT id, name FROM t")
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert view.inputs == (table(world).id,)
    assert view.maintenance.strategy == "changes"
    assert table(world).has_change_feed


MOVES = (
    "ALTER TABLE t UNSAFE SET (topic = 'new')",
    "ALTER SOURCE t UNSAFE SET (topic = 'new')",
    "ALTER TABLE t CONNECTOR WITH (properties.client.id = 'me')",
    "ALTER TABLE t SET source_rate_limit = 7",
    "ALTER TABLE t SET CONNECTION c",
)


@pytest.mark.parametrize("text", MOVES)
def test_both_definitions_follow(text: str) -> None:
    server = f"properties.bootstrap.server = '{HERE}'"
    connection = f"CREATE CONNECTION c WITH (type = 'kafka', {server})"
    made = (connection,) if "CONNECTION" in text else ()
    world = tables_world(*made, KEYED, "CREATE MATERIALIZED VIEW v AS SELECT id, name FROM t")
    before = (table(world).definition, source(world).definition)
    plan = world.run(text)
    assert plan.operation is not None
    assert source(world).definition != before[1]
    assert source_of_table(table_definition(table(world).definition)) == definition_of(source(world))
    both_are_true(world)
    assert table(world).has_change_feed
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM t")
    world.run(f"UNDO OPERATION {world.operations[1].epoch}")
    assert (table(world).definition, source(world).definition) == before
    assert table(world).has_change_feed


def test_a_block_rewrites_both() -> None:
    world = tables_world(KEYED)
    inside = parse("ALTER TABLE t UNSAFE SET (topic = 'new'); RESET SOURCE SPLITS t")
    plan = lower(UnsafeBlock(statements=inside), world.snapshot, world.inspector)
    assert plan.operation is not None
    world.commit(plan.operation)
    assert "topic = 'new'" in table(world).definition
    both_are_true(world)


def test_describe_and_show_know_tables() -> None:
    world = tables_world(KEYED, "CREATE MATERIALIZED VIEW v AS SELECT id, name FROM t")
    described = world.plan("DESCRIBE t").table
    assert described is not None
    assert described.rows == (("id", "INT", True), ("name", "STRING", False))
    jobs = world.plan("SHOW JOBS").table
    assert jobs is not None
    assert [(row[1], row[2]) for row in jobs.rows] == [
        ("source", "t"),
        ("table", "t"),
        ("materialized_view", "v"),
    ]
    tables = world.plan("SHOW TABLES").table
    assert tables is not None
    assert tables.rows == (("t", "kafka", "WAITING", "", "id", "overwrite", False, "v"),)


def test_only_a_table_is_altered_as_one() -> None:
    world = tables_world(KEYED.replace("TABLE t", "SOURCE t").replace(" PRIMARY KEY", ""))
    error = refused(world, "ALTER TABLE t UNSAFE SET (topic = 'new')")
    assert error.message == '"t" is a source, not a table'
    assert error.hint == "ALTER SOURCE t …"


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("", "rows that are read again overwrite the rows with the same keys in table t"),
        ("WITH VERSION COLUMN (v)", "in table t, unless their version is older"),
        ("ON CONFLICT DO NOTHING", "rows that are read again are ignored if table t already has their keys"),
        ("ON CONFLICT DO UPDATE IF NOT NULL", "the values of rows that are read again overwrite"),
    ],
)
def test_what_a_preview_says_of_rows_that_are_read_again(clause: str, words: str) -> None:
    world = tables_world(
        create_table("id INT PRIMARY KEY, v INT", clause), "CREATE MATERIALIZED VIEW m AS SELECT id FROM t"
    )
    world.read_on("t", old_0=40, old_1=50)
    world.run("PAUSE SOURCE t")
    preview = world.plan("INJECT SOURCE OFFSETS t TO EARLIEST ALLOW DUPLICATES").preview
    assert preview is not None
    assert preview.dependents == ("table t", "materialized view m")
    (notice,) = [notice for notice in preview.notices if "read again" in notice]
    assert words in notice


def test_a_table_without_a_key_has_rows_twice_that_are_read_again() -> None:
    world = tables_world(create_table("id INT"))
    world.read_on("t", old_0=40, old_1=50)
    world.run("PAUSE SOURCE t")
    preview = world.plan("INJECT SOURCE OFFSETS t TO EARLIEST ALLOW DUPLICATES").preview
    assert preview is not None
    assert "repeated rows will be duplicated in t" in preview.notices


def test_rename_gives_both_the_new_name() -> None:
    world = tables_world(KEYED, "PAUSE SOURCE t", "CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    assert world.answers("ALTER TABLE t RENAME TO u") == [("RENAMED", "was t"), ("ALTERED", "reads u")]
    assert world.snapshot.find("table", "t") is None
    assert world.snapshot.find("source", "t") is None
    assert table(world, "u").query == "SELECT `id`, `name` FROM `u`"
    assert source_of_table(table_definition(table(world, "u").definition)) == definition_of(source(world, "u"))
    assert [pause.name for pause in world.snapshot.all("pause")] == ["u"]
    world.run("RESUME SOURCE u", "ALTER TABLE u UNSAFE SET (topic = 'new')", KEYED)


def test_drop_connector_keeps_the_rows() -> None:
    text = create_table("id INT PRIMARY KEY, a INT DEFAULT 7", include="INCLUDE key AS k INCLUDE header 'h' AS h")
    world = tables_world(text, "CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    before = table(world)
    assert world.answers("ALTER TABLE t DROP CONNECTOR") == [("ALTERED", "its connector is dropped: its rows stay")]
    assert world.snapshot.find("source", "t") is None
    assert not world.snapshot.assigned
    after = table(world)
    assert (after.schema, after.keys, after.source_id, after.inputs) == (before.schema, before.keys, None, ())
    assert list(desired_jobs(world.snapshot)) == ["mv-3"]
    assert [column.name for column in table_definition(after.definition).columns] == ["id", "a", "k", "h"]
    assert refused(world, "ALTER TABLE t UNSAFE SET (topic = 'new')").message == 'table "t" no longer has a connector'
    assert refused(world, "PAUSE SOURCE t").code == "RW203"
    shown = world.plan("SHOW JOBS").table
    assert shown is not None
    assert shown.rows[0][3:5] == ("IDLE", "it no longer has a connector, so it gets no new rows")
    world.run("DROP TABLE t CASCADE")
    assert not world.snapshot.records


def test_sinks_take_the_changes_of_a_table() -> None:
    world = tables_world(KEYED)
    error = refused(world, sink("PLAIN"))
    assert (error.code, 'table "t" replaces its rows' in error.message) == ("RW320", True)
    for how in ("UPSERT", "DEBEZIUM"):
        world.run(sink(how))
        spec = desired_jobs(world.snapshot)[f"sink-{world.snapshot.next_id - 1}"]
        assert isinstance(spec, SinkSpec)
        assert (spec.inputs[0].kind, spec.inputs[0].is_changing, spec.shape.keys) == ("table", True, ("id",))
        assert table(world).has_change_feed
        world.run("DROP SINK k")


def test_sinks_take_the_rows_of_a_table_that_only_appends() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY", "APPEND ONLY"), sink("PLAIN"))
    (spec,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, SinkSpec)]
    assert not spec.inputs[0].is_changing
    assert not table(world).has_change_feed


def test_the_watermark_of_an_append_only_table_holds_for_views_over_it() -> None:
    columns = "id INT, at TIMESTAMPTZ, WATERMARK FOR at AS at - INTERVAL '5' SECOND"
    world = tables_world(create_table(columns, "APPEND ONLY"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    views = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    (given,) = [view.inputs[0] for view in views if view.name == "v"]
    assert given.watermark == ("at", "5 seconds")
    assert not definition_of(source(world)).watermarks
    both_are_true(world)


def test_a_table_that_is_loaded_as_a_whole_is_renamed_and_loses_its_connector_too() -> None:
    world = refreshable_world()
    world.run("ALTER TABLE t RENAME TO u")
    assert state(world, "u").name == "u"
    for what in ("ADD COLUMN a INT", "DROP COLUMN a"):
        assert "loaded as a whole" in refused(world, f"ALTER TABLE u {what}").message
    world.run("ALTER TABLE u DROP CONNECTOR")
    assert not world.snapshot.all("refresh")
    assert list(desired_jobs(world.snapshot)) == []
