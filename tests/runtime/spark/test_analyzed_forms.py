"""Spark's analysis of a view's query and of its forms: subqueries over streams, equal plans, and counts of sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyspark
import pytest

from rw_sql.model.relations import Relation, schema_columns
from rw_sql.plan.ports.queries import STREAM, UPSERT, WHOLE, AnalyzedQuery, QueryAnalysis
from rw_sql.runtime.spark.query_analysis import analyze
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.spark_jars import minor_of
from rw_sql.syntax.query.maintained_form import read_view_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RELATIONS = (
    Relation(name="r", columns=(("k", "BIGINT"), ("v", "DOUBLE"), ("kind", "STRING"))),
    Relation(name="t", columns=(("id", "BIGINT"),)),
)


@pytest.fixture(scope="module")
def sessions(spark: SparkSession) -> SparkSessions:
    return SparkSessions(spark)


def analyzed(sessions: SparkSessions, query: str, form: str, same_as: str = "") -> QueryAnalysis:
    return analyze(sessions, AnalyzedQuery(query=query, relations=RELATIONS, form=form, same_as=same_as))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM r WHERE v > (SELECT avg(v) FROM r)",
        "SELECT k FROM r WHERE k IN (SELECT id FROM t)",
        "SELECT k FROM r WHERE EXISTS (SELECT 1 FROM t WHERE id = k)",
        "SELECT k, (SELECT max(id) FROM t) AS m FROM r",
        "WITH x AS (SELECT k, v FROM r WHERE k IN (SELECT id FROM t)) SELECT v FROM x",
        "SELECT k FROM r WHERE v > (SELECT max(m) FROM (SELECT (SELECT max(id) FROM t) AS m))",
    ],
)
def test_a_stream_within_an_expression_is_refused(sessions: SparkSessions, query: str) -> None:
    refused = analyzed(sessions, query, STREAM)
    assert refused.refusal is not None
    assert "Streaming query is not allowed in subquery expressions" in refused.refusal
    assert analyzed(sessions, query, WHOLE).refusal is None
    aggregated = query.replace("SELECT k FROM r", "SELECT count(*) AS n FROM r")
    assert aggregated == query or analyzed(sessions, aggregated, UPSERT).refusal == refused.refusal


def test_a_subquery_over_constant_rows_is_a_stream(sessions: SparkSessions) -> None:
    found = analyzed(sessions, "SELECT k FROM r WHERE k IN (SELECT * FROM VALUES (1L), (2L))", STREAM)
    assert found.refusal is None


@pytest.mark.parametrize(
    ("query", "text", "is_same"),
    [
        ("WITH x AS (SELECT k, v FROM r) SELECT k FROM x", None, True),
        (
            "WITH x AS (SELECT k, v FROM r), y AS (SELECT k FROM x WHERE v > 1) SELECT k + 1 AS n FROM y AS z",
            None,
            True,
        ),
        ("WITH x AS (SELECT k FROM r) SELECT k, count(*) AS c FROM x GROUP BY k", None, True),
        ("SELECT k FROM (WITH x AS (SELECT k, v FROM r) SELECT k FROM x WHERE v > 1) AS y", None, True),
        (
            "WITH y AS (SELECT k, v FROM r), x AS (WITH y AS (SELECT k + 1 AS k FROM y) SELECT k FROM y) "
            "SELECT k, count(*) AS c FROM x GROUP BY k",
            None,
            True,
        ),
        (
            "WITH x AS (SELECT k FROM r) SELECT count(*) AS c FROM x TABLESAMPLE (10 PERCENT)",
            "SELECT count(*) AS c FROM (SELECT k FROM r) AS x",
            False,
        ),
        (
            "WITH x AS (SELECT k FROM r) SELECT count(*) AS n FROM (x JOIN t ON x.k = t.id)",
            "SELECT count(*) AS n FROM (SELECT k FROM r) AS x",
            False,
        ),
    ],
)
def test_a_query_with_inlined_with_queries_is_the_same(
    sessions: SparkSessions, query: str, text: str | None, is_same: bool
) -> None:
    found = analyzed(sessions, query, WHOLE, text or read_view_query(query).text)
    assert found.refusal is None
    assert found.is_same is is_same
    assert not any("CTE" in operator for operator in found.operators)


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        ("SELECT k, explode(collect_set(v)) AS x FROM r GROUP BY k", "Generate"),
        ("WITH g AS (SELECT k, collect_set(v) AS s FROM r GROUP BY k) SELECT k, explode(s) AS x FROM g", "Generate"),
        ("SELECT stack(2, min(v), max(v)) AS x FROM r", "Generate"),
        ("SELECT inline(collect_set(struct(k, v))) AS (a, b) FROM r GROUP BY kind", "Generate"),
        (
            "SELECT window(at, '10 minutes', '5 minutes').start AS t FROM "
            "(SELECT max(timestamp_seconds(v)) AS at FROM r GROUP BY k) AS x",
            "Expand",
        ),
        ("SELECT k AS K, round(avg(v), 1) AS m FROM r WHERE v > 1 GROUP BY k HAVING count(*) > 1", ""),
        ("SELECT k FROM (SELECT k, max(v) AS m FROM r GROUP BY k) AS x WHERE m > 1", ""),
        ("SELECT count(*) AS n FROM r GROUP BY window(timestamp_seconds(v), '10 minutes', '5 minutes')", ""),
        ("SELECT /*+ COALESCE(1) */ k, count(*) AS n FROM r GROUP BY k", "Repartition"),
        ("SELECT /*+ REPARTITION(2) */ k, count(*) AS n FROM r GROUP BY k HAVING n > 1", "Repartition"),
        ("SELECT /*+ REPARTITION(2, k) */ k, count(*) AS n FROM r GROUP BY k", "RepartitionByExpression"),
        ("SELECT /*+ REPARTITION_BY_RANGE(k) */ k, count(*) AS n FROM r GROUP BY k", "RepartitionByExpression"),
        ("SELECT /*+ REBALANCE */ k, count(*) AS n FROM r GROUP BY k", ""),
        ("SELECT kind, count(*) AS n FROM (SELECT explode(split(kind, ',')) AS kind FROM r) AS x GROUP BY kind", ""),
    ],
)
def test_the_steps_above_an_aggregation_show_whether_a_group_has_several_rows(
    sessions: SparkSessions, query: str, operator: str
) -> None:
    found = analyzed(sessions, query, WHOLE, read_view_query(query).text)
    assert found.refusal is None
    assert found.is_same
    assert found.operators - {"Project", "Filter", "SubqueryAlias", "View", "Aggregate"} == {operator} - {""}


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT r.addr.city, max(v) AS m FROM r GROUP BY city HAVING city > 'a'", ("city",)),
        ("SELECT (x.K) AS c, max(v) AS m FROM r AS x GROUP BY k HAVING m > 1", ("c",)),
        ("SELECT x.K, max(v) AS m FROM r AS x GROUP BY `k` HAVING m > 1", ("K",)),
        ("SELECT r.k, id, max(v) AS m FROM r JOIN t ON r.k = t.id GROUP BY r.k, t.id HAVING m > 1", ("k", "id")),
    ],
)
def test_a_selected_group_is_a_key_of_the_stream(sessions: SparkSessions, query: str, keys: tuple[str, ...]) -> None:
    relations = tuple(
        replace(relation, columns=(*relation.columns, ("addr", "STRUCT<city: STRING>")))
        if relation.name == "r"
        else relation
        for relation in RELATIONS
    )
    form = read_view_query(query).upserted({}, {each.name: [name for name, _ in each.columns] for each in relations})
    assert form is not None
    assert form.keys == keys
    found = analyze(sessions, AnalyzedQuery(query=form.text, relations=relations, form=UPSERT))
    if " JOIN " in query and minor_of(pyspark.__version__) in ("4.0", "4.1"):
        assert found.refusal is not None
        assert "join between two streaming" in found.refusal  # Spark 4.2 groups a join of two streams.
        return
    assert found.refusal is None
    assert {*keys} <= {name for name, _ in schema_columns(found.schema)}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT k, session_window(timestamp_seconds(v), '5 minutes') AS w FROM r",
        "SELECT DISTINCT w FROM (SELECT session_window(timestamp_seconds(v), '5 minutes') AS w FROM r) AS x",
        "SELECT k, session_window(timestamp_seconds(v), '5 minutes') AS w, count(*) AS n FROM r GROUP BY k, w",
    ],
)
def test_session_windows_are_no_keys_of_a_stream(sessions: SparkSessions, query: str) -> None:
    """Spark would also merge stored windows if their column had Spark's mark."""
    assert "sessionWindow" not in analyzed(sessions, query, WHOLE).schema
    assert analyzed(sessions, query, STREAM).refusal is not None
    start = query.replace("'5 minutes') AS w", "'5 minutes').start AS w")
    assert analyzed(sessions, start, STREAM).refusal is None


def test_the_text_of_a_schema_is_that_of_spark(sessions: SparkSessions, spark: SparkSession) -> None:
    query = "SELECT k, v AS w, array(kind) AS a FROM "
    values = "VALUES (CAST(NULL AS BIGINT), CAST(NULL AS DOUBLE), CAST(NULL AS STRING)) AS r(k, v, kind)"
    assert analyzed(sessions, query + "r", WHOLE).schema == spark.sql(query + values).schema.json()


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_a_set_counts_the_different_values_as_distinct_does(spark: SparkSession, kind: str) -> None:
    values = "VALUES ('NaN', 1), ('NaN', 1), ('0.0', 1), ('-0.0', 1), ('1.5', 2), (NULL, 1) AS t(v, b)"
    data = f"(SELECT CAST(v AS {kind}) AS v, b FROM {values} UNION ALL SELECT -CAST('NaN' AS {kind}), 1) AS t"
    counted = "count(DISTINCT v) AS n, count(DISTINCT v, b) AS m, count(DISTINCT v) FILTER (WHERE b = 1) AS o"
    query = f"SELECT {counted} FROM {data}"
    form = read_view_query(query).upserted({"v": kind, "b": "INT"})
    assert form is not None
    expected = spark.sql(query).collect()[0]
    assert tuple(expected) == (3, 3, 2)
    found = spark.sql(form.text).select("n", "m", "o").collect()[0]
    assert tuple(found) == tuple(expected)


def test_a_refused_type_of_a_column_is_known(sessions: SparkSessions) -> None:
    """An argument of an aggregate, unlike a column, may be of such a type."""
    interval = "TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-01'"
    found = analyzed(sessions, f"SELECT {interval} AS a0, named_struct('i', {interval}, 'v', v) AS a1 FROM r", WHOLE)
    assert found.refusal is not None
    assert schema_columns(found.schema) == (
        ("a0", "INTERVAL DAY TO SECOND"),
        ("a1", "STRUCT<`i`: INTERVAL DAY TO SECOND, `v`: DOUBLE>"),
    )
