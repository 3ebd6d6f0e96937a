"""Every type of PostgreSQL: the type here, and the text by the stream and by the snapshot, which must be equal."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc.connection import lsn_number
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.connectors.postgres_cdc.texts import array_converter, bare_element, money_converter, text_element
from rw_sql.connectors.postgres_cdc.types import PostgresType
from tests.support.captured import read_on
from tests.support.postgres_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from tests.support.postgres import PostgresInfo

VARYING = "CHARACTER VARYING"

TYPES: tuple[tuple[str, str, str, str], ...] = (
    ("boolean", "true", "BOOLEAN", "t"),
    ("smallint", "-32768", "SMALLINT", "-32768"),
    ("integer", "2147483647", "INT", "2147483647"),
    ("bigint", "-9223372036854775808", "BIGINT", "-9223372036854775808"),
    ("oid", "4294967295", "BIGINT", "4294967295"),
    ("real", "'3.4028235e38'", "REAL", "3.4028235e+38"),
    ("real", "'NaN'", "REAL", "NaN"),
    ("double precision", "0.1::float8 + 0.2", "DOUBLE", "0.30000000000000004"),
    ("double precision", "'-Infinity'", "DOUBLE", "-Infinity"),
    ("numeric", "'NaN'", "NUMERIC", "NaN"),
    ("numeric", "'Infinity'", "NUMERIC", "Infinity"),
    ("numeric", "('1' || repeat('0', 131071))::numeric", "NUMERIC", "1" + "0" * 131071),
    ("numeric", "('0.' || repeat('0', 16382) || '1')::numeric", "NUMERIC", "0." + "0" * 16382 + "1"),
    ("numeric(10, 2)", "'-12345678.90'", "NUMERIC(10, 2)", "-12345678.90"),
    ("numeric(50, 2)", "1", VARYING, "1.00"),
    ("numeric(3, -2)", "12345", "NUMERIC", "12300"),
    ("money", "'-1234567.89'::numeric", "NUMERIC(20, 4)", "-1234567.89"),
    ("text", "E'a\"b\\\\c\\nd\\te\\x01'", VARYING, 'a"b\\c\nd\te\x01'),
    ("text", "''", VARYING, ""),
    ("varchar(5)", "'ü漢🦀'", VARYING, "ü漢🦀"),
    ("char(5)", "'ab'", VARYING, "ab   "),
    ('"char"', "'x'", VARYING, "x"),
    ("name", "'pg_class'", VARYING, "pg_class"),
    ("xml", "'<a>1</a>'::xml", VARYING, "<a>1</a>"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", VARYING, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("bytea", "'\\x00ff5c'", "BYTEA", "\\x00ff5c"),
    ("json", """'{"a":  1}'""", "JSONB", '{"a":  1}'),
    ("jsonb", """'{"b": "x\\"y", "a": [1, null]}'""", "JSONB", '{"a": [1, null], "b": "x\\"y"}'),
    ("date", "'2024-02-29'", "DATE", "2024-02-29"),
    ("date", "'infinity'", "DATE", "infinity"),
    ("date", "'0044-03-15 BC'", "DATE", "0044-03-15 BC"),
    ("timestamp", "'294276-12-31 23:59:59.999999'", "TIMESTAMP", "294276-12-31 23:59:59.999999"),
    ("timestamp", "'-infinity'", "TIMESTAMP", "-infinity"),
    ("timestamptz", "'2024-07-01 12:00:00.123456+05:30'", "TIMESTAMP WITH TIME ZONE", "2024-07-01 06:30:00.123456+00"),
    ("timestamptz", "'4713-01-01 00:00:00+00 BC'", "TIMESTAMP WITH TIME ZONE", "4713-01-01 00:00:00+00 BC"),
    ("time", "'24:00:00'", VARYING, "24:00:00"),
    ("timetz", "'01:02:03.5-08'", VARYING, "01:02:03.5-08"),
    ("interval", "'1 year 2 mons -3 days 04:05:06.789'", VARYING, "P1Y2M-3DT4H5M6.789S"),
    ("bit(3)", "B'101'", VARYING, "101"),
    ("bit varying(5)", "B'1'", VARYING, "1"),
    ("inet", "'192.168.1.5'", VARYING, "192.168.1.5"),
    ("cidr", "'10.0.0.0/8'", VARYING, "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", VARYING, "08:00:2b:01:02:03"),
    ("point", "'(1.5,2)'", VARYING, "(1.5,2)"),
    ("polygon", "'((0,0),(1,1))'", VARYING, "((0,0),(1,1))"),
    ("tsvector", "'a:1 b'::tsvector", VARYING, "'a':1 'b'"),
    ("pg_lsn", "'0/16B3748'", VARYING, "0/16B3748"),
    ("int4range", "'[1,5]'", VARYING, "[1,6)"),
    ("tstzrange", "tstzrange('2024-01-01 00:00+00', NULL)", VARYING, '["2024-01-01 00:00:00+00",)'),
    ("{s}.mood", "'very \"well\"'", VARYING, 'very "well"'),
    ("{s}.pair", "ROW(1, 'a,b')::{s}.pair", VARYING, '(1,"a,b")'),
    ("{s}.age", "42", "INT", "42"),
    ("{s}.price", "1.5", "NUMERIC(8, 3)", "1.500"),
    ("{s}.tags", "ARRAY['x', NULL]", VARYING + "[]", '["x",null]'),
    ("integer[]", "ARRAY[1, NULL, -3]", "INT[]", "[1,null,-3]"),
    ("integer[]", "'{{1,2},{3,4}}'", "INT[]", "[[1,2],[3,4]]"),
    ("integer[]", "'[2:3]={5,6}'", "INT[]", "[5,6]"),
    ("integer[]", "'{}'", "INT[]", "[]"),
    ("numeric(5, 1)[]", "ARRAY[1.5, 'NaN'::numeric]", "NUMERIC(5, 1)[]", '[1.5,"NaN"]'),
    ("double precision[]", "ARRAY['-Infinity'::float8, 1e300]", "DOUBLE[]", '["-Infinity",1e+300]'),
    ("boolean[]", "ARRAY[true, false, NULL]", "BOOLEAN[]", "[true,false,null]"),
    ("text[]", """ARRAY['a,b', 'say "x"', E'\\\\', '', 'NULL', NULL, E'l\\n']""", VARYING + "[]",
     '["a,b","say \\"x\\"","\\\\","","NULL",null,"l\\n"]'),
    ("bytea[]", "ARRAY['\\x00'::bytea]", "BYTEA[]", '["\\\\x00"]'),
    ("jsonb[]", """ARRAY['{"a": 1}'::jsonb]""", "JSONB[]", '["{\\"a\\": 1}"]'),
    ("timestamptz[]", "ARRAY['2024-01-01 00:00+00'::timestamptz]", "TIMESTAMP WITH TIME ZONE[]",
     '["2024-01-01 00:00:00+00"]'),
    ("box[]", "ARRAY['(1,1),(0,0)'::box, '(3,3),(2,2)'::box]", VARYING + "[]", '["(1,1),(0,0)","(3,3),(2,2)"]'),
    ("{s}.mood[]", "ARRAY['ok', NULL]::{s}.mood[]", VARYING + "[]", '["ok",null]'),
    ("{s}.pair[]", "ARRAY[ROW(1, 'a')::{s}.pair]", VARYING + "[]", '["(1,a)"]'),
    ("money[]", "ARRAY[12.5::numeric::money]", "NUMERIC(20, 4)[]", "[12.50]"),
)  # fmt: skip
"""PostgreSQL's type, a value, the type of ``(*)``, and the text."""


@pytest.mark.postgres
def test_a_value_of_every_type_by_the_stream_and_by_the_snapshot(postgres: PostgresInfo) -> None:
    schema = f"y_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE SCHEMA {schema}")
    postgres.run(f"CREATE TYPE {schema}.mood AS ENUM ('ok', 'very \"well\"')")
    postgres.run(f"CREATE TYPE {schema}.pair AS (a INT, b TEXT)")
    postgres.run(f"CREATE DOMAIN {schema}.years AS INT; CREATE DOMAIN {schema}.age AS {schema}.years CHECK (VALUE > 0)")
    postgres.run(f"CREATE DOMAIN {schema}.price AS NUMERIC(8, 3); CREATE DOMAIN {schema}.tags AS TEXT[]")
    columns = ", ".join(f"c{at} {kind.format(s=schema)}" for at, (kind, _, _, _) in enumerate(TYPES))
    values = ", ".join(value.replace("{s}", schema) for _, value, _, _ in TYPES)
    table = f"{schema}.every"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}, made INT GENERATED ALWAYS AS (id * 2) STORED)")
    postgres.run(f"INSERT INTO {table} VALUES (1, {values}), (2)".replace("(2)", f"(2{', NULL' * len(TYPES)})"))
    options = cdc_options(postgres)
    described = PostgresCdcConnector().describe_table(options, table)
    assert [column.canonical for column in described.columns[1:-1]] == [canonical for _, _, canonical, _ in TYPES]
    assert described.columns[-1].canonical is None
    assert described.key == ("id",)
    replica = Replica(options, [table])
    replica.catch_up(postgres)
    postgres.run(f"INSERT INTO {table} VALUES (3, {values})")
    replica.catch_up(postgres)
    rows = {row["id"]: row for row in replica.rows[table].values()}
    for at, (kind, value, _, text) in enumerate(TYPES):
        assert rows["1"][f"c{at}"] == text, (kind, value, "snapshot")
        assert rows["3"][f"c{at}"] == text, (kind, value, "stream")
        assert rows["2"][f"c{at}"] is None
        if kind.endswith("[]"):
            json.loads(text)
    assert "made" not in rows["1"]
    replica.drop()


@pytest.mark.postgres
def test_a_value_that_is_no_text_names_its_column_and_row(postgres: PostgresInfo) -> None:
    name = f"ascii_{uuid.uuid4().hex[:8]}"
    options = cdc_options(postgres, **{"database.name": name})
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user="postgres", password=options["password"],
        autocommit=True,
    ) as connection:  # fmt: skip
        connection.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'".encode())
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname=name, user="postgres", password=options["password"],
        autocommit=True, client_encoding="latin1",
    ) as connection:  # fmt: skip
        connection.execute(b"CREATE TABLE t (id INT PRIMARY KEY, a TEXT, b TEXT)")
        replica = Replica(options, ["public.t"])
        wait_until(lambda: replica.step(wait=0.1).progress["public.t"].is_done, "the snapshot is done")
        replica.close()
        for number in (5, 6):
            connection.execute(f"INSERT INTO t VALUES ({number}, 'good', 'good')".encode())
        before = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        connection.execute(b"INSERT INTO t VALUES (7, 'fine', convert_from('\\xe4', 'SQL_ASCII'))")
        for _ in range(2):
            with pytest.raises(CaptureError) as caught:
                read_on(replica)
            assert caught.value.message.startswith('column "b" of table public.t, row (id = 7): the value is not UTF-8')
            replica.close()
        # The transactions before it have been committed, so that SKIP skips this one and no other.
        assert sorted(row["id"] for row in replica.rows["public.t"].values()) == ["5", "6"]
        assert before is not None
        assert replica.state.offset <= lsn_number(before[0])
        replica.read_anew("public.t")
        with pytest.raises(CaptureError, match=r'column "b" of table public.t, row \(id = 7\)'):
            read_on(replica)
        replica.drop()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", "[]"),
        ("{a}", '["a"]'),
        ('{"a\\"b","c\\\\d",NULL,"NULL",""}', '["a\\"b","c\\\\d",null,"NULL",""]'),
        ("{{a,b},{c,d}}", '[["a","b"],["c","d"]]'),
        ("[0:1][-2:-1]={{a,b},{c,d}}", '[["a","b"],["c","d"]]'),
    ],
)
def test_arrays(text: str, wanted: str) -> None:
    assert array_converter(",", text_element)(text) == wanted


@pytest.mark.parametrize("text", ["", "a", "{a", "{a}}", "{a}b", '{"a}', "{{{{{{{a}}}}}}}"])
def test_a_text_that_is_no_array(text: str) -> None:
    with pytest.raises(ValueError, match="no array"):
        array_converter(",", text_element)(text)


@pytest.mark.parametrize(
    ("sample", "text", "wanted"),
    [
        ("$1,234,567.89", "-$1,000.50", "-1000.50"),
        ("1.234.567,89 €", "-1.000,50 €", "-1000.50"),
        ("￥1,234,568", "￥1,000", "1000"),
        ("$1,234,567.89", "($0.01)", "-0.01"),
        ("$1,234,567.89", "$0.00", "0.00"),
        ("$1,234,567.89", "$92,233,720,368,547,758.07", "92233720368547758.07"),
    ],
)
def test_money_in_any_locale(sample: str, text: str, wanted: str) -> None:
    assert money_converter(sample)(text) == wanted


def test_numbers_in_arrays() -> None:
    assert [bare_element(text) for text in ("1", "-0.5", "1e+300", "NaN", "Infinity", "007")] == [
        "1", "-0.5", "1e+300", '"NaN"', '"Infinity"', '"007"',
    ]  # fmt: skip


def test_the_declared_types_that_values_fit() -> None:
    whole = PostgresType(name="int4", family="whole")
    declared = ("SMALLINT", "INT", "BIGINT", "NUMERIC(12, 0)", VARYING, "DATE")
    assert [name for name in declared if whole.fits_into(name)] == ["INT", "BIGINT", "NUMERIC(12, 0)", VARYING]
    tags = PostgresType(name="_int4", family="array", element=whole)
    assert [name for name in ("INT[]", "BIGINT[][]", "DATE[]", "INT", VARYING) if tags.fits_into(name)] == [
        "INT[]", "BIGINT[][]", VARYING,
    ]  # fmt: skip
    document = PostgresType(name="jsonb", family="json")
    assert document.fits_into("STRUCT<a INT>")
    assert document.fits_into("INT[]")
    assert not document.fits_into("INT")


def test_an_array_of_a_domain_over_arrays_keeps_the_text_of_its_elements() -> None:
    tags = PostgresType(name="_text", family="array", element=PostgresType(name="text", family="text"))
    rows = PostgresType(name="_tags", family="array", element=tags)
    convert = rows.converter("$1,234,567.89")
    assert convert is not None
    assert convert('{"{a,b}",NULL}') == '["{a,b}",null]'
    assert rows.canonical() == f"{VARYING}[]"
    assert [name for name in (f"{VARYING}[]", f"{VARYING}[][]", VARYING) if rows.fits_into(name)] == [
        f"{VARYING}[]", f"{VARYING}[][]", VARYING,
    ]  # fmt: skip
