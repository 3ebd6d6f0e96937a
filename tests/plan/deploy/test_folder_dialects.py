"""Folder and catalog: definitions are compared in the dialect in which they were written."""

from __future__ import annotations

from rw_sql.plan.queries.meaning import dialect_of
from tests.plan.canned import HERE
from tests.plan.deploy.test_changes import CONNECTION, SOURCE, differ
from tests.plan.tables import tables_world


def test_a_view_and_a_sink_in_risingwaves_sql_differ_from_the_same_text_in_the_folder() -> None:
    sink_of = (
        """CREATE SINK q AS SELECT {} AS x FROM s WITH (connector = 'kafka', topic = 'new', """
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    world = tables_world(CONNECTION, SOURCE)
    world.dialect = "risingwave"
    world.run("""CREATE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""", sink_of.format('"id"'))
    world.dialect = "spark"
    own = ("""CREATE MATERIALIZED VIEW w AS SELECT `id` AS x FROM s""", sink_of.format("`id`"))
    assert differ(world, CONNECTION, SOURCE, *own) == []
    same = ("""CREATE MATERIALIZED VIEW w AS SELECT "id" AS x FROM s""", sink_of.format('"id"'))
    found = differ(world, CONNECTION, SOURCE, *same)
    assert [(action, name) for action, name, _ in found] == [("recreate", "q"), ("recreate", "q"), ("rebuild", "w")]


def test_a_sink_in_risingwaves_sql_over_another_schema_does_not_differ_from_itself() -> None:
    world = tables_world(CONNECTION, "CREATE SCHEMA sales", SOURCE.replace("SOURCE s", "SOURCE sales.s"))
    world.dialect = "risingwave"
    text = (
        "CREATE SINK q AS SELECT id, id ^ 2 AS h FROM sales.s WITH (connector = 'kafka', topic = 'new', "
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    world.run(text)
    (sink,) = world.snapshot.all("sink")
    assert dialect_of(sink) == "risingwave"
    assert world.plan(text.replace("CREATE", "CREATE OR REPLACE")).operation is None
