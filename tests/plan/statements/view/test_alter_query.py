"""ALTER MATERIALIZED VIEW … AS: the rebuilt table beside the old rows, the parts carried over, and the end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.facts import JobStatus
from rw_sql.model.definitions import view_definition
from rw_sql.model.job_ids import rebuild_job
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.model.lineage import in_reading_order
from rw_sql.model.resource_groups import written_group
from rw_sql.model.source_readers import is_running
from rw_sql.plan.statements.common import REBUILD_CANCELLED
from rw_sql.plan.statements.show.job_states import source_state
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from tests.plan.canned import CannedWorld, create_source, refused
from tests.plan.tables import analyzed, create_table, sink, tables_world


def altered_world() -> CannedWorld:
    """A source ``s``, a view ``v`` on it, a view ``top`` on ``v``, and a source ``other`` without readers."""
    return tables_world(
        create_source("s", "old"),
        create_source("other", "new"),
        "CREATE MATERIALIZED VIEW v AS SELECT id, id AS twice FROM s",
        "CREATE MATERIALIZED VIEW top AS SELECT id FROM v",
    )


def swap(world: CannedWorld) -> int:
    """The owner's commit, once all that is being made has caught up; its epoch."""
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))
    return world.snapshot.epoch


def columns(world: CannedWorld, name: str) -> str:
    record = world.snapshot.find("materialized_view", name)
    assert record is not None
    return record.query


def generations(world: CannedWorld) -> dict[str, tuple[int, str]]:
    jobs = desired_jobs(world.snapshot)
    return {job: (spec.generation, spec.query) for job, spec in jobs.items() if isinstance(spec, ViewSpec)}


def test_both_run_and_the_old_one_serves_until_the_swap() -> None:
    world = altered_world()
    before = {record.name: record for record in world.snapshot.all("materialized_view")}
    plan = world.run("ALTER MATERIALIZED VIEW v AS SELECT id, CAST(id AS BIGINT) AS more FROM s")
    assert not plan.is_unsafe
    assert [(row.object, row.change) for row in plan.changes] == [
        ("v", "REBUILDING"),
        ("v", "NOTICE"),
        ("top", "REBUILDING"),
    ]
    assert plan.changes[1].detail == "columns after the change: without twice; with more"
    assert {record.name: record for record in world.snapshot.all("materialized_view")} == before
    v, top = before["v"].id, before["top"].id
    assert {job: generation for job, (generation, _) in generations(world).items()} == {
        f"mv-{v}": 1,
        f"mv-{top}": 1,
        f"mv-{v}.2": 2,
        f"mv-{top}.2": 2,
    }
    assert "more" in generations(world)[f"mv-{v}.2"][1]
    for record in world.snapshot.all("rebuild"):
        assert record_from_json(record_to_json(record)) == record
    swap(world)
    assert columns(world, "v") == "SELECT id, CAST(id AS BIGINT) AS more FROM s"
    assert {job: generation for job, (generation, _) in generations(world).items()} == {f"mv-{v}": 2, f"mv-{top}": 2}
    assert not world.snapshot.all("rebuild")
    assert world.run("ALTER MATERIALIZED VIEW v AS SELECT id, CAST(id AS BIGINT) AS more FROM s").operation is None


def test_a_changed_query_starts_and_protects_its_new_source_at_once() -> None:
    world = altered_world()
    other = world.snapshot.find("source", "other")
    assert other is not None
    assert f"ingest-{other.id}" not in desired_jobs(world.snapshot)
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    assert f"ingest-{other.id}" in desired_jobs(world.snapshot)
    assert refused(world, "DROP SOURCE other").code == "RW306"
    assert refused(world, "ALTER SOURCE other RENAME TO renamed").code == "RW309"
    swap(world)
    record = world.snapshot.find("materialized_view", "v")
    assert record is not None
    assert record.inputs == (other.id,)


def test_a_view_may_read_one_that_was_made_after_it() -> None:
    world = altered_world()
    world.run("CREATE MATERIALIZED VIEW later AS SELECT id FROM other")
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM later")
    swap(world)
    ordered = [view.name for view in in_reading_order(world.snapshot.kept)]
    assert ordered.index("later") < ordered.index("v") < ordered.index("top")
    world.run("REBUILD MATERIALIZED VIEW later CASCADE")
    (group,) = rebuild_groups(world.snapshot)
    assert [rebuild.name for rebuild in group] == ["later", "v", "top"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "ALTER MATERIALIZED VIEW v AS SELECT id AS other FROM s",
            "RW306",
            '"top" reads it: column id cannot be resolved',
        ),
        (
            "ALTER MATERIALIZED VIEW v AS SELECT CAST(id AS BIGINT) AS id FROM s",
            "RW306",
            '"top" reads it: the type of its column "id" would change from INT to BIGINT',
        ),
        ("ALTER MATERIALIZED VIEW v AS SELECT id FROM v", "RW215", "would read itself"),
        ("ALTER MATERIALIZED VIEW v AS SELECT id FROM top", "RW215", 'would read "top", which reads it'),
        ("ALTER MATERIALIZED VIEW v AS SELECT nothing FROM s", "RW215", "nothing"),
        ("ALTER MATERIALIZED VIEW w AS SELECT id FROM s", "RW203", "does not exist"),
    ],
)
def test_what_is_refused(text: str, code: str, said: str) -> None:
    error = refused(altered_world(), text)
    assert error.code == code
    assert said in error.message


def test_sinks_have_sent_what_cannot_be_reverted() -> None:
    world = altered_world()
    world.run(sink("PLAIN", "top"))
    error = refused(world, "ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    assert (error.code, error.hint) == (
        "RW306",
        "DROP SINK k, repeat this statement, and create the sink again WITH (snapshot = 'false')",
    )


def test_said_again_it_is_nothing_and_said_otherwise_it_begins_anew() -> None:
    world = altered_world()
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    assert world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s").operation is None
    replaced = "CREATE OR REPLACE MATERIALIZED VIEW v AS select id, id as other from s"
    assert world.run(replaced).changes[0].detail == "a rebuild with this definition is already running"
    assert refused(world, "REBUILD MATERIALIZED VIEW v CASCADE").code == "RW309"
    assert refused(world, "ALTER MATERIALIZED VIEW top AS SELECT id, id AS more FROM v").code == "RW309"
    world.run("ALTER MATERIALIZED VIEW v SET backfill_rate_limit = 7")
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS third FROM s")
    assert {rebuild.generation for rebuild in world.snapshot.all("rebuild")} == {3}
    swap(world)
    record = world.snapshot.find("materialized_view", "v")
    assert record is not None
    assert (record.backfill_rate_limit, record.generation, record.kept_generation) == (7, 3, 1)
    assert "backfill_rate_limit = 7" in record.definition


def test_undo_before_the_swap_gives_it_up() -> None:
    world = altered_world()
    query = columns(world, "v")
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    plan = world.run(f"UNDO OPERATION {world.snapshot.epoch}")
    assert [(row.object, row.change) for row in plan.changes] == [("v", "UNDONE"), ("top", "UNDONE")]
    assert not world.snapshot.all("rebuild")
    assert columns(world, "v") == query
    # Its rows are where a second table would be, so the next table is a third.
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    assert {rebuild.generation for rebuild in world.snapshot.all("rebuild")} == {3}


@pytest.mark.parametrize("by_swap", [False, True])
def test_undo_after_the_swap_lets_the_old_rows_serve(by_swap: bool) -> None:
    world = altered_world()
    before = {record.name: record for record in world.snapshot.all("materialized_view")}
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    begun = world.snapshot.epoch
    swapped = swap(world)
    plan = world.run(f"UNDO OPERATION {swapped if by_swap else begun}")
    assert [(row.object, row.change) for row in plan.changes] == [("v", "RESTORED"), ("top", "RESTORED")]
    for name, old in before.items():
        record = world.snapshot.find("materialized_view", name)
        assert record is not None
        assert (record.query, record.generation, record.schema) == (old.query, 1, old.schema)
        assert (record.kept_generation, record.last_generation) == (2, 2)
    assert {generation for generation, _ in generations(world).values()} == {1}
    world.run("REBUILD MATERIALIZED VIEW v CASCADE")
    assert {rebuild.generation for rebuild in world.snapshot.all("rebuild")} == {3}
    swap(world)
    record = world.snapshot.find("materialized_view", "v")
    assert record is not None
    assert (record.generation, record.kept_generation, record.last_generation) == (3, 1, 0)


@pytest.mark.parametrize(
    "stored",
    [
        {"metadata": {}, "name": "id", "nullable": True, "type": "integer"},
        {"name": "id", "type": "integer", "nullable": False, "metadata": {}},
        {"name": "id", "type": "integer", "nullable": True, "metadata": {"spark.sessionWindow": True}},
    ],
)
def test_undo_restores_a_view_whose_stored_schema_has_another_text_of_the_same_meaning(
    stored: dict[str, object],
) -> None:
    world = tables_world(create_source("s", "old"))
    world.analyze = lambda request: replace(
        analyzed(request), schema=json.dumps({"type": "struct", "fields": [stored]})
    )
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.analyze = analyzed
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    plan = world.run(f"UNDO OPERATION {swap(world)}")
    assert [(row.object, row.change) for row in plan.changes] == [("v", "RESTORED")]


def test_undo_refuses_a_view_whose_query_now_has_another_meaning() -> None:
    world = tables_world(create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    swapped = swap(world)
    world.analyze = lambda request: replace(
        analyzed(request), schema=analyzed(request).schema.replace("integer", "string")
    )
    error = refused(world, f"UNDO OPERATION {swapped}")
    assert 'a name in the previous query of materialized view "v" now refers to another object' in error.message


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (("CREATE MATERIALIZED VIEW more AS SELECT other FROM v",), '"more" has already read the new rows'),
        (("REBUILD MATERIALIZED VIEW v CASCADE",), "is being rebuilt"),
        (("DROP SOURCE s CASCADE",), "no longer exists"),
    ],
)
def test_what_keeps_the_old_rows_from_serving(since: tuple[str, ...], said: str) -> None:
    world = altered_world()
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS other FROM s")
    swapped = swap(world)
    world.run(*since)
    error = refused(world, f"UNDO OPERATION {swapped}")
    assert error.code == "RW330"
    assert said in error.message


def test_the_rows_before_the_last_ones_are_gone() -> None:
    world = altered_world()
    swaps = []
    for other in ("one", "two"):
        world.run(f"ALTER MATERIALIZED VIEW v AS SELECT id, id AS {other} FROM s")
        swaps.append(swap(world))
    error = refused(world, f"UNDO OPERATION {swaps[0]}")
    assert "no longer exist" in error.message
    assert error.hint == "ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM s"
    world.run(f"UNDO OPERATION {swaps[1]}")
    assert "one" in columns(world, "v")


@pytest.mark.parametrize(
    ("statement", "again"),
    [
        ("ALTER MATERIALIZED VIEW v AS SELECT id FROM s", "ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM s"),
        ("REBUILD MATERIALIZED VIEW v", "REBUILD MATERIALIZED VIEW v"),
    ],
)
def test_a_rollback_that_comes_too_late_says_what_makes_the_rows_again(statement: str, again: str) -> None:
    world = altered_world()
    world.run("DROP MATERIALIZED VIEW top", statement)
    swapped = swap(world)
    world.run("ALTER SYSTEM SET rollback_window = '1min'")
    assert "twice" in world.plan(f"UNDO OPERATION {swapped}").operation.changes[0].record.query  # type: ignore[union-attr]
    world.operations = tuple(replace(found, at_ms=found.at_ms - 60_001) for found in world.operations)
    error = refused(world, f"UNDO OPERATION {swapped}")
    assert (error.code, error.hint) == ("RW330", again)
    assert 'the previous rows of materialized view "v" are EXPIRED' in error.message
    world.run(again)
    world.run("ALTER SYSTEM SET rollback_window = DEFAULT")


def test_or_replace_changes_the_column_names_too() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY"))
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    world.run("CREATE OR REPLACE MATERIALIZED VIEW v WITH (backfill_rate_limit = 3) AS SELECT id, id AS more FROM t")
    swap(world)
    record = world.snapshot.find("materialized_view", "v")
    assert record is not None
    assert "more" in record.query
    assert record.backfill_rate_limit == 3


def test_a_column_that_came_later_is_seen_by_a_query_that_came_later_still() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY"))
    world.run(
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM t",
        "CREATE MATERIALIZED VIEW untouched AS SELECT id FROM t",
        "ALTER TABLE t ADD COLUMN n INT",
        "ALTER MATERIALIZED VIEW v AS SELECT id, n FROM t",
    )
    assert refused(world, "ALTER TABLE t DROP COLUMN n").code == "RW309"
    swap(world)
    specs = {spec.name: spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)}
    assert "n" in specs["v"].inputs[0].columns
    assert "n" not in specs["untouched"].inputs[0].columns
    assert refused(world, "ALTER TABLE t DROP COLUMN n").code == "RW306"


def test_a_cascade_that_drops_what_only_the_new_query_reads_cancels_the_rebuild_as_a_whole() -> None:
    """The views keep their rows, and their next tables get folders that no cancelled rebuild has written to."""
    world = altered_world()
    before = generations(world)
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    assert 'the rebuild of materialized view "v"' in refused(world, "DROP SOURCE other").message
    plan = world.run("DROP SOURCE other CASCADE")
    assert [(row.object, row.change) for row in plan.changes] == [
        ("other", "DROPPED"),
        ("v", "NOTICE"),
        ("top", "NOTICE"),
    ]
    assert {row.detail for row in plan.changes[1:]} == {REBUILD_CANCELLED}
    assert generations(world) == before
    assert not world.snapshot.all("rebuild")
    world.run("REBUILD MATERIALIZED VIEW v CASCADE")
    assert {rebuild.generation for rebuild in world.snapshot.all("rebuild")} == {3}


def test_a_cascade_that_drops_a_rebuilt_view_drops_its_rebuild() -> None:
    world = altered_world()
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    assert [(row.object, row.change) for row in world.run("DROP MATERIALIZED VIEW v CASCADE").changes] == [
        ("top", "DROPPED"),
        ("v", "DROPPED"),
    ]
    assert not world.snapshot.all("rebuild")
    assert not generations(world)


def test_the_hint_of_a_refused_drop_quotes_a_name_that_needs_it() -> None:
    world = altered_world()
    world.run('ALTER MATERIALIZED VIEW v RENAME TO "Odd name"')
    error = refused(world, 'DROP MATERIALIZED VIEW "Odd name"')
    assert error.hint == 'drop them first, or use DROP MATERIALIZED VIEW "Odd name" CASCADE'
    world.run(error.hint.partition("use ")[2])


def test_a_view_that_moves_to_another_group_during_its_rebuild_keeps_the_group_in_its_definition() -> None:
    world = altered_world()
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    world.run("ALTER MATERIALIZED VIEW v SET RESOURCE_GROUP TO nightly")
    swap(world)
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert view.resource_group == written_group(view_definition(view.definition).options) == "nightly"
    # A statement that does not name the group does not move it.
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM s")
    world.run("ALTER MATERIALIZED VIEW v RESET RESOURCE_GROUP")
    swap(world)
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert view.resource_group == written_group(view_definition(view.definition).options) == "default"


@pytest.mark.parametrize("moved", ["v", "top"])
def test_the_undo_of_a_swap_does_not_cross_a_move_to_another_group(moved: str) -> None:
    """It would return the job to its old owner while the new one runs it."""
    world = altered_world()
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    epoch = swap(world)
    world.run(f"ALTER MATERIALIZED VIEW {moved} SET RESOURCE_GROUP TO nightly")
    error = refused(world, f"UNDO OPERATION {epoch}")
    assert "it was in resource group default then, and is in nightly now" in error.message
    world.run(f"ALTER MATERIALIZED VIEW {moved} RESET RESOURCE_GROUP")
    world.run(f"UNDO OPERATION {epoch}")
    view = world.snapshot.find("materialized_view", moved)
    assert view is not None
    assert (view.resource_group, view.group_since) == ("default", epoch + 2)


def test_a_source_that_only_a_rebuild_reads_runs() -> None:
    """Otherwise a block would move it while its reader continues, and SHOW SOURCES would say that nothing reads it."""
    world = altered_world()
    other = world.snapshot.find("source", "other")
    assert other is not None
    assert not is_running(world.snapshot, other)
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id AS twice FROM other")
    assert f"ingest-{other.id}" in desired_jobs(world.snapshot)
    assert is_running(world.snapshot, other)
    running = JobStatus(job=f"ingest-{other.id}", object_id=other.id, state="RUNNING")
    assert source_state(world.snapshot, other, {running.job: running}) == ("RUNNING", "")
    world.run("PAUSE SOURCE other")
    assert not is_running(world.snapshot, other)
    assert "no view" not in world.run("RESUME SOURCE other").changes[0].detail


@pytest.mark.parametrize("stalled", ["v", "top"])
@pytest.mark.parametrize("words", ["ALTER MATERIALIZED VIEW v AS", "CREATE OR REPLACE MATERIALIZED VIEW v AS"])
def test_a_stalled_rebuild_is_begun_again_by_the_same_statement(stalled: str, words: str) -> None:
    """REBUILD refuses a view that is rebuilt with another query, and says so; only UNDO would be left."""
    world = altered_world()
    text = f"{words} SELECT id, id AS twice FROM other"
    world.run(text)
    assert [row.change for row in world.run(text).changes] == ["NOTHING"]
    (job,) = [rebuild_job(made) for made in world.snapshot.all("rebuild") if made.name == stalled]
    world.jobs[job] = JobStatus(job=job, object_id=1, state="STALLED", reason="EXPIRED new:0, 5 records of history")
    error = refused(world, "REBUILD MATERIALIZED VIEW v CASCADE")
    assert error.hint is not None
    assert "if its job is STALLED, run the statement with that query again; if the rebuild does not" in error.hint
    assert [row.change for row in world.run(text).changes] == ["REBUILDING", "REBUILDING"]
    assert {made.generation for made in world.snapshot.all("rebuild")} == {3}


def test_the_same_text_in_another_dialect_is_another_query_if_its_meaning_differs() -> None:
    world = altered_world()
    world.run("""CREATE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""")  # a string in Spark, a column in RisingWave
    world.dialect = "risingwave"
    for text in (
        """ALTER MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""",
        """CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""",
    ):
        assert [row.change for row in world.plan(text).changes][:1] == ["REBUILDING"]
    world.run("""ALTER MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""")
    assert "already running" in world.run("""ALTER MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""").changes[0].detail
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild.view is not None
    assert (rebuild.view.dialect, rebuild.view.query) == ("risingwave", "SELECT `id` AS x FROM s")
    world.dialect = "spark"
    assert world.plan("""CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""").operation is not None


def test_the_same_text_with_the_same_meaning_in_another_dialect_is_no_change() -> None:
    world = altered_world()
    world.dialect = "risingwave"
    for statement in ("ALTER MATERIALIZED VIEW v AS", "CREATE OR REPLACE MATERIALIZED VIEW v AS"):
        assert world.run(f"{statement} SELECT id, id AS twice FROM s").operation is None


def test_a_string_in_place_of_a_column_is_another_query_of_risingwaves() -> None:
    world = altered_world()
    world.dialect = "risingwave"
    world.run("""CREATE MATERIALIZED VIEW w AS SELECT 'id' AS x FROM s""")
    replaced = """CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s"""
    assert [row.change for row in world.run(replaced).changes][:1] == ["REBUILDING"]


AGAIN = "ALTER MATERIALIZED VIEW v AS SELECT id, id + 1 AS twice FROM s"


@pytest.mark.parametrize(
    "change",
    ["ALTER MATERIALIZED VIEW top AS SELECT id, twice FROM v", "ALTER MATERIALIZED VIEW top SET PARALLELISM = 3"],
)
def test_the_new_definition_of_a_reader_that_is_being_rebuilt_is_not_lost(change: str) -> None:
    world = altered_world()
    world.run(change)
    (before,) = world.snapshot.all("rebuild")
    world.run(AGAIN)
    (now,) = (rebuild for rebuild in world.snapshot.all("rebuild") if rebuild.name == "top")
    assert before.view is not None
    assert now.view is not None
    assert (now.view.definition, now.view.query, now.view.parallelism) == (
        before.view.definition,
        before.view.query,
        before.view.parallelism,
    )
    assert now.generation == before.generation + 1
    swap(world)
    assert columns(world, "top") == before.view.query


def test_a_future_reader_counts_as_a_reader() -> None:
    world = altered_world()
    world.run(
        "CREATE MATERIALIZED VIEW later AS SELECT id FROM s",
        "ALTER MATERIALIZED VIEW later AS SELECT id FROM v",
        AGAIN,
    )
    generations = {rebuild.name: rebuild.generation for rebuild in world.snapshot.all("rebuild")}
    assert generations == {"later": 3, "v": 2, "top": 2}
    error = refused(world, "ALTER MATERIALIZED VIEW v AS SELECT id FROM later")
    assert error.message == 'the query of materialized view "v" would read "later", which reads it'


def test_a_reader_that_will_not_read_the_view_any_more_is_waited_for() -> None:
    world = altered_world()
    world.run("CREATE OR REPLACE MATERIALIZED VIEW top AS SELECT id, id AS more FROM s")
    error = refused(world, AGAIN)
    assert error.message == 'materialized view "top" reads "v" until its rebuild with another definition is complete'
    assert error.hint == "WAIT MATERIALIZED VIEW top, then repeat this statement"
    swap(world)
    world.run(AGAIN)


def test_a_rebuild_of_a_reader_with_the_same_definition_begins_again() -> None:
    world = altered_world()
    world.run("REBUILD MATERIALIZED VIEW top", AGAIN)
    assert {rebuild.name for rebuild in world.snapshot.all("rebuild")} == {"v", "top"}
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id, id + 2 AS twice FROM s")
