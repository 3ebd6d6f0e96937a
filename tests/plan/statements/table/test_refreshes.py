"""Refreshable tables in lowering: the refusals and their order, and the states of a refresh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.snapshots import ColumnMisfit
from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.metastore.refresh_records import FINISHING, IDLE, REFRESHING, RefreshRecord
from rw_sql.model.job_specs import RefreshSpec, desired_jobs
from rw_sql.model.refresh_states import (
    begun,
    finished,
    given_up,
    given_up_operation,
    is_due,
    left_chunks,
    refresh_of,
    staged,
    triggered,
)
from rw_sql.syntax import parse_statement, render
from tests.conftest import FIXTURES
from tests.plan.canned import CannedWorld, create_source, refusals, refused
from tests.plan.canned_inspector import CannedUpstreams
from tests.plan.refreshing import NOW, create_refreshable, refreshable_world, state
from tests.plan.tables import create_table, source, table, tables_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORD = RefreshRecord(id=3, name="t", table_id=2)


def put(world: CannedWorld, record: RefreshRecord) -> None:
    world.apply((PutObject(record=record),))


def commit(world: CannedWorld, operation: Operation) -> None:
    world.commit(operation)


def test_one_commit_makes_the_source_the_table_and_its_state() -> None:
    world = tables_world()
    told = "empty until the first REFRESH TABLE, and every 60 s; rows are replaced by key (id)"
    assert world.answers(create_refreshable("refresh_interval_sec = '60'")) == [("CREATED", told)]
    made, of = table(world), source(world)
    assert (made.source_id, made.inputs, made.keys, made.primary_key) == (of.id, (), ("id",), ("id",))
    assert made.has_change_feed
    assert not of.is_shared
    assert world.snapshot.table_of(of.id) == made
    assert not world.snapshot.assigned
    assert state(world) == RefreshRecord(id=made.id + 1, name="t", table_id=made.id, interval_s=60)
    (job,) = desired_jobs(world.snapshot).values()
    assert isinstance(job, RefreshSpec)
    assert (job.job, job.keys, job.object_id) == (f"mv-{made.id}", ("id",), made.id)
    assert replace(job, name="another") == job
    assert record_from_json(record_to_json(state(world))) == state(world)


def test_show_create_gives_both_definitions() -> None:
    world = refreshable_world()
    shown = world.plan("SHOW CREATE TABLE t").table
    assert shown is not None
    assert shown.rows[0][1] == table(world).definition
    assert "refresh_mode = 'FULL_RELOAD'" in table(world).definition
    assert render(parse_statement(table(world).definition)) == table(world).definition
    assert "refresh_mode" not in source(world).definition
    again = tables_world(table(world).definition)
    assert (table(again), source(again)) == (table(world), source(world))


def test_views_read_it_as_one_that_replaces_its_rows() -> None:
    world = refreshable_world()
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id, name FROM t")
    jobs = desired_jobs(world.snapshot)
    assert len(jobs) == 2
    before = desired_jobs(world.snapshot)[f"mv-{table(world).id}"]
    world.run("REFRESH TABLE t")
    assert desired_jobs(world.snapshot)[f"mv-{table(world).id}"] == before


def test_a_refresh_returns_at_once_with_a_notice() -> None:
    world = refreshable_world()
    assert world.answers("REFRESH TABLE t") == [("NOTICE", "REFRESH initiated for table 'public.t'")]
    assert state(world) == replace(
        RECORD, id=state(world).id, table_id=table(world).id, status=REFRESHING, refresh=1, triggered_ms=NOW
    )
    assert world.operations[0].kind == "REFRESH TABLE"


def test_what_is_refused_in_risingwaves_order() -> None:
    world = refreshable_world()
    world.run(
        create_table("id INT PRIMARY KEY", name="plain"),
        create_source("s", "old"),
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    assert refused(world, "REFRESH TABLE nowhere").message == 'table "nowhere" does not exist'
    assert refused(world, "REFRESH TABLE v").message == "REFRESH is only supported for tables, got MaterializedView."
    assert refused(world, "REFRESH TABLE s").message == "REFRESH is only supported for tables, got Source."
    assert refused(world, "REFRESH TABLE plain").message == (
        "Table 'public.plain' is not refreshable. Only tables created with REFRESHABLE flag support manual refresh."
    )
    world.run("REFRESH TABLE t")
    error = refused(world, "REFRESH TABLE t")
    assert (error.code, error.sqlstate) == ("RW340", "55006")
    assert error.message == ("Table 'public.t' is currently in state REFRESHING. Cannot start a new refresh operation.")
    assert error.hint is not None
    assert error.hint.startswith("WAIT TABLE t ")
    commit(world, staged(state(world), first_batch=0, chunks=2, rows=7))
    assert "is currently in state FINISHING." in refused(world, "REFRESH TABLE t").message
    # Without a source, this is the error in any state.
    world.apply((PutObject(record=replace(table(world), source_id=None)),))
    assert refused(world, "REFRESH TABLE t").message == (
        "Table 'public.t' has no associated source. It cannot be refreshed."
    )


def test_a_paused_source_is_not_read() -> None:
    world = refreshable_world("refresh_interval_sec = '1'")
    world.run("PAUSE SOURCE t")
    error = refused(world, "REFRESH TABLE t")
    assert (error.code, error.hint) == ("RW340", "RESUME SOURCE t")
    assert not is_due(world.snapshot, state(world), 0, NOW)
    world.run("RESUME SOURCE t")
    assert is_due(world.snapshot, state(world), 0, NOW)
    world.run("REFRESH TABLE t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            create_refreshable(columns="id INT, name VARCHAR"),
            "Refreshable tables must have a PRIMARY KEY. Please define a primary key for the table.",
        ),
        (
            create_table("id INT PRIMARY KEY").replace("topic =", "refresh_mode = 'FULL_RELOAD', topic ="),
            "FULL_RELOAD refresh mode is only supported for connectors: {names}, but got: kafka",
        ),
        (
            create_refreshable().replace(", refresh_mode = 'FULL_RELOAD'", ""),
            "connector \"jdbc\" is a batch connector: it must use `refresh_mode` = 'FULL_RELOAD'",
        ),
        (
            create_refreshable().replace("FULL_RELOAD", "STREAMING"),
            "connector \"jdbc\" is a batch connector: it must use `refresh_mode` = 'FULL_RELOAD'",
        ),
        (create_refreshable().replace("FULL_RELOAD", "SOMETIMES"), "invalid `refresh_mode`: 'SOMETIMES'"),
        (
            create_refreshable("refresh_interval_sec = '0'"),
            "`refresh_interval_sec` must be a whole number of seconds greater than 0, not '0'",
        ),
        (
            create_table("id INT PRIMARY KEY").replace("topic =", "refresh_interval_sec = '5', topic ="),
            "`refresh_interval_sec` is only allowed when `refresh_mode` is 'FULL_RELOAD'",
        ),
        (
            create_source("s", "old", "refresh_mode = 'STREAMING'"),
            "`refresh_mode` only supported for CREATE TABLE",
        ),
        (
            create_refreshable().replace("name VARCHAR)", "name VARCHAR) ON CONFLICT DO NOTHING"),
            "ON CONFLICT is not supported with refresh_mode = 'FULL_RELOAD'",
        ),
        (
            create_refreshable().replace("name VARCHAR)", "name VARCHAR) APPEND ONLY"),
            "APPEND ONLY is not supported with refresh_mode = 'FULL_RELOAD'",
        ),
        (create_refreshable("topic = 'x'"), 'connector "jdbc" has no property "topic"'),
    ],
)
def test_what_cannot_be_refreshed_is_not_made(text: str, message: str) -> None:
    from rw_sql.connectors.registry import snapshot_connector_names

    names = ", ".join(snapshot_connector_names())
    assert refused(tables_world(), text).message == message.replace("{names}", names)


def test_columns_that_the_upstream_cannot_give_are_refused_before_anything_is_stored() -> None:
    world = tables_world()
    world.misfits = (
        ColumnMisfit(
            column="nmae", message='table orders has no column "nmae"', hint="its columns: id", is_missing=True
        ),
        ColumnMisfit(column="n", message="column n is text", hint="declare it CHARACTER VARYING"),
    )
    missing = create_refreshable(columns="id INT PRIMARY KEY, name VARCHAR FROM nmae")
    error = refused(world, missing)
    assert (error.code, error.message) == (
        "RW205", 'column "name" of table "t" cannot be read: table orders has no column "nmae"',
    )  # fmt: skip
    assert error.column == len("CREATE TABLE t (id INT PRIMARY KEY, ") + 1
    assert refused(world, create_refreshable(columns="id INT PRIMARY KEY, n INT")).code == "RW212"
    # A generated column is read from nowhere, and VALIDATE = false looks nowhere.
    world.run(create_refreshable(columns="id INT PRIMARY KEY, n INT AS id + 1"))
    world.asked.clear()
    world.run(create_refreshable("VALIDATE = false", columns="id INT PRIMARY KEY, n INT", name="u"))
    assert not world.asked_of(CannedUpstreams.look)
    assert not world.asked_of(CannedUpstreams.column_misfit)
    assert "validate" not in table(world, "u").definition.lower()
    assert (
        refused(world, create_refreshable("VALIDATE = 'maybe'", name="w")).message == "VALIDATE must be true or false"
    )
    # Types do not refuse an existing object: its values have fitted so far.
    world.run("ALTER TABLE u CONNECTOR WITH (partition.num = 2)")
    assert refused(world, "VALIDATE SOURCE u").code == "RW212"
    world.misfits = (ColumnMisfit(column="n", message="no column n", hint="…", is_missing=True),)
    assert refused(world, "ALTER TABLE u CONNECTOR WITH (partition.num = 3)").code == "RW205"


def test_streaming_is_what_a_table_is_by_itself() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY").replace("topic =", "refresh_mode = 'streaming', topic ="))
    assert refresh_of(world.snapshot, table(world).id) is None
    assert table(world).inputs == (source(world).id,)
    assert "refresh_mode" not in source(world).definition


def record_of(operation: Operation) -> RefreshRecord:
    """The record that an operation writes."""
    (change,) = operation.changes
    assert isinstance(change, PutObject)
    assert isinstance(change.record, RefreshRecord)
    return change.record


def test_the_states_follow_each_other_and_no_other_way() -> None:
    refreshing = begun(RECORD, 5).record
    assert isinstance(refreshing, RefreshRecord)
    finishing = record_of(staged(refreshing, first_batch=3, chunks=2, rows=9))
    idle = record_of(finished(finishing, 8))
    assert (refreshing.status, refreshing.refresh, refreshing.triggered_ms) == (REFRESHING, 1, 5)
    assert (finishing.status, finishing.first_batch, finishing.chunks) == (FINISHING, 3, 2)
    assert idle == replace(RECORD, refresh=1, triggered_ms=5, succeeded_ms=8)
    back = record_of(given_up_operation(refreshing, "it broke"))
    assert back == replace(RECORD, refresh=1, triggered_ms=5, failure="it broke")
    assert begun(back, 9).record == replace(RECORD, status=REFRESHING, refresh=2, triggered_ms=9)
    for wrong in (finishing, refreshing):
        with pytest.raises(ValueError, match="not IDLE"):
            begun(wrong, 5)
        with pytest.raises(ValueError, match="not IDLE"):
            triggered(wrong, 5)
    for wrong in (RECORD, finishing):
        with pytest.raises(ValueError, match="not REFRESHING"):
            staged(wrong, first_batch=0, chunks=0, rows=0)
        with pytest.raises(ValueError, match="not REFRESHING"):
            given_up(wrong, "")
    for wrong in (RECORD, refreshing):
        with pytest.raises(ValueError, match="not FINISHING"):
            finished(wrong, 0)


@given(first=st.integers(0, 50), chunks=st.integers(0, 9), merged=st.integers(0, 9))
def test_a_merge_goes_on_with_the_chunks_that_are_left(first: int, chunks: int, merged: int) -> None:
    done = min(merged, chunks)
    record = replace(RECORD, status=FINISHING, refresh=1, first_batch=first, chunks=chunks)
    assert list(left_chunks(record, first - 1 + done)) == list(range(done, chunks))
    # A table that was never written to has -1.
    assert list(left_chunks(replace(record, first_batch=0), -1)) == list(range(chunks))


def test_a_scheduled_refresh_begins_by_itself() -> None:
    world = refreshable_world("refresh_interval_sec = '60'")
    record, made = state(world), table(world).created_at_ms
    assert not is_due(world.snapshot, record, made, made + 59_999)
    assert is_due(world.snapshot, record, made, made + 60_000)
    # The clocks of two processes differ by a little; the wait is short even if one was set back by a year.
    assert not is_due(world.snapshot, record, made, made - 5_000)
    assert is_due(world.snapshot, record, made, made - 365 * 24 * 3_600_000)
    commit(world, triggered(record, made + 60_000))
    assert world.operations[0].reason == "refresh_interval_sec = 60"
    assert not is_due(world.snapshot, state(world), made, made + 10**9)
    commit(world, staged(state(world), first_batch=0, chunks=0, rows=0))
    commit(world, finished(state(world), made + 61_000))
    assert not is_due(world.snapshot, state(world), made, made + 119_999)
    assert is_due(world.snapshot, state(world), made, made + 120_000)
    assert not is_due(refreshable_world().snapshot, state(refreshable_world()), 0, 10**15)


def jobs_row(world: CannedWorld) -> tuple[object, object]:
    plan = world.plan("SHOW JOBS")
    assert plan.table is not None
    (row,) = plan.table.rows
    return row[3], row[4]


def progress(world: CannedWorld, phase: str, done: int, total: int) -> None:
    id_ = table(world).id
    world.backfills = {
        f"mv-{id_}": BackfillProgress(
            job=f"mv-{id_}",
            object_id=id_,
            generation=1,
            phase=phase,
            done=done,
            total=total,
            started_ms=0,
            updated_ms=0,
        )
    }


def test_show_jobs_tells_the_state_and_how_far_it_is() -> None:
    world = refreshable_world()
    job = f"mv-{table(world).id}"
    assert jobs_row(world) == ("IDLE", "")
    world.jobs = {job: JobStatus(job=job, object_id=table(world).id, state="RUNNING", run=1)}
    world.run("REFRESH TABLE t")
    progress(world, "loading", 0, 0)
    assert jobs_row(world) == ("REFRESHING", "loading")
    commit(world, staged(state(world), first_batch=0, chunks=4, rows=200))
    progress(world, "merging", 50, 200)
    assert jobs_row(world) == ("FINISHING", "merging: 25.00% (50/200)")
    world.jobs = {}
    assert jobs_row(world) == ("FINISHING", "no process runs the jobs of this warehouse yet")
    commit(world, finished(state(world), 1))
    world.run("REFRESH TABLE t")
    commit(world, given_up_operation(state(world), "connection refused"))
    assert jobs_row(world) == ("IDLE", "the newest refresh failed: connection refused")
    shown = world.plan("SHOW TABLES").table
    assert shown is not None
    assert shown.rows[0][:4] == ("t", "jdbc", "IDLE", "the newest refresh failed: connection refused")


def test_cancel_ends_a_loading_and_no_merge() -> None:
    world = refreshable_world()
    id_ = table(world).id
    assert refused(world, f"CANCEL JOBS {id_}").message == f"there is no backfill or refresh with id {id_}"
    world.run("REFRESH TABLE t")
    progress(world, "loading", 3, 8)
    assert world.answers(f"CANCEL JOBS {id_}") == [("CANCELLED", "loading: 37.50% (3/8)")]
    assert (state(world).status, state(world).failure) == (IDLE, "CANCEL JOBS")
    world.run("REFRESH TABLE t")
    commit(world, staged(state(world), first_batch=0, chunks=4, rows=200))
    progress(world, "merging", 50, 200)
    error = refused(world, f"CANCEL JOBS {id_}")
    assert (error.code, error.message) == (
        "RW340",
        "the refresh of table 't' is in state FINISHING: a merge cannot be cancelled",
    )


def test_a_drop_takes_everything() -> None:
    world = refreshable_world()
    assert refused(world, "DROP SOURCE t").message == 'source "t" belongs to table "t"'
    assert world.answers("DROP TABLE t") == [("DROPPED", "table")]
    assert not world.snapshot.records
    assert desired_jobs(world.snapshot) == {}


def test_its_source_is_moved_as_any_other() -> None:
    world = refreshable_world("refresh_interval_sec = '60'")
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    world.run("ALTER SOURCE t UNSAFE SET (table.name = 'orders_2026')")
    assert dict(source(world).options)["table.name"] == "orders_2026"
    assert "table.name = 'orders_2026'" in table(world).definition
    assert "refresh_mode = 'FULL_RELOAD'" in table(world).definition
    assert "refresh_interval_sec = '60'" in table(world).definition


def test_explain_says_what_will_be_done() -> None:
    world = refreshable_world()
    text = world.explained("REFRESH TABLE t")
    assert "the whole upstream is loaded into a staging table" in text
    assert "AlterObject refresh t" in text


def refusing_world() -> CannedWorld:
    """A refreshable table in each of its states, and others."""
    world = tables_world(
        create_table("id INT PRIMARY KEY", name="plain"),
        create_source("s", "old"),
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    for name in ("detached", "busy", "merging", "held"):
        world.run(create_refreshable(name=name))
    world.run("REFRESH TABLE busy", "REFRESH TABLE merging", "PAUSE SOURCE held")
    commit(world, staged(state(world, "merging"), first_batch=0, chunks=2, rows=7))
    world.apply((PutObject(record=replace(table(world, "detached"), source_id=None)),))
    return world


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("errors/refreshes/*.sql")), ids=lambda path: path.stem)
def test_refusal(path: Path, recorded: Callable[[Path, str], None]) -> None:
    world = refusing_world()
    recorded(path.with_suffix(".txt"), "\n\n".join(refusals(world, path)))


def test_a_rename_takes_its_state_along_and_restarts_nothing() -> None:
    world = refreshable_world()
    before = desired_jobs(world.snapshot)
    world.run("REFRESH TABLE t", "ALTER TABLE t RENAME TO customers")
    assert desired_jobs(world.snapshot) == before
    assert state(world, "customers").name == "customers"
    assert "currently in state REFRESHING" in refused(world, "REFRESH TABLE customers").message
    commit(world, given_up_operation(state(world, "customers"), "it broke"))
    assert world.answers("REFRESH TABLE customers") == [("NOTICE", "REFRESH initiated for table 'public.customers'")]


def test_a_connector_is_not_dropped_while_half_of_a_refresh_is_merged() -> None:
    world = refreshable_world()
    world.run("REFRESH TABLE t")
    commit(world, staged(state(world), first_batch=0, chunks=2, rows=7))
    error = refused(world, "ALTER TABLE t DROP CONNECTOR")
    assert (error.code, error.hint) == ("RW340", "WAIT TABLE t, then drop its connector")
    commit(world, finished(state(world), 1))
    world.run("ALTER TABLE t DROP CONNECTOR")


def test_without_its_connector_it_keeps_its_rows_and_is_not_refreshed() -> None:
    world = refreshable_world()
    world.run("ALTER TABLE t DROP CONNECTOR")
    assert refused(world, "REFRESH TABLE t").message.startswith("Table 'public.t' ")
    world.run("DROP TABLE t")
    assert not world.snapshot.records


def _of_files(name: str) -> str:
    folder = Path(__file__).parent
    return (
        f"CREATE TABLE {name} (id INT PRIMARY KEY) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
        "refresh_mode = 'FULL_RELOAD') FORMAT PLAIN ENCODE JSON"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "INJECT SOURCE OFFSETS t TO EARLIEST",
        "RESET SOURCE SPLITS t",
        "SKIP RECORD AT '0' 1 ON SOURCE t",
        "REWIND SOURCE t TO OPERATION 1",
    ],
)
@pytest.mark.parametrize("create", [create_refreshable(), _of_files("t")], ids=["jdbc", "files"])
def test_a_table_that_is_refreshed_has_no_positions_to_move(create: str, statement: str) -> None:
    world = tables_world(create, "PAUSE SOURCE t")
    error = refused(world, statement)
    assert error.message == 'the positions of table "t" cannot be moved: each refresh reads the whole upstream'
    assert error.hint == "to read the upstream again: REFRESH TABLE t"
