"""The choices of Tab at the cursor, from the grammar and the warehouse."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from rw_sql.cli.shell.completion import StatementCompleter
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.format_words import ENCODES, FORMATS


class Known:
    """A warehouse with one object of each kind."""

    def __init__(self) -> None:
        self.asked = 0

    def objects(self) -> dict[str, str]:
        self.asked += 1
        return {
            "orders": "source",
            "by_day": "materialized_view",
            "broker": "connection",
            "out": "sink",
            "items": "table",
            "pass": "secret",
            "plain": "spark",
        }

    def columns(self, relation: str) -> tuple[str, ...]:
        return {"orders": ("id", "amount"), "items": ("item", "price")}.get(relation, ())

    def connector(self, name: str) -> str | None:
        return "kafka" if name in ("orders", "broker") else None


def offered(text: str, names: Known | None = None) -> list[str]:
    """The choices at the place of ``|``, or at the end without one."""
    before, _, after = text.partition("|")
    completer = StatementCompleter(names or Known(), seconds_to_keep=0.0)
    return [found.text for found in completer.get_completions(Document(before + after, len(before)), CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pause so", ["SOURCE"]),
        ("PAUSE SOURCE ", ["orders"]),
        ("PAUSE SOURCE it", []),
        ("DROP SOURCE IF EX", ["EXISTS"]),
        ("DROP SOURCE IF EXISTS ", ["orders"]),
        ("DROP MATERIALIZED VIEW ", ["by_day", "IF EXISTS"]),
        ("DROP TABLE it", ["items"]),
        ("RESUME SINK ", ["out"]),
        ("VALIDATE CONNECTION ", ["broker"]),
        ("DROP SECRET p", ["pass"]),
        ("CREATE SOURCE ", ["IF NOT EXISTS"]),
        ("CREATE SINK s FROM ", ["by_day", "items", "orders", "plain"]),
        ("INJECT SOURCE OFFSETS orders ", ["BACK", "FROM", "TO", "VALUES"]),
        ("SHOW SOURCE SPLITS ", ["orders"]),
        ("ALTER TABLE items DROP COLUMN pr", ["price"]),
        ("ALTER SOURCE orders SET CONNECTION ", ["broker", "NONE"]),
        ("SELECT 1; PAUSE SO|; SELECT 2", ["SOURCE"]),
        ("EXPLAIN PAUSE SINK ", ["out"]),
    ],
)
def test_statements_by_context(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("CREATE SOURCE s (a INT) WITH (", ["connector"]),
        ("CREATE CONNECTION c WITH (", ["type"]),
        ("CREATE SOURCE s (a INT) WITH (connector = 'ka", ["kafka'"]),
        ("CREATE SINK s FROM orders WITH (connector = '", ["deltalake'", "fs'", "iceberg'", "jdbc'", "kafka'"]),
        ("CREATE SOURCE s WITH (connector = 'kafka', properties.sec", ["properties.security.protocol"]),
        ("CREATE SOURCE s WITH (connector = 'kafka', scan.startup.mode = '", ["earliest'", "latest'", "timestamp'"]),
        ("CREATE SOURCE s WITH (connector = 'kafka', topic = 'a', to", []),
        ("CREATE SOURCE s WITH (connector = 'mysql-cdc', hos", ["hostname"]),
        ("ALTER SOURCE orders UNSAFE SET (to", ["topic"]),
        ("ALTER SYSTEM SET enable_un", ["enable_unsafe_ops"]),
        ("ALTER SYSTEM SET enable_unsafe_ops = '", ["true'", "false'"]),
        ("SET query_dialect = '", ["spark'", "risingwave'"]),
        ("SET state", ["statement_timeout"]),
        ("CREATE SOURCE s WITH (connector = 'nothing', ", []),
    ],
)
def test_properties_and_values(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


KAFKA = "CREATE SOURCE s WITH (connector = 'kafka')"
FILES = "CREATE TABLE t (a INT) WITH (connector = 'posix_fs')"
SINK = "CREATE SINK s FROM orders WITH (connector = 'kafka')"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{KAFKA} FORMAT ", ["PLAIN", "UPSERT", "DEBEZIUM", "MAXWELL", "CANAL"]),
        (f"{KAFKA} FORMAT PLAIN ENCODE ", ["JSON", "BYTES", "CSV", "AVRO", "PROTOBUF"]),
        (f"{KAFKA} FORMAT MAXWELL ENCODE ", ["JSON"]),
        (f"{KAFKA} FORMAT PLAIN ENCODE a", ["AVRO"]),
        (f"{KAFKA} FORMAT PLAIN ENCODE PARQ", []),
        (f"{FILES} FORMAT PLAIN ENCODE ", ["CSV", "JSON", "PARQUET"]),
        (f"{SINK} FORMAT DEBEZIUM ENCODE ", ["JSON"]),
        (f"{KAFKA} FORMAT UPSERT ENCODE JSON KEY ENCODE ", ["JSON", "TEXT", "BYTES"]),
        (f"{SINK} FORMAT UPSERT ENCODE AVRO (schema.registry = 'http://r') KEY ENCODE ", ["AVRO", "TEXT", "BYTES"]),
        ("ALTER SOURCE orders FORMAT PLAIN ENCODE ", ["JSON", "BYTES", "CSV", "AVRO", "PROTOBUF"]),
        ("CREATE SOURCE s WITH (connector = 'mysql-cdc') FORMAT ", ["NATIVE", "PLAIN"]),
        ("CREATE SINK s FROM orders WITH (connector = 'jdbc') FORMAT ", []),
        ("CREATE SOURCE s WITH (connector = 'nothing') FORMAT ", list(FORMATS)),
        ("CREATE SOURCE s WITH (connector = 'nothing') FORMAT PLAIN ENCODE ", list(ENCODES)),
    ],
)
def test_format_and_encode_offer_what_the_connector_takes(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


def test_every_pair_of_every_connector_is_offered() -> None:
    specs = [(connector(name).spec, "SOURCE s") for name in connector_names()]
    specs += [(sink_connector(name).spec, "SINK s FROM orders") for name in sink_connector_names()]
    for spec, what in specs:
        begin = f"CREATE {what} WITH (connector = '{spec.name}') FORMAT "
        assert offered(begin) == list(spec.formats)
        assert set(spec.formats) <= set(FORMATS)
        for format, encodes in spec.formats.items():
            assert offered(f"{begin}{format} ENCODE ") == list(encodes)
            assert set(encodes) <= set(ENCODES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT am| FROM orders", ["amount"]),
        ("SELECT o.| FROM orders AS o JOIN items i", ["id", "amount"]),
        ("SELECT i.pr| FROM orders AS o JOIN items i", ["price"]),
        ("SELECT * FROM ", ["by_day", "items", "orders", "plain"]),
        ("CREATE MATERIALIZED VIEW m AS SELECT amo| FROM orders", ["amount"]),
        ("SELECT date_tr", ["date_trunc"]),
        ("SELECT nothing.", []),
    ],
)
def test_columns_in_queries(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


def test_a_statement_begins_as_ours_or_sparks() -> None:
    begins = offered("")
    assert {"CREATE", "INJECT", "SHOW", "SELECT", "INSERT INTO"} <= {*begins}
    assert offered("inje") == ["INJECT"]


def test_commands() -> None:
    assert offered("\\ti") == ["timing"]
    assert offered("SHOW JOBS \\wa") == ["watch"]


@pytest.mark.parametrize("text", ["'", "SELECT '", "/* a", "SELECT $$", "CREATE (", ";;", "\u200b", "WITH (a = 'b"])
def test_nothing_is_offered_or_raised_inside_of_free_text(text: str) -> None:
    assert offered(text) == [] or text in ("CREATE (", ";;")


def test_names_are_read_again_only_when_they_are_old() -> None:
    names = Known()
    now = [0.0]
    completer = StatementCompleter(names, seconds_to_keep=3.0, clock=lambda: now[0])
    for text in ("PAUSE SOURCE ", "PAUSE SOURCE o", "PAUSE SOURCE or"):
        list(completer.get_completions(Document(text), CompleteEvent()))
    assert names.asked == 1
    now[0] = 3.0
    list(completer.get_completions(Document("PAUSE SOURCE "), CompleteEvent()))
    assert names.asked == 2


class WithSchemas(Known):
    """As Known, with a schema and two objects in it."""

    def objects(self) -> dict[str, str]:
        return {**super().objects(), "raw": "schema", "raw.orders": "source", "raw.users": "table"}

    def columns(self, relation: str) -> tuple[str, ...]:
        return {"raw.orders": ("id", "weight")}.get(relation, super().columns(relation))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("USE ", ["raw"]),
        ("DROP SCHEMA r", ["raw"]),
        ("ALTER SOURCE orders SET SCHEMA ", ["raw"]),
        ("SHOW SOURCES FROM ", ["raw"]),
        ("PAUSE SOURCE raw.", ["raw.orders"]),
        ("SELECT * FROM raw.", ["raw.orders", "raw.users"]),
        ("SELECT raw.orders.w| FROM raw.orders", ["weight"]),
        ("SELECT o.w| FROM raw.orders AS o", ["weight"]),
        ("SELECT orders.| FROM orders", ["id", "amount"]),
    ],
)
def test_names_in_schemas(text: str, wanted: list[str]) -> None:
    assert offered(text, WithSchemas()) == wanted


class OddlyNamed(Known):
    """Objects and columns whose names are typed in quotes, in a statement and in a query of Spark."""

    def objects(self) -> dict[str, str]:
        return {
            "my view": "materialized_view",
            "Orders": "source",
            "raw": "schema",
            "raw.my table": "table",
            "a.b": "sink",
        }

    def columns(self, relation: str) -> tuple[str, ...]:
        return {"my view": ("my id", "amount"), "raw.my table": ("größe",)}.get(relation, ())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DROP MATERIALIZED VIEW my", ['"my view"']),
        ("PAUSE SOURCE ord", ['"Orders"']),
        ("DROP TABLE raw", ['raw."my table"']),
        ("DROP SINK a", ['"a.b"']),
        ("SELECT * FROM my", ["`my view`"]),
        ("SELECT * FROM o", ["Orders"]),
        ("SELECT * FROM raw.my", ["raw.`my table`"]),
        ("SELECT my| FROM `my view`", ["`my id`", "`my view`"]),
    ],
)
def test_names_that_need_quotes_are_offered_in_quotes(text: str, wanted: list[str]) -> None:
    assert offered(text, OddlyNamed()) == wanted
