"""The forms with which views are maintained: their keys, and the queries that find the affected rows."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlglot import exp, parse_one

from rw_sql.metastore.records import CHANGES, DIFF, KEYS, UPSERT, Maintenance, MaterializedViewRecord
from rw_sql.plan.ports.queries import WHOLE, AnalyzedQuery, QueryAnalysis
from rw_sql.plan.queries.maintenance import Maintained, decide
from rw_sql.syntax.query.maintained_form import ROW

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.model.relations import Relation

CUSTOMER = {"type": "struct", "fields": [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in "id"]}


def schema(**kinds: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


def view(number: int, name: str, keys: tuple[str, ...], hidden: str = "", **kinds: Any) -> MaterializedViewRecord:
    return MaterializedViewRecord(
        id=number,
        name=name,
        definition=f"CREATE MATERIALIZED VIEW {name} AS SELECT 1",
        query="SELECT 1",
        inputs=(),
        schema=schema(**kinds),
        keys=keys,
        maintenance=Maintenance(hidden=hidden),
    )


def columns(select: exp.Expr, relations: tuple[Relation, ...]) -> dict[str, Any]:
    """The columns of a query over a single relation or a subquery, with their types: BIGINT, except for columns."""
    select = select.this if isinstance(select, exp.Union) else select
    read = select.args["from_"].this
    if isinstance(read, exp.Subquery):
        given = columns(read.this, relations)
    else:
        given = {name: kind for relation in relations if relation.name == read.name for name, kind in relation.columns}
    found: dict[str, Any] = {}
    for item in select.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if item.is_star and not (isinstance(item, exp.Column) and item.table in given):
            star = item if isinstance(item, exp.Star) else item.this
            left_out = {part.name for part in star.args.get("except_") or ()}
            found |= {name: kind for name, kind in given.items() if name not in left_out}
        elif item.is_star:
            found["id"] = "BIGINT"
        else:
            found[item.alias_or_name] = given.get(inner.name, "BIGINT") if isinstance(inner, exp.Column) else "BIGINT"
    return found


def analyzed(request: AnalyzedQuery) -> QueryAnalysis:
    """As Spark would, for the queries of this module."""
    words = {"BIGINT": "long", "STRING": "string", "DOUBLE": "double", "INT": "integer"}
    found = columns(parse_one(request.query, read="spark"), request.relations)
    kinds = {name: words.get(kind, CUSTOMER) for name, kind in found.items()}
    return QueryAnalysis(schema=schema(**kinds), operators=frozenset({"Project", "Filter"}))


def decided(
    query: str, *inputs: MaterializedViewRecord, analyze: Callable[[AnalyzedQuery], QueryAnalysis] = analyzed
) -> Maintained:
    def ask(query: str, relations: tuple[Relation, ...], **more: Any) -> QueryAnalysis:
        return analyze(AnalyzedQuery(query=query, relations=relations, **more))

    inspector = SimpleNamespace(queries=SimpleNamespace(analyze=ask))
    found = decide(cast("Any", inspector), query, inputs, closes_windows=False)
    assert found.refused is None
    return found


ORDERS = view(1, "orders", ("id",), id="long", customer=CUSTOMER, total="long")


@pytest.mark.parametrize(
    ("query", "strategy", "keys"),
    [
        ("SELECT * FROM orders", CHANGES, ("id",)),
        ("SELECT customer.* FROM orders", CHANGES, ("_rw_key_0",)),
        ("WITH o AS (SELECT id, customer FROM orders) SELECT customer.id FROM o", CHANGES, ("_rw_key_0",)),
        ("SELECT * EXCEPT (id) FROM (SELECT * FROM orders) AS o", CHANGES, ("_rw_key_0",)),
        ("SELECT o.id, o.total FROM (SELECT * FROM orders) AS o", CHANGES, ("id",)),
        ("SELECT to_json(struct(*)) AS j FROM orders", CHANGES, ("_rw_key_0",)),
        ("SELECT total, count(* EXCEPT (id)) AS n FROM orders GROUP BY total", KEYS, ("total",)),
    ],
)
def test_a_view_over_changing_rows_has_their_keys(query: str, strategy: str, keys: tuple[str, ...]) -> None:
    found = decided(query, ORDERS)
    assert (found.maintenance.strategy, found.keys) == (strategy, keys)


def test_a_form_without_its_keys_is_not_used() -> None:
    """A guard for forms whose keys are wrong: the key columns must be among the columns that Spark finds."""

    def without_keys(request: AnalyzedQuery) -> QueryAnalysis:
        found = analyzed(request)
        return QueryAnalysis(schema=found.schema.replace("_rw_key_0", "_rw_key_1"), operators=found.operators)

    found = decided("SELECT total FROM orders", ORDERS, analyze=without_keys)
    assert (found.maintenance.strategy, found.keys) == (DIFF, (ROW,))


@pytest.mark.parametrize(
    ("hidden", "keys", "own"),
    [
        (schema(_rw_part_0="double", _rw_part_1="long"), ("k",), ("k",)),
        (schema(_rw_key_0="long", _rw_part_0="long"), ("_rw_key_0",), ("_rw_key_0",)),
        (schema(_rw_row="string"), (ROW,), ("_rw_key_0",)),
    ],
)
def test_all_columns_of_a_view_with_hidden_columns_follow_its_changes(
    hidden: str, keys: tuple[str, ...], own: tuple[str, ...]
) -> None:
    means = view(1, "means", keys, hidden, k="long", a="double")
    found = decided("SELECT * FROM means WHERE a > 3", means)
    assert (found.maintenance.strategy, found.keys) == (CHANGES, own)
    assert [field["name"] for field in json.loads(found.schema)["fields"]] == ["k", "a"]
    hidden_names = [field["name"] for field in json.loads(found.maintenance.hidden or schema())["fields"]]
    assert hidden_names == [name for name in own if name != "k"]


@pytest.mark.parametrize(
    ("left", "right", "strategy"),
    [
        ("long", "string", DIFF),
        ("date", "string", DIFF),
        ("long", "long", KEYS),
        ("string", "string", KEYS),
        ("integer", "long", KEYS),
        ("integer", "double", KEYS),
        ("date", "timestamp", KEYS),
        ("long", "decimal(10,2)", KEYS),
    ],
)
def test_a_join_of_unlike_columns_is_compared_as_a_whole(left: str, right: str, strategy: str) -> None:
    """The values of both sides are united, and a UNION ALL of a number and a string converts the string to a number,
    even in rows that the view's own WHERE leaves out."""

    def typed(request: AnalyzedQuery) -> QueryAnalysis:
        found = analyzed(request)
        if request.query.startswith("SELECT o.id AS a0, p.ref AS a1 FROM o CROSS JOIN p"):
            return QueryAnalysis(schema=schema(a0=left, a1=right))
        return found

    def not_united(request: AnalyzedQuery) -> QueryAnalysis:
        return QueryAnalysis(refusal="no") if "UNION ALL" in request.query else typed(request)

    inputs = (view(1, "o", ("id",), id=left), view(2, "p", ("ref",), ref=right, note="string"))
    found = decided("SELECT o.id, p.note FROM o JOIN p ON o.id = p.ref WHERE p.kind = 'order'", *inputs, analyze=typed)
    assert found.maintenance.strategy == strategy


@pytest.mark.parametrize(("keys", "hidden"), [((ROW,), ROW), (("_rw_key_0",), "_rw_key_0")])
def test_a_value_with_all_columns_of_a_view_with_hidden_keys_is_compared_as_a_whole(
    keys: tuple[str, ...], hidden: str
) -> None:
    found = decided("SELECT to_json(struct(*)) AS j FROM v", view(1, "v", keys, schema(**{hidden: "string"}), a="long"))
    assert found.maintenance.strategy == DIFF
    assert found.maintenance.reason.startswith("it has a * within an expression, so the whole result")


@pytest.mark.parametrize("answer", [QueryAnalysis(refusal="no"), QueryAnalysis(schema=schema(x="double"), keys=("x",))])
def test_a_distinct_whose_rows_are_not_a_stream_is_compared_as_a_whole(answer: QueryAnalysis) -> None:
    """Without DISTINCT, ``explode`` still returns rows, but a PIVOT aggregates."""

    def no_stream(request: AnalyzedQuery) -> QueryAnalysis:
        return answer if request.query == "SELECT x FROM v" and request.form != WHOLE else analyzed(request)

    v = view(1, "v", ("x",), x="double")
    assert decided("SELECT DISTINCT x FROM v", v, analyze=no_stream).maintenance.strategy == DIFF
    assert decided("SELECT DISTINCT x FROM v", v).maintenance.strategy == KEYS


def test_the_argument_of_a_count_of_distinct_values_is_analyzed_for_its_type() -> None:
    r = view(1, "r", (), x="double", k="long")
    asked: list[str] = []

    def streamed(request: AnalyzedQuery) -> QueryAnalysis:
        asked.append(request.query)
        if request.form == "stream":
            return QueryAnalysis(refusal="not streamed")
        return analyzed(request)

    found = decided("SELECT count(DISTINCT x) AS n FROM r", r, analyze=streamed)
    assert found.maintenance.strategy == UPSERT
    assert "SELECT x AS a0 FROM r" in asked
    assert "collect_set(CASE WHEN (x) = 0 THEN '0' ELSE CAST((x) AS STRING) END)" in found.maintenance.query


def test_the_argument_of_a_count_of_distinct_values_may_be_of_a_type_that_a_table_cannot_store() -> None:
    r = view(1, "r", (), started="timestamp", ended="timestamp")

    def unstorable(request: AnalyzedQuery) -> QueryAnalysis:
        if request.query == "SELECT ended - started AS a0 FROM r":
            return QueryAnalysis(refusal="of type interval", schema=schema(a0="interval day to second"))
        return QueryAnalysis(refusal="not streamed") if request.form == "stream" else analyzed(request)

    found = decided("SELECT count(DISTINCT ended - started) AS n FROM r", r, analyze=unstorable)
    assert found.maintenance.strategy == UPSERT
    assert "collect_set(ended - started)" in found.maintenance.query


@pytest.mark.parametrize("operator", ["Generate", "Expand", "Window"])
@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        ("SELECT total, explode(collect_set(id)) AS id FROM orders GROUP BY total", KEYS),
        ("SELECT total, item FROM (SELECT total, max(id) AS item FROM orders GROUP BY total)", KEYS),
        ("SELECT explode(array(count(total), sum(total))) AS n FROM orders", UPSERT),
    ],
)
def test_several_rows_of_one_group_are_compared_as_a_whole(query: str, strategy: str, operator: str) -> None:
    """A key of the group would identify several rows."""

    def multiplied(request: AnalyzedQuery) -> QueryAnalysis:
        return replace(analyzed(request), operators=frozenset({"Project", operator, "Aggregate"}))

    found = decided(query, ORDERS, analyze=multiplied)
    assert (found.maintenance.strategy, found.keys) == (DIFF, (ROW,))
    assert found.maintenance.reason.startswith("it produces several rows from one group, so the whole result")
    one = decided(query, ORDERS, analyze=lambda request: replace(analyzed(request), operators=frozenset({"Aggregate"})))
    assert one.maintenance.strategy != DIFF


@pytest.mark.parametrize("operator", ["Repartition", "RepartitionByExpression", "RebalancePartitions"])
@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        ("SELECT /*+ COALESCE(1) */ total, max(id) AS m FROM orders GROUP BY total", KEYS),
        ("SELECT m FROM (SELECT /*+ REPARTITION(2) */ total, max(id) AS m FROM orders GROUP BY total)", KEYS),
        ("SELECT /*+ REBALANCE */ max(total) AS n FROM orders", DIFF),
    ],
)
def test_a_hint_that_moves_rows_keeps_the_strategy_of_the_groups(query: str, strategy: str, operator: str) -> None:

    def hinted(request: AnalyzedQuery) -> QueryAnalysis:
        return replace(analyzed(request), operators=frozenset({"Project", operator, "Aggregate"}))

    one = decided(query, ORDERS, analyze=lambda request: replace(analyzed(request), operators=frozenset({"Aggregate"})))
    assert decided(query, ORDERS, analyze=hinted) == one
    assert one.maintenance.strategy == strategy


@pytest.mark.parametrize(
    "query",
    [
        "SELECT total, session_window(at, '5 minutes') AS w, max(id) AS m FROM v GROUP BY total, w",
        "SELECT DISTINCT total, session_window(at, '5 minutes') AS w FROM v",
    ],
)
def test_session_windows_are_compared_as_a_whole(query: str) -> None:

    def with_structs(request: AnalyzedQuery) -> QueryAnalysis:
        found = analyzed(request)
        fields = json.loads(found.schema)["fields"]
        kinds = {field["name"]: CUSTOMER if field["name"] == "w" else field["type"] for field in fields}
        return replace(found, schema=schema(**kinds))

    found = decided(query, view(1, "v", ("id",), id="long", total="long", at="timestamp"), analyze=with_structs)
    assert (found.maintenance.strategy, found.keys) == (DIFF, (ROW,))
    assert found.maintenance.reason.startswith("it groups by session windows, which a changed row may join or split")


def test_groups_whose_values_cannot_be_compared_with_those_of_changed_rows_are_not_recomputed_alone() -> None:
    """A guard for queries of the affected rows that return values of another type than the view's key columns."""

    def as_text(request: AnalyzedQuery) -> QueryAnalysis:
        found = analyzed(request)
        is_touched = request.query == "SELECT total AS total FROM orders"
        return QueryAnalysis(schema=found.schema.replace("long", "string") if is_touched else found.schema)

    query = "SELECT total, max(id) AS m FROM orders GROUP BY total"
    assert decided(query, ORDERS).maintenance.strategy == KEYS
    assert decided(query, ORDERS, analyze=as_text).maintenance.strategy == DIFF
