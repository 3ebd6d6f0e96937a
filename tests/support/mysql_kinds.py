"""MariaDB's types with values that are odd: unsigned numbers, dates of zero, times of 838 hours, 65 digits."""

from __future__ import annotations

from tests.support.declared_types import STAMP, VARYING, Kind

_LONG = "-99999999999999999999999999999999999.999999999999999999999999999999"
_LARGEST = "18446744073709551615"

MYSQL_KINDS: tuple[Kind, ...] = (
    Kind(
        type="tinyint", by_star="SMALLINT", values=("-128", "0", "1"),
        others={"BOOLEAN": ("-128",), "INT": (), "BIGINT": (), "NUMERIC(3, 0)": (), "DOUBLE": ()},
    ),
    Kind(type="tinyint unsigned", by_star="SMALLINT", values=("255",), others={"INT": (), "NUMERIC": ()}),
    Kind(type="smallint", by_star="SMALLINT", values=("-32768",), others={"INT": (), "BIGINT": (), "DOUBLE": ()}),
    Kind(type="smallint unsigned", by_star="INT", values=("65535",), others={"BIGINT": (), "NUMERIC": ()}),
    Kind(type="mediumint", by_star="INT", values=("-8388608",), others={"BIGINT": ()}),
    Kind(type="mediumint unsigned", by_star="INT", values=("16777215",), others={"BIGINT": ()}),
    Kind(
        type="int", by_star="INT", values=("-2147483648", "2147483647"),
        others={"BIGINT": (), "NUMERIC(12, 2)": (), "DOUBLE": ()},
    ),
    Kind(
        type="int unsigned", by_star="BIGINT", values=("4294967295",),
        others={"NUMERIC": (), "RW_INT256": (), "DOUBLE": ()},
    ),
    Kind(type="int(8) unsigned zerofill", by_star="BIGINT", values=("42",), others={"NUMERIC(8, 0)": ()}),
    Kind(
        type="bigint", by_star="BIGINT", values=("-9223372036854775808", "9223372036854775807"),
        others={"NUMERIC": (), "DOUBLE": ()},
    ),
    Kind(
        type="bigint unsigned", by_star="NUMERIC(20, 0)", values=("9223372036854775807", _LARGEST),
        others={"BIGINT": (_LARGEST,), "NUMERIC": (), "RW_INT256": (), "DOUBLE": ()},
    ),
    Kind(
        type="decimal(10,2)", by_star="NUMERIC(10, 2)", values=("-12345678.90", "1.50"),
        others={"NUMERIC(5, 1)": ("-12345678.90",), "NUMERIC": (), "DOUBLE": ()},
    ),
    Kind(type="decimal(38,10)", by_star="NUMERIC(38, 10)", values=("1234567890123456789012345678.0123456789",)),
    Kind(
        type="decimal(65,30)", by_star=VARYING, values=(_LONG, "1.5"),
        others={"NUMERIC": (_LONG,), "NUMERIC(38, 20)": (_LONG,), "DOUBLE": ()},
    ),
    Kind(type="float", by_star="REAL", values=("16777217", "0.1", "-3.4e38"), others={"DOUBLE": ()}),
    Kind(type="double", by_star="DOUBLE", values=("0.1", "-1.7976931348623157e308", "5e-324")),
    Kind(type="bit(1)", by_star="BOOLEAN", values=("b'1'", "b'0'")),
    Kind(type="bit(12)", by_star="BYTEA", values=("b'101000001010'",)),
    Kind(type="bit(64)", by_star="BYTEA", values=("0xFFFFFFFFFFFFFFFE",)),
    Kind(type="char(5)", by_star=VARYING, values=("'a b  '",)),
    Kind(type="varchar(30)", by_star=VARYING, values=("'ü 漢 🦀'", "''")),
    Kind(type="varchar(10) character set latin1", by_star=VARYING, values=("'ä€'",)),
    Kind(type="varchar(10) character set utf32", by_star=VARYING, values=("'🦀'",)),
    Kind(
        type="varchar(36)", by_star=VARYING, values=("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",), others={"UUID": ()},
    ),
    Kind(type="text", by_star=VARYING, values=("'say \"x\" \\\\ \\n\\t\\0'", "REPEAT('x', 70)")),
    Kind(type="binary(4)", by_star="BYTEA", values=("x'0100'",)),
    Kind(type="varbinary(30)", by_star="BYTEA", values=("x'00ff00'",)),
    Kind(type="blob", by_star="BYTEA", values=("''", "x'deadbeef'")),
    Kind(type="enum('a','say \"it\"','c,d','d''e')", by_star=VARYING, values=("'d''e'", "'c,d'")),
    Kind(type="set('x','y','z')", by_star=VARYING, values=("'z,x'", "''")),
    Kind(
        type="date", by_star="DATE", values=("'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2024-00-07'"),
        refused=("'0000-00-00'", "'2024-00-07'"), others={"TIMESTAMP": ("'0000-00-00'", "'2024-00-07'")},
    ),
    Kind(
        type="datetime(6)", by_star="TIMESTAMP",
        values=("'2024-02-29 23:59:59'", "'9999-12-31 23:59:59.123456'", "'0000-00-00 00:00:00'"),
        refused=("'0000-00-00 00:00:00'",),
    ),
    Kind(
        type="timestamp(3) null", by_star=STAMP,
        values=("'2024-07-01 12:00:00.123'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"),
        refused=("'0000-00-00 00:00:00'",),
    ),
    Kind(type="time(6)", by_star=VARYING, values=("'-838:59:59'", "'-00:00:00.000001'", "'100:01:02.5'")),
    Kind(
        type="year", by_star="INT", values=("2155", "'0000'"), others={"SMALLINT": (), "BIGINT": (), "NUMERIC": ()},
    ),
    Kind(
        type="json", by_star="JSONB", values=("""'{"a": 1, "b": ["x", null]}'""", """'{"a": 1.5}'""", "'[1]'"),
        others={"STRUCT<a INT, b CHARACTER VARYING[]>": ("""'{"a": 1.5}'""", "'[1]'")},
    ),
    Kind(
        type="json", by_star="JSONB", values=("""'{"k": 1, "ü": null}'""", "'[1]'"),
        others={"MAP(CHARACTER VARYING, INT)": ("'[1]'",)},
    ),
    Kind(
        type="json", by_star="JSONB", values=("'[1, 2, null]'", "'[[1], [2, 3]]'"),
        others={"INT[]": ("'[[1], [2, 3]]'",), "INT[][]": ("'[1, 2, null]'",)},
    ),
    Kind(type="point", by_star="BYTEA", values=("ST_GeomFromText('POINT(1 -2)')",)),
    Kind(type="inet6", by_star=VARYING, values=("'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'")),
    Kind(type="inet4", by_star=VARYING, values=("'192.0.2.0'",)),
    Kind(
        type="uuid", by_star=VARYING, values=("'123e4567-e89b-42d3-a456-426655440000'",), others={"UUID": ()},
    ),
)  # fmt: skip
