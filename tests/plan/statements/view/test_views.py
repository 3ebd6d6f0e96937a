"""Views in lowering: Spark's SQL for each, watermarks, and refused queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.plan.ports.queries import AnalyzedQuery
from tests.conftest import FIXTURES, rendered
from tests.plan.canned import HERE, CannedWorld, create_source, refused
from tests.plan.canned_inspector import CannedQueries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WINDOWED = "SELECT window_start, count(*) AS n FROM TUMBLE(clicks, at, INTERVAL '1 MINUTE') GROUP BY window_start"


def clicks_world() -> CannedWorld:
    world = CannedWorld(dialect="risingwave")
    world.put_topic("t", (0, 10))
    world.run(
        "CREATE SOURCE clicks (id INT, at TIMESTAMPTZ, WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH "
        f"(connector = 'kafka', topic = 't', properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    return world


def view(world: CannedWorld, name: str) -> MaterializedViewRecord:
    record = world.snapshot.find("materialized_view", name)
    assert record is not None
    return record


def asked(world: CannedWorld) -> AnalyzedQuery:
    (arguments,) = world.asked_of(CannedQueries.analyze)
    return AnalyzedQuery(**arguments)


def test_spark_gets_its_own_sql_and_show_create_what_was_written() -> None:
    world = clicks_world()
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id::varchar AS id FROM public.clicks")
    record = view(world, "v")
    assert record.query == "SELECT CAST(id AS STRING) AS id FROM clicks"
    assert "id::varchar" in record.definition
    assert record.dialect == "risingwave"


def test_a_watermark_reaches_the_analysis_and_the_job() -> None:
    world = clicks_world()
    world.run(f"CREATE MATERIALIZED VIEW v AS {WINDOWED} EMIT ON WINDOW CLOSE")
    request = asked(world)
    assert request.closes_windows
    assert request.relations[0].watermark == ("at", "5 seconds")
    (spec,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert spec.inputs[0].watermark == ("at", "5 seconds")


def test_emit_on_window_close_needs_a_window() -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM clicks GROUP BY id EMIT ON WINDOW CLOSE"
    assert refused(clicks_world(), text).code == "RW301"


@pytest.mark.parametrize(
    ("clause", "code"),
    [
        ("WATERMARK FOR at AS at - INTERVAL '5' SECOND", "RW205"),
        ("WATERMARK FOR id AS id - INTERVAL '5' SECOND", "RW212"),
        ("ts TIMESTAMPTZ, WATERMARK FOR ts AS ts * 2", "RW301"),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "RW212"),
        ("ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND WITH TTL", "RW301"),
    ],
)
def test_watermarks_that_cannot_be(clause: str, code: str) -> None:
    world = clicks_world()
    assert refused(world, create_source("s", "t").replace("(id INT)", f"(id INT, {clause})", 1)).code == code


def test_a_column_needs_a_name_that_can_be_stored() -> None:
    world = clicks_world()
    world.dialect = "spark"
    schema = '{"type":"struct","fields":[{"name":"count(1)","type":"long","nullable":false,"metadata":{}}]}'
    world.analysis = type(world.analysis)(schema=schema)
    error = refused(world, "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM clicks")
    assert error.code == "RW215"
    assert error.hint is not None
    assert error.hint == "name the column: count(*) AS count"


def test_columns_that_cannot_be_read_as_errors(recorded: Callable[[Path, str], None]) -> None:
    world = clicks_world()
    texts = []
    for clause in ("WATERMARK FOR idd AS idd - INTERVAL '5' SECOND", "ago INTERVAL"):
        error = refused(world, create_source("s", "t").replace("(id INT)", f"(id INT, {clause})", 1))
        texts.append(rendered(error))
    recorded(FIXTURES / "errors" / "create_source_columns.txt", "\n".join(texts))
