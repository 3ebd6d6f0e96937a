"""Sinks in lowering: the stored record, the resulting jobs, and the refusals before anything is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.sink import SinkLook
from rw_sql.metastore.records import SinkRecord
from rw_sql.model.job_specs import SinkSpec, ViewSpec, desired_jobs
from rw_sql.plan.ports.queries import QueryAnalysis
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.query.maintained_form import ROW
from tests.conftest import FIXTURES
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, create_source, refusals, refused, told
from tests.plan.canned_inspector import CannedUpstreams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rw_sql.plan.result.plan import Plan

COUNTS = (
    '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
)
PLAIN = "FORMAT PLAIN ENCODE JSON"


def sink_world() -> CannedWorld:
    """A source ``s``, a view ``v`` that appends, a view ``keyed`` by ``id``, and a topic ``out``."""
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.put_topic("out", (0, 0))
    world.run(
        f"CREATE CONNECTION brokers WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        create_source("s", "t"),
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    world.analysis = QueryAnalysis(schema=COUNTS, keys=("id",))
    world.run("CREATE MATERIALIZED VIEW keyed AS SELECT id, count(*) AS n FROM s GROUP BY id")
    world.analysis = CannedWorld().analysis
    return world


def to_kafka(name: str, of: str, *options: str, form: str = PLAIN, at: str = HERE, topic: str = "out") -> str:
    more = "".join(f", {option}" for option in options)
    address = "" if "connection = brokers" in options else f", properties.bootstrap.server = '{at}'"
    return f"CREATE SINK {name} {of} WITH (connector = 'kafka', topic = '{topic}'{address}{more}) {form}"


def sink(world: CannedWorld, name: str = "k") -> SinkRecord:
    found = world.snapshot.find("sink", name)
    assert found is not None
    return found


def spec(world: CannedWorld, name: str = "k") -> SinkSpec:
    found = desired_jobs(world.snapshot)[f"sink-{sink(world, name).id}"]
    assert isinstance(found, SinkSpec)
    return found


def started(plan: Plan, action: str = "StartJob") -> list[str]:
    return [step.subject for step in plan.steps if step.action == action]


def test_refused_statements(recorded: Callable[[Path, str], None]) -> None:
    world = sink_world()
    world.silent.add("127.0.0.1:1")
    shown = refusals(world, FIXTURES / "sinks" / "refused.sql")
    world.target = SinkLook(
        misfit="table t has no PRIMARY KEY or UNIQUE constraint on (id)",
        hint="in the database: ALTER TABLE t ADD PRIMARY KEY (id)",
    )
    unfit = (
        "CREATE SINK k FROM v WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', table.name = 't', "
        "type = 'upsert', primary_key = 'id')"
    )
    shown.append(told(unfit, refused(world, unfit)))
    recorded(FIXTURES / "errors" / "create_sink.txt", "\n\n".join(shown))
    assert not any(
        "hunter2" in line and "LINE" not in line and "WITH" not in line for line in "\n".join(shown).split("\n")
    )


def test_a_sink_is_one_object_and_one_job() -> None:
    world = sink_world()
    plan = world.run(to_kafka("k", "FROM v"))
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("k", "CREATED", 'append-only, from materialized view "v"')
    ]
    assert started(plan) == [f"sink-{sink(world).id}"]
    assert (spec(world).shape.type, spec(world).shape.encode, spec(world).starts) == ("append-only", "JSON", ())
    assert world.snapshot.users_of(sink(world).inputs[0]) == (sink(world),)


def test_a_sink_reads_its_source() -> None:
    world = sink_world()
    world.run("DROP MATERIALIZED VIEW v", "DROP MATERIALIZED VIEW keyed")
    assert not desired_jobs(world.snapshot)
    plan = world.run(to_kafka("k", "FROM s"))
    assert started(plan) == ["ingest-2", f"sink-{sink(world).id}"]
    assert started(world.run("DROP SINK k"), "StopJob") == [f"sink-{plan.affected[0]}", "ingest-2"][::-1]


def test_keys_of_plain_text_are_kept_and_are_one_column() -> None:
    world = sink_world()
    plain = "FORMAT UPSERT ENCODE JSON KEY ENCODE TEXT"
    world.run(to_kafka("k", "FROM s", "primary_key = 'id'", form=plain))
    assert spec(world).shape.key_encode == "TEXT"
    assert sink(world).definition.endswith("KEY ENCODE TEXT")
    world.analysis = QueryAnalysis(schema=COUNTS)
    error = refused(world, to_kafka("two", "AS SELECT id, 1 AS n FROM v", "primary_key = 'id, n'", form=plain))
    assert (error.code, error.message) == ("RW212", "KEY ENCODE TEXT needs a primary key of one column, but got id, n")


def test_the_definition_parses_back_to_the_record() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM keyed", "primary_key = 'id'", form="FORMAT UPSERT ENCODE JSON"))
    shown = world.plan("SHOW CREATE SINK k").table
    assert shown is not None
    (row,) = shown.rows
    assert row == ("k", sink(world).definition)
    assert render(parse_statement(str(row[1]))) == row[1]
    before = sink(world)
    world.run("DROP SINK k", str(row[1]))
    assert replace(sink(world), id=before.id) == before


def test_a_keyed_view_starts_to_keep_its_changes_once() -> None:
    world = sink_world()
    upsert = "FORMAT UPSERT ENCODE JSON"
    first = world.run(to_kafka("k", "FROM keyed", form=upsert))
    view = world.snapshot.find("materialized_view", "keyed")
    assert view is not None
    assert view.has_change_feed
    assert started(first, "RestartJob") == [f"mv-{view.id}"]
    job = desired_jobs(world.snapshot)[f"mv-{view.id}"]
    assert isinstance(job, ViewSpec)
    assert job.has_change_feed
    assert sink(world).keys == ("id",)
    assert started(world.run(to_kafka("k2", "FROM keyed", form=upsert)), "RestartJob") == []
    assert started(world.run("DROP SINK k"), "RestartJob") == []


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (
            ("primary_key = 'id'",),
            "create the sink from a view that groups by the key: "
            "CREATE MATERIALIZED VIEW joined_by_id AS SELECT id, max(n) AS n FROM joined GROUP BY id"
            "; if the view has a GROUP BY, select its columns instead",
        ),
        (
            ("primary_key = 'id, n'",),
            "create the sink from a view that groups by the key: "
            "CREATE MATERIALIZED VIEW joined_by_key AS SELECT id, n FROM joined GROUP BY id, n"
            "; if the view has a GROUP BY, select its columns instead",
        ),
        (
            (),
            "create the sink from a view that groups by the key, if id identifies a row: "
            "CREATE MATERIALIZED VIEW joined_by_id AS SELECT id, max(n) AS n FROM joined GROUP BY id"
            "; if the view has a GROUP BY, select its columns instead",
        ),
    ],
)
def test_a_view_whose_columns_identify_no_row_needs_a_view_that_groups(options: tuple[str, ...], hint: str) -> None:
    world = sink_world()
    world.analysis = QueryAnalysis(schema=COUNTS, keys=(ROW,))
    world.run("CREATE MATERIALIZED VIEW joined AS SELECT id, count(*) AS n FROM s GROUP BY id")
    world.analysis = QueryAnalysis(schema=COUNTS, keys=("id",))
    error = refused(world, to_kafka("k", "FROM joined", *options, form="FORMAT UPSERT ENCODE JSON"))
    assert (error.code, error.hint) == ("RW320", hint)
    made = hint[hint.index("CREATE") : hint.index("; if")]
    world.run(made, to_kafka("k", f"FROM {made.split()[3]}", *options, form="FORMAT UPSERT ENCODE JSON"))
    assert sink(world).keys == (("id", "n") if "primary_key = 'id, n'" in options else ("id",))


@pytest.mark.parametrize(
    ("form", "options", "type_", "keys"),
    [
        (PLAIN, (), "append-only", ()),
        (PLAIN, ("primary_key = 'id'",), "append-only", ("id",)),
        ("FORMAT UPSERT ENCODE JSON", ("primary_key = 'id'",), "upsert", ("id",)),
        ("FORMAT DEBEZIUM ENCODE JSON", ("primary_key = 'id'", "type = 'debezium'"), "debezium", ("id",)),
        ("", ("type = 'append-only'",), "append-only", ()),
        ("", ("type = 'upsert'", "primary_key = 'id'"), "upsert", ("id",)),
    ],
)
def test_format_or_type_say_what_becomes_of_rows(
    form: str, options: tuple[str, ...], type_: str, keys: tuple[str, ...]
) -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM s", *options, form=form))
    assert (sink(world).type, sink(world).keys, sink(world).encode) == (type_, keys, "JSON")


@pytest.mark.parametrize("form", ["FORMAT PLAIN ENCODE JSON (force_append_only = 'true')", PLAIN])
def test_changes_can_be_forced_into_rows(form: str) -> None:
    world = sink_world()
    options = () if "force" in form else ("force_append_only = 'true'",)
    world.run(to_kafka("k", "FROM keyed", *options, form=form))
    assert (sink(world).type, sink(world).keys) == ("append-only", ())


def test_rows_without_an_order_are_reported() -> None:
    world = sink_world()
    upsert = {"form": "FORMAT UPSERT ENCODE JSON"}
    assert [row.change for row in world.run(to_kafka("k", "FROM s", "primary_key = 'id'", **upsert)).changes] == [
        "CREATED"
    ]
    answers = world.run(to_kafka("k2", "FROM v", "primary_key = 'id'", **upsert)).changes
    assert [(row.change, row.detail) for row in answers[1:]] == [
        (
            "NOTICE",
            'rows of materialized view "v" have no order: if several rows have the same (id), the sink keeps any '
            "one of them",
        )
    ]


def test_a_sink_without_a_snapshot_begins_behind_what_is_there() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM v", "snapshot = false"))
    assert spec(world).starts == ((sink(world).inputs[0], 7),)


def test_an_aggregating_query_upserts_and_has_no_row_before() -> None:
    world = sink_world()
    world.analysis = QueryAnalysis(schema=COUNTS, keys=("id",))
    query = "AS SELECT id, count(*) AS n FROM s GROUP BY id"
    world.run(to_kafka("k", query, form="FORMAT UPSERT ENCODE JSON"))
    assert spec(world).replaces
    assert refused(world, to_kafka("k2", query, form="FORMAT DEBEZIUM ENCODE JSON")).code == "RW320"


def test_pause_keeps_the_sink_and_stops_its_job() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM v"))
    job = spec(world).job
    assert started(world.run("PAUSE SINK k REASON 'the broker moves'"), "StopJob") == [job]
    assert world.answers("PAUSE SINK k") == [("NOTHING", "already paused")]
    shown = world.plan("SHOW SINKS").table
    assert shown is not None
    assert shown.rows == (("k", "kafka", "append-only", "PAUSED", "the broker moves", "v", ""),)
    assert started(world.run("RESUME SINK k")) == [job]
    assert world.answers("RESUME SINK k") == [("NOTHING", "it is not paused")]


def test_what_a_sink_reads_cannot_go_without_it() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM v"))
    error = refused(world, "DROP MATERIALIZED VIEW v")
    assert error.code == "RW306"
    assert 'sink "k"' in error.message
    assert [row.object for row in world.run("DROP MATERIALIZED VIEW v CASCADE").changes] == ["k", "v"]


def test_one_alter_of_a_connection_reaches_its_sinks() -> None:
    world = sink_world()
    world.run(
        to_kafka("k", "FROM v", "connection = brokers"),
        to_kafka("own", "FROM v"),
    )
    plan = world.run("ALTER CONNECTION brokers SET (properties.client.id = 'me')")
    assert started(plan, "RestartJob") == [spec(world).job]
    read_only = world.run("ALTER CONNECTION brokers SET (properties.fetch.wait.max.ms = '7')")
    assert started(read_only, "RestartJob") == []
    assert ("k", "FOLLOWS") in [(row.object, row.change) for row in plan.changes]
    world.put_topic("t", (0, 10), at=ELSEWHERE)
    error = refused(world, f"ALTER CONNECTION brokers SET (properties.bootstrap.server = '{ELSEWHERE}')")
    assert (error.code, error.message) == ("RW402", 'the target of sink "k" has no topic "out"')
    assert refused(world, "DROP CONNECTION brokers").code == "RW306"


def test_a_new_value_of_a_secret_is_tried_on_its_sinks_first() -> None:
    world = sink_world()
    world.run(
        "CREATE SECRET pw WITH (backend = 'meta') AS 'one'",
        "CREATE SINK k FROM v WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', table.name = 't', "
        "type = 'upsert', primary_key = 'id', user = 'me', password = SECRET pw)",
    )
    before = spec(world)
    world.target = SinkLook(error="password authentication failed")
    assert refused(world, "ALTER SECRET pw AS 'two'").code == "RW401"
    world.target = SinkLook()
    plan = world.run("ALTER SECRET pw AS 'two'")
    assert world.asked_of(CannedUpstreams.look_at_target)[-1]["candidates"]
    assert started(plan, "RestartJob") == [before.job]
    assert spec(world) != before


def test_validate_looks_at_the_target_again() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM v"))
    assert world.answers("VALIDATE SINK k") == [("VALID", "the target accepts its rows")]
    world.silent.add(HERE)
    assert refused(world, "VALIDATE SINK k").code == "RW401"


def test_types_that_the_target_may_refuse_prevent_only_a_new_sink() -> None:
    world = sink_world()
    to_postgres = (
        "CREATE SINK k FROM v WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://db/shop', table.name = 't', "
        "type = 'append-only')"
    )
    world.target = SinkLook(doubt='column "id" of table public.t is date', hint="CAST it")
    error = refused(world, to_postgres)
    assert (error.code, error.message, error.hint) == (
        "RW413", 'sink "k" cannot be written: column "id" of table public.t is date', "CAST it",
    )  # fmt: skip
    world.asked.clear()
    world.run(to_postgres.replace("type =", "VALIDATE = false, type ="))
    assert not world.asked_of(CannedUpstreams.look_at_target)
    assert "validate" not in sink(world).definition.lower()
    world.run("ALTER SINK k CONNECTOR WITH (user = 'other', on_error = 'replace')")
    assert refused(world, "VALIDATE SINK k").code == "RW413"
    world.target = SinkLook(misfit="it is another table")
    assert refused(world, "ALTER SINK k CONNECTOR WITH (user = 'me')").code == "RW413"


def test_describe_shows_columns_and_keys() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM keyed", form="FORMAT UPSERT ENCODE JSON"))
    shown = world.plan("DESCRIBE k").table
    assert shown is not None
    assert shown.rows == (("id", "INT", True), ("n", "BIGINT", False))


def test_names_are_shared_with_sources_and_views() -> None:
    world = sink_world()
    world.run(to_kafka("k", "FROM v"))
    assert refused(world, "CREATE MATERIALIZED VIEW k AS SELECT id FROM s").code == "RW201"
    assert world.answers(to_kafka("IF NOT EXISTS k", "FROM v")) == [("NOTHING", 'sink "k" already exists')]
    assert world.answers("DROP SINK IF EXISTS nobody") == [("NOTHING", 'sink "nobody" does not exist')]


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "\0", "é", ".", "-", "+", ":", " ", "1", "e", "N"])
def test_a_delimiter_that_numbers_or_times_contain_is_refused(delimiter: str) -> None:
    """No quotes surround numbers and times, so a line of ``1.5`` and ``2`` would have three fields."""
    world = sink_world()
    statement = (
        "CREATE SINK k FROM v WITH (connector = 'fs', fs.path = '/data') FORMAT PLAIN ENCODE CSV (delimiter = {})"
    )
    error = refused(world, statement.format(f"'{delimiter}'"))
    assert error.code == "RW212"
    assert "delimiter must be one ASCII character that occurs in no number, time or quotation" in error.message


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t", "\\t", "\x01", "~"])
def test_other_delimiters_are_accepted(delimiter: str) -> None:
    world = sink_world()
    world.run(
        "CREATE SINK k FROM v WITH (connector = 'fs', fs.path = '/data') FORMAT PLAIN ENCODE CSV "
        f"(delimiter = '{delimiter}')"
    )
    assert sink(world).name == "k"
