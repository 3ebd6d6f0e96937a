"""The statements that turn one definition into another, and the differences that do not count."""

from __future__ import annotations

import pytest

from rw_sql.plan.statements.replace.least_change import LeastChange, least_change
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import CreateConnection

SINK = "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = 'a:1')"
CONNECTION = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'a:1')"
KAFKA = "connector = 'kafka', topic = 'orders', properties.bootstrap.server = 'a:9092'"
PLAIN = "FORMAT PLAIN ENCODE JSON"


def change(current: str, wanted: str, *connections: str) -> LeastChange:
    known = {}
    for text in connections:
        made = parse_statement(text)
        assert isinstance(made, CreateConnection)
        known[made.name.last] = made
    return least_change(parse_statement(current), parse_statement(wanted), known)  # type: ignore[arg-type]


def statements(current: str, wanted: str, *connections: str) -> list[str]:
    found = change(current, wanted, *connections)
    assert not found.refusal
    return [" ".join(render(statement).split()) for statement in found.statements]


def source(options: str, columns: str = "id INT, name VARCHAR", tail: str = PLAIN) -> str:
    return f"CREATE SOURCE s ({columns}) WITH ({options}) {tail}"


def table(columns: str, options: str = KAFKA, after: str = "") -> str:
    return f"CREATE TABLE t ({columns}) {after} WITH ({options}) {PLAIN}"


def view(query: str, options: str = "") -> str:
    return f"CREATE MATERIALIZED VIEW v {options} AS {query}"


@pytest.mark.parametrize(
    ("current", "wanted"),
    [
        (source(KAFKA), source("properties.bootstrap.server = 'a:9092', topic = 'orders', connector = 'KAFKA'")),
        (
            source(KAFKA),
            "create source s (id integer, name character varying) with (" + KAFKA + ") format plain encode json",
        ),
        (source(KAFKA), source(KAFKA + ", paused = true")),
        (source(KAFKA), source(KAFKA + ", scan.startup.mode = 'earliest'")),
        (source(KAFKA + ", source_rate_limit = 10"), source(KAFKA + ", source_rate_limit = '10'")),
        (source(KAFKA), source(KAFKA + ", shared = true")),
        (table("id INT PRIMARY KEY, name VARCHAR"), table("id INT, name VARCHAR, PRIMARY KEY (id)")),
        (table("id INT, name VARCHAR FROM name"), table("id INT, name VARCHAR")),
        (
            view("SELECT id, count(*) AS n FROM s GROUP BY id"),
            view("select id,\n  COUNT(*) n -- all\nfrom public.s group by id"),
        ),
        (view("SELECT old.id FROM s AS old"), view("SELECT s.id FROM s")),
        (
            source(KAFKA, "id INT, at TIMESTAMP, twice INT AS id*2, WATERMARK FOR at AS at - INTERVAL '5' SECOND"),
            source(KAFKA, "id INT, at TIMESTAMP, twice INT AS id * 2, WATERMARK FOR at AS at - interval '5' second"),
        ),
        (
            table("id INT, upper VARCHAR AS upper(concat('a','b')), n INT DEFAULT 1+1"),
            table("id INT, upper VARCHAR AS UPPER( CONCAT('a', 'b') ), n INT DEFAULT 1 + 1"),
        ),
        (
            "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'a:1')",
            "CREATE OR REPLACE CONNECTION c WITH (properties.bootstrap.server = 'a:1', type = 'KAFKA')",
        ),
        (
            f"{SINK[:-1]}, snapshot = 'false') {PLAIN}",
            f"{SINK} {PLAIN}",
        ),
    ],
)
def test_what_is_no_change(current: str, wanted: str) -> None:
    assert change(current, wanted).is_empty
    assert change(wanted, current).is_empty


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        (
            source(KAFKA),
            source(KAFKA.replace("orders", "orders_v2")),
            ["ALTER SOURCE s UNSAFE SET (topic = 'orders_v2')"],
        ),
        (
            source(KAFKA + ", properties.client.id = 'x', group.id.prefix = 'g'"),
            source(KAFKA.replace("a:9092", "b:9092") + ", properties.client.id = 'y'"),
            [
                "ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = 'b:9092', properties.client.id = 'y'), "
                "UNSET (group.id.prefix)"
            ],
        ),
        (
            source(KAFKA + ", properties.client.id = 'x'"),
            source(KAFKA + ", properties.client.id = 'y'"),
            ["ALTER SOURCE s CONNECTOR WITH (properties.client.id = 'y')"],
        ),
        (
            source(KAFKA + ", source_rate_limit = 10, properties.client.id = 'x'"),
            source(KAFKA + ", properties.client.id = 'y'"),
            [
                "ALTER SOURCE s CONNECTOR WITH (properties.client.id = 'y')",
                "ALTER SOURCE s SET SOURCE_RATE_LIMIT = DEFAULT",
            ],
        ),
        (
            table("id INT"),
            table("id INT, n BIGINT, m INT"),
            ["ALTER TABLE t ADD COLUMN n BIGINT", "ALTER TABLE t ADD COLUMN m INT"],
        ),
        (table("id INT, sum INT"), table("id INT, total INT FROM sum"), ["ALTER TABLE t RENAME COLUMN sum TO total"]),
        (table("id INT, sum INT"), table("id INT"), ["ALTER TABLE t DROP COLUMN sum"]),
        (
            view("SELECT id FROM s"),
            view("SELECT id FROM s", "WITH (backfill_rate_limit = 5)"),
            ["ALTER MATERIALIZED VIEW v SET BACKFILL_RATE_LIMIT = 5"],
        ),
        (
            f"{CONNECTION[:-1]}, properties.client.id = 'x')",
            "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'b:1')",
            ["ALTER CONNECTION c SET (properties.bootstrap.server = 'b:1'), DROP (properties.client.id)"],
        ),
    ],
)
def test_the_least_change(current: str, wanted: str, expected: list[str]) -> None:
    assert statements(current, wanted) == expected


def test_a_connection_in_the_place_of_properties_and_back() -> None:
    connection = "CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = 'a:9092')"
    own, through = source(KAFKA), source("connector = 'kafka', connection = c, topic = 'orders'")
    assert statements(own, through, connection) == ["ALTER SOURCE s SET CONNECTION c"]
    assert statements(through, own, connection) == ["ALTER SOURCE s SET CONNECTION NONE"]
    elsewhere = source(KAFKA.replace("a:9092", "b:9092"))
    assert statements(through, elsewhere, connection) == [
        "ALTER SOURCE s SET CONNECTION NONE",
        "ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = 'b:9092')",
    ]


@pytest.mark.parametrize(
    ("current", "wanted", "said"),
    [
        (source(KAFKA), source("connector = 'datagen'", tail=""), "its connector is kafka, not datagen"),
        (source(KAFKA), source(KAFKA, "id INT"), "the columns of a source cannot change"),
        (
            source(KAFKA),
            source(KAFKA, tail="FORMAT PLAIN ENCODE CSV (delimiter = ',', without_header = true)"),
            "FORMAT cannot change",
        ),
        (source(KAFKA), source(KAFKA + ", shared = false"), "shared cannot change"),
        (table("id INT, n INT"), table("n INT, id INT"), "columns are in another order"),
        (table("id INT"), table("id BIGINT"), "column id is INT in the table, but BIGINT in the new definition"),
        (table("id INT"), table("id INT, n INT NOT NULL"), "column n is new and NOT NULL"),
        (table("id INT"), table("id INT PRIMARY KEY"), "PRIMARY KEY cannot change"),
        (
            table("id INT, n INT DEFAULT 1+1"),
            table("id INT, n INT DEFAULT 1+2"),
            "is INT DEFAULT 1+1 in the table, but INT DEFAULT",
        ),
        (source(KAFKA, "id INT, n INT AS id*2"), source(KAFKA, "id INT, n INT AS id*3"), "columns of a source cannot"),
        (
            table("id INT PRIMARY KEY"),
            table("id INT PRIMARY KEY", after="ON CONFLICT DO NOTHING"),
            "ON CONFLICT cannot change",
        ),
        (view("SELECT id FROM s"), view("SELECT id + 1 AS id FROM s"), "its query cannot change"),
        (
            view("SELECT id FROM s"),
            view("SELECT id FROM s", "WITH (scan.startup.mode = 'latest')"),
            "its startup or parallelism option cannot change in place",
        ),
    ],
)
def test_what_cannot_change_in_place(current: str, wanted: str, said: str) -> None:
    found = change(current, wanted)
    assert said in found.refusal
    assert found.needs_rebuild == current.startswith("CREATE MATERIALIZED VIEW")


@pytest.mark.parametrize(
    ("options", "generated"),
    [
        ("connector = 'mqtt', url = 'tcp://b:1883', topic = 'a'", "client_id = 'rw_sql_1'"),
        ("connector = 'pulsar', service.url = 'pulsar://b:6650', topic = 'a'", "subscription.name = 'rw-consumer-1'"),
    ],
)
def test_a_name_that_was_generated_is_no_change(options: str, generated: str) -> None:
    for define in (source, lambda given: table("id INT", given)):
        assert change(define(f"{options}, {generated}"), define(options)).is_empty


@pytest.mark.parametrize(
    ("current", "wanted", "dialects", "is_same"),
    [
        (view('SELECT "id" AS x FROM s'), view('SELECT "id" AS x FROM s'), ("risingwave", "spark"), False),
        (view('SELECT "id" AS x FROM s'), view("SELECT `id` AS x FROM s"), ("risingwave", "spark"), True),
        (view("SELECT 'id' AS x FROM s"), view('SELECT "id" AS x FROM s'), ("risingwave", "risingwave"), False),
        (view("SELECT id FROM s"), view("select id from public.s"), ("risingwave", "spark"), True),
        (view("SELECT id, a::varchar AS a FROM s"), view("SELECT id FROM s"), ("risingwave", "risingwave"), False),
        (
            view("SELECT no_such(id) AS a FROM s"),
            view("SELECT no_such(id) AS a FROM s"),
            ("risingwave", "spark"),
            False,
        ),
        (
            view("SELECT no_such(id) AS a FROM s"),
            view("select no_such(id) a from s"),
            ("risingwave", "risingwave"),
            True,
        ),
        (table('a VARCHAR, b VARCHAR AS "a"'), table('a VARCHAR, b VARCHAR AS "a"'), ("risingwave", "spark"), False),
        (table("a INT, b INT AS a * 2"), table("a INT, b INT AS A*2"), ("risingwave", "spark"), False),
        (table("a INT, b INT AS a * 2"), table("a INT, b INT AS a*2"), ("risingwave", "spark"), True),
        (
            table("a VARCHAR, b VARCHAR DEFAULT 'a'"),
            table("a VARCHAR, b VARCHAR DEFAULT 'a'"),
            ("spark", "risingwave"),
            True,
        ),
    ],
)
def test_queries_and_expressions_are_compared_by_their_meaning_in_their_dialects(
    current: str, wanted: str, dialects: tuple[str, str], is_same: bool
) -> None:
    found = least_change(parse_statement(current), parse_statement(wanted), {}, dialects)  # type: ignore[arg-type]
    assert found.is_empty == is_same


def test_a_new_column_has_the_dialect_of_the_table() -> None:
    current, other, same = (
        parse_statement(table(columns))
        for columns in ("a VARCHAR", 'a VARCHAR, b VARCHAR AS "a"', "a VARCHAR, b VARCHAR AS upper(a)")
    )
    found = least_change(current, other, {}, ("spark", "risingwave"))  # type: ignore[arg-type]
    assert found.refusal == (
        "the expression of the new column b has another meaning in the dialect of the table, which is spark"
    )
    assert len(least_change(current, same, {}, ("spark", "risingwave")).statements) == 1  # type: ignore[arg-type]
