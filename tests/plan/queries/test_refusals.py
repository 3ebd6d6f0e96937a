"""The errors of queries that Spark refuses, and of those that read nothing."""

from __future__ import annotations

import pytest

from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
from tests.plan.canned import CannedWorld, refused
from tests.plan.tables import create_table, tables_world

SPARK_SAYS = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter cannot be resolved"
ROUTINE = "[UNRESOLVED_ROUTINE] Cannot resolve routine"


def world_that_refuses(said: str) -> CannedWorld:
    """A world with the table ``orders`` whose Spark refuses every query in these words."""
    world = tables_world(create_table("id INT PRIMARY KEY, customer VARCHAR, amount INT", name="orders"))

    def analyze(_: AnalyzedQuery) -> QueryAnalysis:
        return QueryAnalysis(refusal=said, hint="Spark's hint")

    world.analyze = analyze
    return world


@pytest.mark.parametrize(
    ("query", "word", "message", "hint"),
    [
        ("SELECT custmer FROM orders", "custmer", 'column "custmer" does not exist', 'did you mean "customer"?'),
        (
            "SELECT id,\n  count(*) AS n FROM public.orders",
            "id",
            'column "id" is neither grouped by nor aggregated',
            "write GROUP BY id, or aggregate it: max(id)",
        ),
        ("SELECT o.amout FROM orders o", "amout", 'column "amout" does not exist in o', 'did you mean "amount"?'),
    ],
)
def test_the_error_stands_at_the_word(query: str, word: str, message: str, hint: str) -> None:
    statement = f"CREATE MATERIALIZED VIEW v AS\n  {query}"
    error = refused(world_that_refuses(SPARK_SAYS), statement)
    assert (error.code, error.message, error.hint) == ("RW215", message, hint)
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == word
    line = statement[: error.span.start].count("\n")
    assert (error.line, error.column) == (line + 1, error.span.start - statement[: error.span.start].rfind("\n"))


def test_a_query_of_risingwave_has_the_places_of_its_own_text() -> None:
    world = world_that_refuses(SPARK_SAYS)
    world.run("SET query_dialect = 'risingwave'")
    statement = "CREATE MATERIALIZED VIEW v AS SELECT id::varchar AS a, custmer FROM orders"
    error = refused(world, statement)
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == "custmer"


def test_sparks_words_stand_where_nothing_is_found() -> None:
    error = refused(
        world_that_refuses("no such thing"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders, lake.other"
    )
    assert (error.code, error.message, error.hint) == ("RW215", "no such thing", "Spark's hint")


def test_a_function_of_the_users_own_is_blamed_only_where_spark_blames_it() -> None:
    statement = "CREATE MATERIALIZED VIEW v AS SELECT my_own(id) AS a FROM orders"
    assert refused(world_that_refuses("not streamed"), statement).message == "not streamed"
    assert refused(world_that_refuses(ROUTINE), statement).message == 'function "my_own" does not exist'


def test_a_query_that_reads_nothing_points_at_a_name_like_one_there_is() -> None:
    statement = "CREATE MATERIALIZED VIEW v AS SELECT id FROM ordrs"
    error = refused(world_that_refuses(SPARK_SAYS), statement)
    assert error.message == (
        'the query of materialized view "v" reads no source, table or materialized view, and no Delta table'
    )
    assert error.hint == 'did you mean "orders"?'
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == "ordrs"
