"""PostgreSQL's types with values that are odd: NaN, infinity, years before Christ, numbers of 131,072 digits."""

from __future__ import annotations

from rw_sql.connectors.postgres_cdc.types import BUILT_IN, OTHER, PostgresType
from tests.support.declared_types import STAMP, VARYING, Kind

_HUGE = "('1' || repeat('0', 131071))::numeric"
_DOCUMENT = """'{"a": 1, "b": ["x", null]}'"""
_NESTED = "STRUCT<a INT, b CHARACTER VARYING[]>"

POSTGRES_KINDS: tuple[Kind, ...] = (
    Kind(type="boolean", by_star="BOOLEAN", values=("true", "false")),
    Kind(
        type="smallint", by_star="SMALLINT", values=("-32768", "32767"),
        others={
            "INT": (), "BIGINT": (), "NUMERIC": (), "NUMERIC(4, 0)": ("-32768", "32767"), "DOUBLE": (),
            "RW_INT256": (),
        },
    ),
    Kind(
        type="integer", by_star="INT", values=("2147483647", "-2147483648"),
        others={"BIGINT": (), "NUMERIC(12, 2)": (), "DOUBLE": (), "RW_INT256": ()},
    ),
    Kind(
        type="bigint", by_star="BIGINT", values=("9223372036854775807", "-9223372036854775808"),
        others={"NUMERIC": (), "DOUBLE": (), "RW_INT256": ()},
    ),
    Kind(type="oid", by_star="BIGINT", values=("4294967295",), others={"NUMERIC(10, 0)": (), "DOUBLE": ()}),
    Kind(
        type="numeric(10, 2)", by_star="NUMERIC(10, 2)", values=("-12345678.90", "1.50", "'NaN'"), refused=("'NaN'",),
        others={
            "NUMERIC(5, 1)": ("-12345678.90", "'NaN'"), "RW_INT256": ("-12345678.90", "1.50", "'NaN'"), "REAL": (),
            "DOUBLE": (),
        },
    ),
    Kind(
        type="numeric", by_star="NUMERIC",
        values=("0.1234567890", "1::numeric / 3", "1234567890123456789012345678", "'NaN'", "'-Infinity'", _HUGE),
        refused=("1::numeric / 3", "'NaN'", "'-Infinity'", _HUGE),
        others={
            "NUMERIC(38, 20)": ("1234567890123456789012345678", "'NaN'", "'-Infinity'", _HUGE),
            "RW_INT256": ("0.1234567890", "1::numeric / 3", "'NaN'", "'-Infinity'", _HUGE),
            "REAL": (_HUGE,),
            "DOUBLE": (_HUGE,),
        },
    ),
    Kind(type="numeric(50, 20)", by_star=VARYING, values=("1",), others={"NUMERIC": ()}),
    Kind(
        type="real", by_star="REAL", values=("'3.4028235e38'", "'NaN'", "'-Infinity'", "0.1", "'1e-45'"),
        others={"DOUBLE": ()},
    ),
    Kind(
        type="double precision", by_star="DOUBLE",
        values=("0.1::float8 + 0.2", "'NaN'", "'Infinity'", "'-1.7976931348623157e308'", "'5e-324'"),
    ),
    Kind(
        type="money", by_star="NUMERIC(20, 4)", values=("'-1234567.89'::numeric", "0"),
        others={"NUMERIC(12, 2)": (), "NUMERIC(4, 2)": ("'-1234567.89'::numeric",)},
    ),
    Kind(type="text", by_star=VARYING, values=("E'a\"b\\\\c\\nd\\te\\x01'", "''", "'ü漢🦀'")),
    Kind(type="varchar(5)", by_star=VARYING, values=("'ü漢🦀'",)),
    Kind(type="char(5)", by_star=VARYING, values=("'ab'",)),
    Kind(type='"char"', by_star=VARYING, values=("'x'",)),
    Kind(type="name", by_star=VARYING, values=("'pg_class'",)),
    Kind(type="xml", by_star=VARYING, values=("'<a>1</a>'::xml",)),
    Kind(
        type="uuid", by_star=VARYING, values=("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",), others={"UUID": ()},
    ),
    Kind(type="bytea", by_star="BYTEA", values=("'\\x00ff5c'", "''")),
    Kind(type="json", by_star="JSONB", values=("""'{"a":  1}'""",), others={"STRUCT<a INT>": ()}),
    Kind(
        type="jsonb", by_star="JSONB", values=(_DOCUMENT, """'{"a": 1.5}'""", "'[1]'"),
        others={_NESTED: ("""'{"a": 1.5}'""", "'[1]'")},
    ),
    Kind(
        type="jsonb", by_star="JSONB", values=("""'{"k": 1, "ü": null}'""", "'{}'", "'[1]'"),
        others={"MAP(CHARACTER VARYING, INT)": ("'[1]'",)},
    ),
    Kind(
        type="jsonb", by_star="JSONB", values=("'[1, 2, null]'", "'[]'", """'["x"]'"""),
        others={"INT[]": ("""'["x"]'""",), "INT[][]": ("'[1, 2, null]'", """'["x"]'""")},
    ),
    Kind(
        type="jsonb", by_star="JSONB", values=("""'[{"a": 1}, {"a": null}]'""",), others={"STRUCT<a INT>[]": ()},
    ),
    Kind(
        type="date", by_star="DATE",
        values=("'2024-02-29'", "'0001-01-01'", "'9999-12-31'", "'infinity'", "'0044-03-15 BC'", "'10000-01-01'"),
        refused=("'infinity'", "'0044-03-15 BC'", "'10000-01-01'"),
        others={"TIMESTAMP": ("'infinity'", "'0044-03-15 BC'", "'10000-01-01'")},
    ),
    Kind(
        type="timestamp", by_star="TIMESTAMP",
        values=(
            "'2024-02-29 23:59:59.123456'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'-infinity'",
            "'0044-03-15 12:00:00 BC'", "'294276-12-31 23:59:59.999999'",
        ),
        refused=("'-infinity'", "'0044-03-15 12:00:00 BC'", "'294276-12-31 23:59:59.999999'"),
    ),
    Kind(
        type="timestamptz", by_star=STAMP,
        values=(
            "'2024-07-01 12:00:00.123456+05:30'", "'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'",
            "'infinity'", "'4713-01-01 00:00:00+00 BC'",
        ),
        refused=("'infinity'", "'4713-01-01 00:00:00+00 BC'"),
    ),
    Kind(type="time", by_star=VARYING, values=("'24:00:00'", "'01:02:03.000001'")),
    Kind(type="timetz", by_star=VARYING, values=("'01:02:03.5-08'",)),
    Kind(type="interval", by_star=VARYING, values=("'1 year 2 mons -3 days 04:05:06.789'", "'0'")),
    Kind(type="bit(1)", by_star=VARYING, values=("B'1'", "B'0'"), others={"BOOLEAN": ()}),
    Kind(type="bit(3)", by_star=VARYING, values=("B'101'",), others={"BOOLEAN": ("B'101'",)}),
    Kind(type="bit varying(5)", by_star=VARYING, values=("B'1'",)),
    Kind(type="inet", by_star=VARYING, values=("'192.168.1.5'", "'2001:db8::1/64'")),
    Kind(type="cidr", by_star=VARYING, values=("'10.0.0.0/8'",)),
    Kind(type="macaddr", by_star=VARYING, values=("'08:00:2b:01:02:03'",)),
    Kind(type="point", by_star=VARYING, values=("'(1.5,2)'",)),
    Kind(type="polygon", by_star=VARYING, values=("'((0,0),(1,1))'",)),
    Kind(type="tsvector", by_star=VARYING, values=("'a:1 b'::tsvector",)),
    Kind(type="pg_lsn", by_star=VARYING, values=("'0/16B3748'",)),
    Kind(type="int4range", by_star=VARYING, values=("'[1,5]'",)),
    Kind(type="tstzrange", by_star=VARYING, values=("tstzrange('2024-01-01 00:00+00', NULL)",)),
    Kind(type="{s}.mood", by_star=VARYING, values=("'very \"well\"'",)),
    Kind(type="{s}.pair", by_star=VARYING, values=("ROW(1, 'a,b')::{s}.pair",)),
    Kind(type="{s}.age", by_star="INT", values=("42",), others={"BIGINT": ()}),
    Kind(type="{s}.price", by_star="NUMERIC(8, 3)", values=("1.5",), others={"DOUBLE": ()}),
    Kind(type="{s}.tags", by_star="CHARACTER VARYING[]", values=("ARRAY['x', NULL]",)),
    Kind(
        type="integer[]", by_star="INT[]", values=("ARRAY[1, NULL, -3]", "'{{1,2},{3,4}}'", "'[2:3]={5,6}'", "'{}'"),
        refused=("'{{1,2},{3,4}}'",),
        others={
            "BIGINT[]": ("'{{1,2},{3,4}}'",),
            "NUMERIC(12, 0)[]": ("'{{1,2},{3,4}}'",),
            "INT[][]": ("ARRAY[1, NULL, -3]", "'[2:3]={5,6}'"),
        },
    ),
    Kind(
        type="numeric(5, 1)[]", by_star="NUMERIC(5, 1)[]", values=("ARRAY[1.5, NULL]", "ARRAY[1.5, 'NaN'::numeric]"),
        refused=("ARRAY[1.5, 'NaN'::numeric]",),
        others={"NUMERIC(20, 5)[]": ("ARRAY[1.5, 'NaN'::numeric]",), "DOUBLE[]": ()},
    ),
    Kind(
        type="double precision[]", by_star="DOUBLE[]", values=("ARRAY['-Infinity'::float8, 1e300, 'NaN', NULL]",),
    ),
    Kind(type="boolean[]", by_star="BOOLEAN[]", values=("ARRAY[true, false, NULL]",)),
    Kind(
        type="text[]", by_star="CHARACTER VARYING[]",
        values=("""ARRAY['a,b', 'say "x"', E'\\\\', '', 'NULL', NULL, E'l\\n']""",),
    ),
    Kind(
        type="text[]", by_star="CHARACTER VARYING[]", values=("'{{a,b},{c,NULL}}'", """ARRAY['["q"]']"""),
        refused=("'{{a,b},{c,NULL}}'",), others={"CHARACTER VARYING[][]": ("""ARRAY['["q"]']""",)},
    ),
    Kind(type="bytea[]", by_star="BYTEA[]", values=("ARRAY['\\x00ff'::bytea, NULL]",)),
    Kind(
        type="jsonb[]", by_star="JSONB[]", values=("""ARRAY['{"a": 1}'::jsonb, NULL]""",),
        others={"STRUCT<a INT>[]": ()},
    ),
    Kind(
        type="date[]", by_star="DATE[]", values=("ARRAY['2024-02-29'::date]", "ARRAY['infinity'::date]"),
        refused=("ARRAY['infinity'::date]",), others={"TIMESTAMP[]": ("ARRAY['infinity'::date]",)},
    ),
    Kind(type="timestamptz[]", by_star=f"{STAMP}[]", values=("ARRAY['2024-01-01 00:00+00'::timestamptz]",)),
    Kind(type="box[]", by_star="CHARACTER VARYING[]", values=("ARRAY['(1,1),(0,0)'::box, '(3,3),(2,2)'::box]",)),
    Kind(type="{s}.mood[]", by_star="CHARACTER VARYING[]", values=("ARRAY['ok', NULL]::{s}.mood[]",)),
    Kind(type="{s}.pair[]", by_star="CHARACTER VARYING[]", values=("ARRAY[ROW(1, 'a')::{s}.pair]",)),
    Kind(
        type="uuid[]", by_star="CHARACTER VARYING[]", values=("ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid]",),
        others={"UUID[]": ()},
    ),
    Kind(type="money[]", by_star="NUMERIC(20, 4)[]", values=("ARRAY[12.5::numeric::money]",)),
)  # fmt: skip

_NAMES = {
    "boolean": "bool", "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4",
    "double precision": "float8", '"char"': "char", "char": "bpchar", "bit varying": "varbit",
    "{s}.age": "int4", "{s}.price": "numeric", "{s}.tags": "text[]",
}  # fmt: skip


def postgres_type(written: str) -> PostgresType:
    """The type that the connector finds in PostgreSQL's catalog for a type of POSTGRES_KINDS."""
    bare = written.removesuffix("[]")
    name = _NAMES.get(bare, _NAMES.get(bare.partition("(")[0], bare.partition("(")[0]))
    if written.endswith("[]") or name.endswith("[]"):
        return PostgresType(name="_", family="array", element=postgres_type(name.removesuffix("[]")))
    return PostgresType(name=name, family=BUILT_IN.get(name, (VARYING, OTHER))[1])
