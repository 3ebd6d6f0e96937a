"""RisingWave's options of sources and tables that capture a database: accepted, and never a difference."""

from __future__ import annotations

import pytest

from rw_sql.model.job_specs import IngestSpec, desired_jobs
from tests.plan.canned import refused
from tests.plan.statements.table.test_cdc_tables import SOURCE, TABLE, cdc_world, ingest, table
from tests.plan.tables import tables_world

OPTIONS = (
    "backfill.parallelism = '4', backfill.num_rows_per_split = '50000', backfill.as_even_splits = 'false', "
    "backfill.split_pk_column_index = '0'"
)


def with_options(options: str) -> str:
    return TABLE.replace("(*)", f"(*) WITH ({options})")


def test_options_of_a_parallel_snapshot_are_accepted_with_a_notice() -> None:
    world = cdc_world()
    plan = world.run(with_options(f"{OPTIONS}, snapshot.batch_size = '7'"))
    (notice,) = [row.detail for row in plan.changes if row.change == "NOTICE"]
    assert notice == (
        "backfill.parallelism, backfill.num_rows_per_split, backfill.as_even_splits, backfill.split_pk_column_index "
        "have no effect: the source reads one range of the primary key after another; snapshot.batch_size sets the "
        "number of rows of a range"
    )
    assert ingest(world).tables[0].chunk_rows == 7
    assert "backfill.parallelism" in table(world, "orders").definition
    for text in (TABLE, with_options("backfill.parallelism = '8'")):
        again = world.plan(text.replace("CREATE TABLE", "CREATE OR REPLACE TABLE"))
        assert [row.change for row in again.changes] == ["NOTHING"]


def test_an_option_with_an_effect_gets_no_notice() -> None:
    plan = cdc_world().run(with_options("snapshot.batch_size = '7', backfill_rate_limit = '9'"))
    assert [row.change for row in plan.changes] == ["CREATED"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("backfill.parallelism = '300'", "must be a number from 0 to 256, not '300'"),
        ("backfill.num_rows_per_split = 'many'", "must be a number from 0 to 999999999, not 'many'"),
        (
            "backfill.as_even_splits = '1'",
            "Invalid value for backfill.as_even_splits: '1' is neither 'true' nor 'false'",
        ),
        ("snapshot.interval = '0'", "must be a number from 1 to 1000000, not '0'"),
    ],
)
def test_a_wrong_value_of_an_option_without_effect_is_refused(option: str, message: str) -> None:
    assert message in refused(cdc_world(), with_options(option)).message


@pytest.mark.parametrize("connector", ["postgres-cdc", "mysql-cdc"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [("disable", "disabled"), ("Prefer", "preferred"), ("require", "required"), ("REQUIRED", "required")],
)
def test_another_spelling_of_the_encryption_is_the_same_option(connector: str, given: str, meant: str) -> None:
    names = ", server.id = '7'" if connector == "mysql-cdc" else ", slot.name = 'rw', publication.name = 'rw'"
    text = SOURCE.partition(", slot")[0].replace("postgres-cdc", connector) + names + ", ssl.mode = '{}')"
    world = tables_world()
    world.upstream_tables = cdc_world().upstream_tables
    world.run(text.format(given), TABLE)
    (job,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, IngestSpec)]
    assert dict(job.options).get("ssl.mode", "preferred") == meant
    for spelling in (given, meant):
        again = world.plan(text.format(spelling).replace("CREATE SOURCE", "CREATE OR REPLACE SOURCE"))
        assert [row.change for row in again.changes] == ["NOTHING"], spelling


def test_a_connection_with_another_spelling_of_the_encryption_is_unchanged() -> None:
    text = (
        "CONNECTION db WITH (type = 'postgres', hostname = 'db', username = 'u', database.name = 'd', ssl.mode = '{}')"
    )
    world = tables_world()
    world.run("CREATE " + text.format("require"))
    again = world.plan("CREATE OR REPLACE " + text.format("required"))
    assert [row.change for row in again.changes] == ["NOTHING"]


@pytest.mark.parametrize("connector", ["postgres-cdc", "mysql-cdc"])
def test_transactional_is_accepted_and_no_difference(connector: str) -> None:
    text = SOURCE.partition(", slot")[0].replace("postgres-cdc", connector)
    world = tables_world()
    world.run(text + ", transactional = 'true')")
    again = world.plan(text.replace("CREATE SOURCE", "CREATE OR REPLACE SOURCE") + ")")
    assert [row.change for row in again.changes] == ["NOTHING"]
    assert "transactional" in refused(tables_world(), text + ", transactional = 'maybe')").message
