"""The hints for statements of other SQL dialects are right: with values in place of the placeholders, the offline
planner accepts what each hint says to write.

``tests/harness/test_hints_parse.py`` only parses the statements in hints. A parser accepts columns of a change data
capture source, the name of an unknown connector, and windows of wrong lengths.
"""

from __future__ import annotations

import re

import pytest

from rw_sql.connectors.connection_types import connection_types
from rw_sql.connectors.registry import connector_names, sink_connector_names
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax.parsing.actions.formats import CLAUSES
from rw_sql.syntax.parsing.materialize_forms import CONNECTIONS, DATABASES, SCHEMAS, SINKS, STREAMS, TYPES
from tests.conftest import FIXTURES

PRELUDE = """
CREATE SCHEMA raw;
CREATE SECRET pw WITH (backend = 'meta') AS 'x';
CREATE CONNECTION broker WITH (type = 'kafka', properties.bootstrap.server = 'h:9092');
CREATE CONNECTION pg WITH (type = 'postgres', hostname = 'h', database.name = 'd',
  username = 'u', password = SECRET pw);
CREATE CONNECTION my WITH (type = 'mysql', hostname = 'h', database.name = 'd',
  username = 'u', password = SECRET pw);
CREATE SOURCE orders (id INT, region VARCHAR, at TIMESTAMPTZ, "my id" INT, "my time" TIMESTAMPTZ,
  tags VARCHAR[])
WITH (connector = 'kafka', connection = broker, topic = 'orders') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW totals AS SELECT region, count(*) AS n FROM orders GROUP BY region;
"""
_OPTIONS = {
    "connector = 'datagen', …": "connector = 'datagen', datagen.rows.per.second = '1'",
    "connector = 'kinesis', …": "connector = 'kinesis', stream = 's', aws.region = 'eu-north-1'",
    "connector = 's3', …": "connector = 's3', s3.bucket_name = 'b', s3.region_name = 'eu-north-1'",
    "connector = 'postgres-cdc', …": "connector = 'postgres-cdc', connection = pg, slot.name = 's'",
    "connector = 'mysql-cdc', …": "connector = 'mysql-cdc', connection = my, server.id = '5701'",
    "connection = pg, …": "connection = pg, slot.name = 's'",
    "connection = my, …": "connection = my, server.id = '5701'",
    "connection = broker, …": "connection = broker, topic = 'o'",
    "connection = public.broker, …": "connection = public.broker, topic = 'o'",
    "aws.region = '…', …": "aws.region = 'eu-north-1'",
    "hostname = '…', …": "hostname = 'h', database.name = 'd', username = 'u', password = SECRET pw",
    "WITH (…)": "WITH (connector = 'kafka', connection = broker, topic = 'o')",
    "'iceberg', database.name = '…', table.name = '…', …": "'iceberg', database.name = 'd', table.name = 't', "
    "type = 'upsert', primary_key = 'region', catalog.type = 'rest', catalog.uri = 'http://h:8181'",
    "table.name = '…', …": "table.name = 't', type = 'upsert', primary_key = 'region', "
    "user = 'u', password = SECRET pw",
    "connector = 'kafka', topic = 'out', …": "connector = 'kafka', connection = broker, topic = 'out'",
    "connector = 'kafka', topic = 'shop', …": "connector = 'kafka', connection = broker, topic = 'shop'",
    "connector = 'kafka', …": "connector = 'kafka', connection = broker, topic = 'o'",
    "type = '…', …": "type = 'kafka', properties.bootstrap.server = 'h:9092'",
    "type = 'kafka', …": "type = 'kafka', properties.bootstrap.server = 'h:9092'",
    "schema.registry = '…'": "schema.registry = 'http://h:8081'",
    "message = '…'": "message = 'a.Message'",
    "schema.location = '…'": "schema.location = 'file:///a.pb'",
    ", …)": ", n INT)",
    ") …": ") FORMAT PLAIN ENCODE JSON",
    "FORMAT … ENCODE …": "FORMAT UPSERT ENCODE JSON",
    "a_column": "at",
}
"""Placeholders of hints, each with a text that may stand there."""


def filled(text: str) -> str:
    """A part of a hint with values in place of its placeholders."""
    for placeholder, value in _OPTIONS.items():
        text = text.replace(placeholder, value)
    return text


def faults(script: str) -> list[str]:
    """What the offline planner reports for a script."""
    checker = ScriptChecker()
    return [error.render() for checked in checker.check(PRELUDE + script, "hint.sql") for error in checked.errors]


def hint_for(statement: str) -> str:
    """The hint of the only error of a statement."""
    checker = ScriptChecker()
    (error,) = [error for checked in checker.check(PRELUDE + statement, "mistake.sql") for error in checked.errors][:1]
    return error.hint or ""


def scripts_of(mistake: str, hint: str) -> list[str]:
    """The statements that a hint says to write in place of a mistyped one."""
    if (made := re.search(r"CREATE (?:SOURCE|TABLE|CONNECTION) .*\).*", hint)) is not None:
        statement = filled(made[0].partition("; ")[0].partition(": the key's")[0])
        statement = statement.replace(", then CREATE", ";\nCREATE")
        return [
            re.sub(r"(CREATE (?:SOURCE|TABLE|CONNECTION) )(?:public\.)?(?:orders|broker|pg)\b", r"\1made", statement)
        ]
    if (
        instead := re.match(r"write (WITH .*) instead of INTO …(?P<upsert>.*UPSERT instead of PLAIN)?", hint)
    ) is not None:
        statement = f"CREATE SINK made FROM totals {filled(instead[1])}"
        return [statement.replace("FORMAT PLAIN", "FORMAT UPSERT") if instead["upsert"] else statement]
    if (other := re.search(r"(?<=for )[A-Z]+ write (FORMAT UPSERT .*)", hint)) is not None and "a sink" in hint:
        return [f"CREATE SINK made FROM totals {filled('WITH (…)')} {filled(other[1])}"]
    if (series := re.search(r"range\(.*\) AS numbers\(n\)", hint)) is not None:
        return [f"CREATE MATERIALIZED VIEW made AS SELECT id, n FROM orders, {series[0]}"]
    if (array := re.search(r"LATERAL VIEW explode\(.+?\) \w+ AS (\w+)", hint)) is not None:
        return [f"CREATE MATERIALIZED VIEW made AS SELECT id, {array[1]} FROM orders {array[0]}"]
    if (moved := re.search(r"INJECT SOURCE OFFSETS orders TO SHIFT .*", hint)) is not None:
        return [f"PAUSE SOURCE orders;\n{moved[0]} ALLOW DUPLICATES"]
    if (of_type := re.search(r"write ((?:MAP|STRUCT)\S*.*|\S+\[\])$", hint)) is not None:
        return [filled(f"CREATE SOURCE made (a {of_type[1]}) WITH (…) FORMAT PLAIN ENCODE JSON")]
    if (clause := re.search(r"INCLUDE \w+ AS \S+(?= after)", hint)) is not None:
        return [filled(f"CREATE SOURCE made (id INT) {clause[0]} WITH (…) FORMAT PLAIN ENCODE JSON")]
    if (group := re.search(r"GROUP BY .*?\)(?=,? or |;| makes|$)", hint)) is not None:
        scripts = [f"CREATE MATERIALIZED VIEW made AS SELECT count(*) AS n FROM orders {filled(group[0])}"]
        if (other := re.search(r"(SET query_dialect = \S+) and (FROM .*)", hint)) is not None:
            select = f"SELECT window_start, count(*) AS n {other[2].replace('public.', '')} GROUP BY window_start"
            scripts.append(f"{other[1]}; CREATE MATERIALIZED VIEW made AS {select}")
        return scripts
    return []


def recorded_hints() -> list[tuple[str, str]]:
    """The statements of ``other_dialects.txt`` for whose hints a script can be made, with these hints."""
    text = (FIXTURES / "mistakes" / "other_dialects.txt").read_text(encoding="utf-8")
    entries = [entry.partition("\n\n") for entry in text.split("\n\n\n")]
    hints = [(mistake, re.findall(r"^HINT: (.*)$", error, re.MULTILINE)) for mistake, _, error in entries]
    return [(mistake, hint) for mistake, found in hints for hint in found if scripts_of(mistake, hint)]


def test_a_wrong_hint_is_found() -> None:
    for wrong in (
        "CREATE SOURCE s (id INT, …) WITH (connector = 'postgres-cdc', connection = pg, …) …",
        "CREATE CONNECTION c WITH (type = 'confluent', …)",
        "write WITH (connector = 'postgres', …) FORMAT … ENCODE … instead of INTO …",
    ):
        assert any(faults(script) for script in scripts_of("", wrong)), wrong


def test_the_objects_that_the_hints_name_are_right() -> None:
    assert faults("") == []


def test_there_are_enough_hints() -> None:
    assert len(recorded_hints()) >= 30


@pytest.mark.parametrize(("mistake", "hint"), recorded_hints())
def test_the_planner_accepts_what_a_hint_says_to_write(mistake: str, hint: str) -> None:
    for script in scripts_of(mistake, hint):
        assert faults(script) == [], script


@pytest.mark.parametrize("system", [*STREAMS, *DATABASES])
def test_each_source_of_a_known_system_is_right(system: str) -> None:
    (script,) = scripts_of("", hint_for(f"CREATE SOURCE made FROM {system} BROKER 'b'"))
    assert faults(script) == [], script


@pytest.mark.parametrize("system", CONNECTIONS)
def test_each_connection_to_a_known_system_is_right(system: str) -> None:
    (script,) = scripts_of("", hint_for(f"CREATE CONNECTION made TO {system} (A 'b')"))
    assert faults(script) == [], script


def test_the_properties_of_amazon_connections_are_right() -> None:
    hint = hint_for("CREATE CONNECTION made TO AWS (REGION 'eu-north-1')")
    written = re.findall(r"CREATE CONNECTION made WITH \(.*?\)", hint)
    assert len(written) == 2
    for statement in written:
        assert faults(statement.replace("'…', …", "'eu-north-1'")) == [], statement


@pytest.mark.parametrize(
    "clause",
    [
        "FORMAT DEBEZIUM",
        "FORMAT UPSERT",
        "FORMAT CANAL",
        "FORMAT MAXWELL",
        "FORMAT DEBEZIUM-AVRO",
        "FORMAT UPSERT-JSON",
    ],
)
def test_a_format_of_changes_is_proposed_for_tables_only(clause: str) -> None:
    listed = f"made (id INT PRIMARY KEY) WITH (connector = 'kafka', topic = 't') {clause}"
    assert hint_for(f"CREATE SOURCE {listed}").endswith("this format needs CREATE TABLE with a PRIMARY KEY")
    assert "CREATE TABLE" not in hint_for(f"CREATE TABLE {listed}")


@pytest.mark.parametrize("word", ["my own", "a-json"])
def test_the_formats_of_changes_are_listed_with_the_statement_that_accepts_them(word: str) -> None:
    listed = f"made (id INT PRIMARY KEY) WITH (connector = 'kafka', topic = 't', format = '{word}')"
    of_table = hint_for(f"CREATE TABLE {listed}")
    assert of_table.endswith("CANAL instead of PLAIN")
    assert hint_for(f"CREATE SOURCE {listed}") == (
        f"{of_table}, and CREATE TABLE with a PRIMARY KEY instead of CREATE SOURCE"
    )


@pytest.mark.parametrize(
    ("arguments", "array"),
    [
        ("1, id", "CASE WHEN 1 <= id THEN sequence(1, id) END"),
        ("id, 1, -1", "CASE WHEN id >= 1 THEN sequence(id, 1, -1) END"),
        ("id, 1, id", "CASE WHEN id > 0 AND id <= 1 OR id < 0 AND id >= 1 THEN sequence(id, 1, id) END"),
        (
            "abs(id), greatest(id, 2)",
            "CASE WHEN abs(id) <= greatest(id, 2) THEN sequence(abs(id), greatest(id, 2)) END",
        ),
    ],
)
def test_a_series_without_rows_stays_without_rows_in_spark(arguments: str, array: str) -> None:
    query = f"SELECT id, n FROM orders, TABLE(generate_series({arguments})) AS t(n)"
    assert f"LATERAL VIEW explode({array}) t AS n" in hint_for(f"CREATE MATERIALIZED VIEW made AS {query}")


@pytest.mark.parametrize("system", ["KAFKA", *SINKS])
def test_each_sink_into_a_known_system_is_right(system: str) -> None:
    (script,) = scripts_of("", hint_for(f"CREATE SINK made FROM totals INTO {system} (A 'b')"))
    assert faults(script) == [], script


@pytest.mark.parametrize("options", ["BROKER 'k:9092'", "BROKER 'u:p@k:9092'", "PASSWORD 'a:1'"])
def test_only_an_address_without_a_login_is_repeated(options: str) -> None:
    hint = hint_for(f"CREATE CONNECTION made TO KAFKA ({options})")
    written = "k:9092" if "BROKER 'k" in options else "host:9092"
    assert hint == f"CREATE CONNECTION made WITH (type = 'kafka', properties.bootstrap.server = '{written}')"


def test_the_types_of_connections_that_hints_list_are_those_there_are() -> None:
    assert connection_types() == TYPES


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("CREATE SOURCE made FROM TERADATA CONNECTION pg", connector_names()),
        ("CREATE CONNECTION made TO TERADATA (HOST 'h')", connection_types()),
        ("CREATE CONNECTION made TO AWS (REGION 'eu-north-1')", connection_types()),
        ("CREATE CONNECTION made TO SSH TUNNEL (HOST 'h')", connection_types()),
        ("CREATE SINK made FROM totals INTO TERADATA CONNECTION s", sink_connector_names()),
    ],
)
def test_the_hint_for_an_unknown_system_lists_those_there_are(statement: str, names: tuple[str, ...]) -> None:
    assert hint_for(statement).endswith(f" are {', '.join(names)}")


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("CREATE SOURCE made FROM NATS BROKER 'b'", "write WITH (connector = 'nats', …) instead of FROM …"),
        ("CREATE CONNECTION made TO S3 (A 'b')", "write WITH (type = 's3', …) instead of TO …"),
        (
            "CREATE SINK made FROM totals INTO DELTALAKE (A 'b')",
            "write WITH (connector = 'deltalake', …) instead of INTO …",
        ),
        (
            "CREATE SOURCE made FROM SQL SERVER CONNECTION pg",
            "no connector reads SQL SERVER: let Debezium write its changes to Kafka, then CREATE TABLE a_table "
            "(id INT PRIMARY KEY, …) WITH (connector = 'kafka', …) FORMAT DEBEZIUM ENCODE JSON",
        ),
        (
            "CREATE SOURCE made FROM WEBHOOK BODY FORMAT JSON",
            "no connector reads WEBHOOK: let the sender write to a Kafka topic, and create a source that reads this "
            "topic",
        ),
        (
            "CREATE SINK made FROM totals INTO S3 CONNECTION s (PATH 's3://b/o')",
            "no sink writes files to S3: connector = 'fs' writes files on the host that runs the jobs, 'deltalake' and "
            "'iceberg' write tables in an object store",
        ),
    ],
)
def test_the_hint_for_another_system_names_what_to_use(statement: str, hint: str) -> None:
    assert hint_for(statement) == hint
    of_sink, names = "SINK" in statement, re.findall(r"(?:connector = |, | and )'([\w-]+)'", hint)
    assert set(names) <= set(sink_connector_names() if of_sink else connector_names())


@pytest.mark.parametrize(("encode", "more"), SCHEMAS.items())
def test_an_encoding_in_the_place_of_a_format_keeps_its_schema(encode: str, more: str) -> None:
    begun = filled("CREATE SOURCE made WITH (…) FORMAT ")
    hint = hint_for(f"{begun}{encode}")
    assert hint == f"write FORMAT PLAIN ENCODE {encode}{more}"


@pytest.mark.parametrize("word", CLAUSES)
def test_the_format_in_place_of_a_property_is_right(word: str) -> None:
    where = "connector = 's3', …" if word == "parquet" else "connector = 'kafka', …"
    for made in ("CREATE SOURCE made (id INT)", "CREATE TABLE made (id INT PRIMARY KEY)"):
        begun = filled(f"{made} WITH ({where})")
        hint = hint_for(f"{begun[:-1]}, format = '{word}')")
        found = re.search(r"write (FORMAT .*) after WITH \(…\)(.*)", hint)
        assert found is not None, hint
        if "needs CREATE TABLE" in found[2]:
            continue
        script = f"{begun} {filled(found[1])}"
        if "type BYTEA" in found[2]:
            script = script.replace("id INT PRIMARY KEY", "id INT").replace("id INT", "data BYTEA")
        assert faults(script) == [], script


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("s STRUCT<a INT, b INT> METADATA FROM 'key'", "s"),
        ("s STRUCT<a INT, b STRUCT<c INT, d DECIMAL(10, 2)>> METADATA FROM 'key'", "s"),
        ("s MAP(VARCHAR, STRUCT<a INT, b INT>) METADATA FROM 'key'", "s"),
    ],
)
def test_metadata_is_included_under_the_name_of_the_whole_column(column: str, name: str) -> None:
    hint = hint_for(f"CREATE SOURCE made (id INT, {column}) {filled('WITH (…)')} FORMAT PLAIN ENCODE JSON")
    assert f"INCLUDE key AS {name} after" in hint


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY, - INTERVAL '8' HOUR)", "'1 day', '1 day', '-8 hour'"),
        ("TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY, INTERVAL -'8' HOUR)", "'1 day', '1 day', '-8 hour'"),
        ("TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY, INTERVAL '-8' HOUR)", "'1 day', '1 day', '-8 hour'"),
        (
            "TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY, INTERVAL '-1:30' HOUR TO MINUTE)",
            "'1 day', '1 day', '-1 hour -30 minute'",
        ),
        (
            "TUMBLE(DATA => TABLE orders, TIMECOL => DESCRIPTOR(at), OFFSET => -INTERVAL '8' HOUR, "
            "SIZE => INTERVAL '1' DAY)",
            "'1 day', '1 day', '-8 hour'",
        ),
        ("HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '5 minutes', INTERVAL '10' MINUTES)", "'10 minutes', '5 minutes'"),
        (
            "HOP(TABLE orders, DESCRIPTOR(at), INTERVAL five, INTERVAL '20' MINUTES)",
            "'20 minutes', '10 minutes'",
        ),
        (
            "TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '10' MINUTES)) WHERE at > now() - (INTERVAL '1' DAY",
            "'10 minutes'",
        ),
    ],
)
def test_a_window_of_flink_keeps_its_lengths_and_their_signs(call: str, window: str) -> None:
    hint = hint_for(f"CREATE MATERIALIZED VIEW made AS SELECT count(*) AS n FROM TABLE({call})")
    assert f"window(at, {window})" in hint
    for script in scripts_of("", hint):
        assert faults(script) == [], script


def test_a_key_is_not_the_first_part_of_a_column_with_a_generic_type() -> None:
    columns = "s STRUCT<a INT, b INT>, id INT"
    hint = hint_for(f"CREATE SOURCE made ({columns}) {filled('WITH (…)')} FORMAT PLAIN ENCODE JSON ENVELOPE UPSERT")
    assert "CREATE TABLE made (id INT PRIMARY KEY, …)" in hint
