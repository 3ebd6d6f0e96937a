"""The errors of queries that Spark refuses, and of queries without inputs."""

from __future__ import annotations

import pytest

from rw_sql.errors import SPARK_ERROR, UNDEFINED_COLUMN, UNDEFINED_OBJECT
from rw_sql.plan.offline.query_answers import schema_json
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
from rw_sql.plan.ports.tables import TableLook
from tests.plan.canned import CannedWorld, refused
from tests.plan.tables import create_table, tables_world

ORDERS = create_table("id INT PRIMARY KEY, customer VARCHAR, amount INT", name="orders")
NO_COLUMN = QueryAnalysis(refusal='column "x" does not exist', hint="Spark's hint", kind=UNDEFINED_COLUMN)
NO_FUNCTION = QueryAnalysis(refusal='function "my_own" does not exist', hint="Spark's hint", kind=UNDEFINED_OBJECT)
NOT_KEPT = QueryAnalysis(refusal="not streamed", hint="Spark's hint")


def world_that_refuses(refusal: QueryAnalysis) -> CannedWorld:
    """A world with the table ``orders``, in which Spark refuses every query with this result."""
    world = tables_world(ORDERS)

    def analyze(_: AnalyzedQuery) -> QueryAnalysis:
        return refusal

    world.analyze = analyze
    return world


@pytest.mark.parametrize(
    ("query", "word", "code", "message", "hint"),
    [
        (
            "SELECT custmer FROM orders",
            "custmer",
            "RW205",
            'column "custmer" does not exist',
            'did you mean "customer"?',
        ),
        (
            "SELECT id,\n  count(*) AS n FROM public.orders",
            "id",
            "RW215",
            'column "id" is neither in GROUP BY nor aggregated',
            "write GROUP BY id, or aggregate it: max(id)",
        ),
        (
            "SELECT o.amout FROM orders o",
            "amout",
            "RW205",
            'column "amout" does not exist in o',
            'did you mean "amount"?',
        ),
    ],
)
def test_the_error_stands_at_the_word(query: str, word: str, code: str, message: str, hint: str) -> None:
    statement = f"CREATE MATERIALIZED VIEW v AS\n  {query}"
    error = refused(world_that_refuses(NO_COLUMN), statement)
    assert (error.code, error.message, error.hint) == (code, message, hint)
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == word
    line = statement[: error.span.start].count("\n")
    assert (error.line, error.column) == (line + 1, error.span.start - statement[: error.span.start].rfind("\n"))


def test_a_query_of_risingwave_has_the_places_of_its_own_text() -> None:
    world = world_that_refuses(NO_COLUMN)
    world.run("SET query_dialect = 'risingwave'")
    statement = "CREATE MATERIALIZED VIEW v AS SELECT id::bigint AS a, custmer FROM orders"
    error = refused(world, statement)
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == "custmer"


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT 'id + customer' AS a, id + customer AS b FROM orders, lake.other", "id + customer"),
        ("SELECT id + customer, id + customer AS b FROM orders, lake.other", None),
        ("SELECT `id` + customer AS b FROM orders, lake.other", None),
    ],
)
def test_sparks_words_stand_where_nothing_is_found(query: str, word: str | None) -> None:
    mismatch = QueryAnalysis(refusal="types differ [DATATYPE_MISMATCH]", kind=SPARK_ERROR, word="id + customer")
    error = refused(world_that_refuses(mismatch), f"CREATE MATERIALIZED VIEW v AS {query}")
    assert (error.code, error.message) == ("RW215", "types differ [DATATYPE_MISMATCH]")
    assert error.span is not None
    at = len("CREATE MATERIALIZED VIEW v AS ")
    start = query.rindex(word) if word is not None else 0
    assert (error.span.start, error.span.end) == (at + start, at + start + len(word or query))


def test_a_function_of_the_users_own_is_blamed_only_where_spark_blames_it() -> None:
    statement = "CREATE MATERIALIZED VIEW v AS SELECT my_own(id) AS a FROM orders"
    assert refused(world_that_refuses(NOT_KEPT), statement).message == "not streamed"
    error = refused(world_that_refuses(NO_FUNCTION), statement)
    assert (error.code, error.message) == ("RW203", 'function "my_own" does not exist')


@pytest.mark.parametrize("written", ["ordrs", "public.ordrs", "ORDRS"])
def test_a_relation_that_is_missing_is_named(written: str) -> None:
    world = world_that_refuses(NO_COLUMN)
    world.tables[written] = TableLook(is_missing=True)
    statement = f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {written}"
    error = refused(world, statement)
    assert (error.code, error.message) == ("RW203", f'relation "{written}" does not exist')
    assert error.hint == 'did you mean "orders"?'
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == written.rpartition(".")[2]


def test_a_relation_that_is_missing_beside_one_that_is_not() -> None:
    missing = QueryAnalysis(refusal="…", kind=UNDEFINED_OBJECT, relation="spark_catalog.default.Ordrs")
    statement = "CREATE MATERIALIZED VIEW v AS SELECT o.id FROM orders AS o JOIN ordrs AS p ON o.id = my_own(p.id)"
    error = refused(world_that_refuses(missing), statement)
    assert (error.code, error.message, error.hint) == (
        "RW203",
        'relation "ordrs" does not exist',
        'did you mean "orders"?',
    )


def test_a_query_over_what_is_no_delta_table() -> None:
    error = refused(world_that_refuses(NO_COLUMN), "CREATE MATERIALIZED VIEW v AS SELECT id FROM some_csv")
    assert (error.code, error.message) == (
        "RW215",
        'the query of materialized view "v" reads no source, table or materialized view, and no Delta table',
    )


@pytest.mark.parametrize(
    ("query", "word", "message", "hint"),
    [
        (
            "SELECT sum(amount) FROM orders",
            "sum(amount)",
            'column "sum(amount)" needs a name',
            "name the column: sum(amount) AS sum_amount",
        ),
        (
            "SELECT id, customer, ID FROM orders",
            "ID",
            'column "ID" occurs more than once',
            "give one of the two another name: ID AS id_2",
        ),
    ],
)
def test_columns_that_a_table_cannot_store(query: str, word: str, message: str, hint: str) -> None:
    names = [
        column.partition(" ")[0] for column in query.removeprefix("SELECT ").removesuffix(" FROM orders").split(", ")
    ]
    schema = QueryAnalysis(schema=schema_json((name, "int") for name in names))
    world = world_that_refuses(schema)
    statement = f"CREATE MATERIALIZED VIEW v AS {query}"
    error = refused(world, statement)
    assert (error.message, error.hint) == (message, hint)
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == word
    checked = ScriptChecker().check(f"{ORDERS};\n{statement}", "x")
    assert [(found.code, found.message, found.hint) for part in checked for found in part.errors] == [
        (error.code, message, hint)
    ]


_EXPLODED = "write FROM a_relation LATERAL VIEW explode(an_array) exploded AS a_value"


@pytest.mark.parametrize(
    ("written", "word", "hint"),
    [
        (
            "TUMBLE(orders, at, INTERVAL '1 minute')",
            "TUMBLE",
            "write GROUP BY window(a_column, '1 minute'), or SET query_dialect = 'risingwave'",
        ),
        (
            "hop(orders, at, INTERVAL '1 minute', INTERVAL '2 minutes')",
            "hop",
            "write GROUP BY window(a_column, '1 minute'), or SET query_dialect = 'risingwave'",
        ),
        ("orders, unnest(items) AS x", "unnest", _EXPLODED),
        ("orders AS o CROSS JOIN UNNEST(o.items) AS x", "UNNEST", _EXPLODED),
    ],
)
def test_relations_of_risingwave_in_the_sql_of_spark(written: str, word: str, hint: str) -> None:
    statement = f"CREATE MATERIALIZED VIEW v AS SELECT 1 AS one FROM {written}"
    error = refused(world_that_refuses(NO_COLUMN), statement)
    assert (error.code, error.message, error.hint) == (
        "RW203",
        f'function "{word if word.lower() != "unnest" else "unnest"}" in FROM does not exist',
        hint,
    )
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == word
