"""Views are not keyed by maps or by strings with a collation, whose values their jobs could not compare."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rw_sql.metastore.records import DIFF, KEYS, DeltaTableRecord, Maintenance, MaterializedViewRecord, ObjectRecord
from rw_sql.plan.ports.queries import QueryAnalysis
from rw_sql.plan.queries.key_types import collated_input, unfit_key
from rw_sql.plan.queries.maintenance import Maintained, decide
from rw_sql.syntax.query.maintained_form import ROW
from tests.plan.canned import HERE, refused
from tests.plan.tables import tables_world

MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
COLLATED = {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}


def field(name: str, kind: Any, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def view(name: str, keys: tuple[str, ...], *fields: dict[str, Any], hidden: str = "") -> MaterializedViewRecord:
    return MaterializedViewRecord(
        id=1,
        name=name,
        definition=f"CREATE MATERIALIZED VIEW {name} AS SELECT 1",
        query="SELECT 1",
        inputs=(),
        schema=schema(*fields),
        keys=keys,
        maintenance=Maintenance(hidden=hidden),
    )


def decided(query: str, found: QueryAnalysis, *inputs: ObjectRecord) -> Maintained:
    """The decision if Spark's analysis has this result for the query and its forms, and the result without the last
    column for the query of the groups of changed rows."""
    *keys, _ = json.loads(found.schema)["fields"]

    def analyze(text: str, *_: Any, **__: Any) -> QueryAnalysis:
        return found if "max(" in text.lower() else replace(found, schema=schema(*keys))

    inspector = SimpleNamespace(queries=SimpleNamespace(analyze=analyze))
    return decide(cast("Any", inspector), query, inputs, closes_windows=False)


@pytest.mark.parametrize(
    "kind",
    [
        MAP,
        {"type": "array", "elementType": MAP, "containsNull": True},
        {"type": "struct", "fields": [field("inner", MAP)]},
    ],
)
def test_groups_by_a_map_over_a_view_are_computed_as_a_whole(kind: Any) -> None:
    query = "SELECT labels, max(n) AS m FROM v GROUP BY labels"
    replaced = view("v", ("id",), field("id", "long"), field("labels", kind), field("n", "long"))
    appended = view("v", (), field("id", "long"), field("labels", kind), field("n", "long"))
    found = QueryAnalysis(schema=schema(field("labels", kind), field("m", "long")), keys=("labels",))
    for record in (replaced, appended):
        made = decided(query, found, record)
        assert made.refused is None
        assert (made.maintenance.strategy, made.keys) == (DIFF, (ROW,))
        assert made.maintenance.reason.startswith('column "labels" contains a map')


def test_groups_by_a_scalar_over_a_view_are_computed_one_by_one() -> None:
    record = view("v", ("id",), field("id", "long"), field("labels", "string"), field("n", "long"))
    found = QueryAnalysis(schema=schema(field("labels", "string"), field("m", "long")))
    made = decided("SELECT labels, max(n) AS m FROM v GROUP BY labels", found, record)
    assert (made.maintenance.strategy, made.keys) == (KEYS, ("labels",))


@pytest.mark.parametrize(
    "query", ["SELECT labels, max_by(n, n) AS m FROM s GROUP BY labels", "SELECT DISTINCT labels FROM s"]
)
def test_groups_by_a_map_over_a_source_are_refused(query: str) -> None:
    world = tables_world(
        "CREATE SOURCE s (labels MAP(VARCHAR, VARCHAR), n INT) WITH (connector = 'kafka', topic = 'old', "
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    world.analyze = lambda _: QueryAnalysis(schema=schema(field("labels", MAP), field("m", "long")), keys=("labels",))
    error = refused(world, f"CREATE MATERIALIZED VIEW v AS {query}")
    assert error.message == (
        'column "labels" contains a map, and a map cannot identify a row, because maps cannot be compared'
    )
    assert error.hint == "group by array_sort(map_entries(a_map)) in place of the map"


def test_a_hidden_key_has_no_name_in_the_message() -> None:
    found = unfit_key(("_rw_key_0",), schema(field("n", "long")), schema(field("_rw_key_0", MAP)))
    assert found is not None
    assert (found.refusal or "").startswith("a grouping expression that is not selected contains a map")
    assert unfit_key(("n",), schema(field("n", "long"), field("labels", MAP)), "") is None


def test_a_string_with_a_collation_is_no_key() -> None:
    found = unfit_key(("name",), schema(field("name", "string", COLLATED)))
    assert found is not None
    assert (found.refusal or "").startswith('column "name" has a collation')


def test_the_columns_of_an_input_that_have_a_collation_are_refused_if_a_query_may_use_them() -> None:
    names = view("names", (), field("id", "long"), field("name", "string", COLLATED))
    table = DeltaTableRecord(id=2, name="t", written="db.t", path="p", schema=names.schema)
    for record, named in ((names, 'materialized view "names"'), (table, "delta table db.t")):
        for query in ("SELECT name, count(*) AS n FROM x GROUP BY name", "SELECT * FROM x"):
            made = decided(query, QueryAnalysis(schema=schema(field("name", "string"))), record)
            assert made.refused is not None
            assert (made.refused.refusal or "").startswith(f'column "name" of {named} has a collation')
        assert collated_input("SELECT id, count(*) AS n FROM x GROUP BY id", (record,)) is None
    keyed = view("keyed", ("_rw_key_0",), field("id", "long"), hidden=schema(field("_rw_key_0", "string", COLLATED)))
    assert collated_input("SELECT id FROM keyed", (keyed,)) is not None
