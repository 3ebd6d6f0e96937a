"""A value of every type: the text of the log, of the snapshot, and of a SELECT there."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError, SchemaChange
from rw_sql.connectors.mysql_cdc.decoder import Records, decode_rows
from rw_sql.connectors.mysql_cdc.events import RowsPart
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.connectors.mysql_cdc.types import labels_of, type_of
from tests.support.captured import read_on
from tests.support.mysql import MARIADB, SERVERS
from tests.support.mysql_changes import Replica, cdc_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.mysql import MysqlInfo

pytestmark = pytest.mark.mysql

VARYING = "CHARACTER VARYING"
STAMP = "TIMESTAMP WITH TIME ZONE"

TYPES = (
    ("tinyint", "-128", "SMALLINT", "-128"),
    ("tinyint(1)", "1", "SMALLINT", "1"),
    ("tinyint unsigned", "255", "SMALLINT", "255"),
    ("smallint", "-32768", "SMALLINT", "-32768"),
    ("year", "2155", "INT", "2155"),
    ("smallint unsigned", "65535", "INT", "65535"),
    ("mediumint", "-8388608", "INT", "-8388608"),
    ("mediumint unsigned", "16777215", "INT", "16777215"),
    ("int", "-2147483648", "INT", "-2147483648"),
    ("int unsigned", "4294967295", "BIGINT", "4294967295"),
    ("int(8) unsigned zerofill", "42", "BIGINT", "42"),
    ("bigint", "-9223372036854775808", "BIGINT", "-9223372036854775808"),
    ("bigint unsigned", "18446744073709551615", "NUMERIC(20, 0)", "18446744073709551615"),
    ("decimal(10,2)", "-12345678.90", "NUMERIC(10, 2)", "-12345678.90"),
    ("decimal(5,0)", "0", "NUMERIC(5, 0)", "0"),
    ("decimal(9,9)", "-0.000000001", "NUMERIC(9, 9)", "-0.000000001"),
    ("decimal(38,10)", "1234567890123456789012345678.0123456789", "NUMERIC(38, 10)",
     "1234567890123456789012345678.0123456789"),
    ("decimal(65,30)", "-99999999999999999999999999999999999.999999999999999999999999999999", VARYING,
     "-99999999999999999999999999999999999.999999999999999999999999999999"),
    ("decimal(20,3) unsigned", "7", "NUMERIC(20, 3)", "7.000"),
    ("float", "16777217", "REAL", "1.6777216e+07"),
    ("float", "0.1", "REAL", "0.1"),
    ("float", "-3.4e38", "REAL", "-3.4e+38"),
    ("double", "0.1", "DOUBLE", "0.1"),
    ("double", "-1.7976931348623157e308", "DOUBLE", "-1.7976931348623157e+308"),
    ("double(10,3)", "1.5", "DOUBLE", "1.5"),
    ("bit(1)", "b'1'", "BOOLEAN", "1"),
    ("bit(12)", "b'101000001010'", "BYTEA", "\\x0a0a"),
    ("bit(64)", "0xFFFFFFFFFFFFFFFE", "BYTEA", "\\xfffffffffffffffe"),
    ("char(5)", "'a b  '", VARYING, "a b"),
    ("varchar(300)", "'ü 漢 🦀'", VARYING, "ü 漢 🦀"),
    ("varchar(10) character set latin1", "'ä€'", VARYING, "ä€"),
    ("char(4) character set latin1", "x'8184'", VARYING, "\x81„"),
    ("varchar(10) character set cp1251", "'Жук'", VARYING, "Жук"),
    ("varchar(10) character set utf16", "'ü漢'", VARYING, "ü漢"),
    ("varchar(10) character set ucs2", "'aü'", VARYING, "aü"),
    ("varchar(10) character set utf32", "'🦀'", VARYING, "🦀"),
    ("varchar(10) character set sjis", "'漢字'", VARYING, "漢字"),
    ("varchar(10) character set gbk", "'汉字'", VARYING, "汉字"),
    ("text character set koi8r", "'Привет'", VARYING, "Привет"),
    ("tinytext", "''", VARYING, ""),
    ("text", "'say \"x\" \\\\ \\n\\t\\0'", VARYING, 'say "x" \\ \n\t\0'),
    ("mediumtext", "REPEAT('x', 70000)", VARYING, "x" * 70000),
    ("longtext", "'long'", VARYING, "long"),
    ("binary(4)", "x'0100'", "BYTEA", "\\x01000000"),
    ("varbinary(300)", "x'00ff00'", "BYTEA", "\\x00ff00"),
    ("blob", "''", "BYTEA", "\\x"),
    ("longblob", "x'deadbeef'", "BYTEA", "\\xdeadbeef"),
    ("enum('a','say \"it\"','c,d','d''e')", "'d''e'", VARYING, "d'e"),
    ("enum('ä','b') character set latin1", "'ä'", VARYING, "ä"),
    ("set('x','y','z')", "'z,x'", VARYING, "x,z"),
    ("set('x')", "''", VARYING, ""),
    ("date", "'1000-01-01'", "DATE", "1000-01-01"),
    ("date", "'9999-12-31'", "DATE", "9999-12-31"),
    ("date", "'0000-00-00'", "DATE", "0000-00-00"),
    ("date", "'2024-00-07'", "DATE", "2024-00-07"),
    ("datetime", "'2024-02-29 23:59:59'", "TIMESTAMP", "2024-02-29 23:59:59"),
    ("datetime(6)", "'9999-12-31 23:59:59.123456'", "TIMESTAMP", "9999-12-31 23:59:59.123456"),
    ("datetime(1)", "'2024-01-01 00:00:00.5'", "TIMESTAMP", "2024-01-01 00:00:00.5"),
    ("datetime", "'0000-00-00 00:00:00'", "TIMESTAMP", "0000-00-00 00:00:00"),
    ("timestamp(3) null", "'2024-07-01 12:00:00.123'", STAMP, "2024-07-01 12:00:00.123+00"),
    ("timestamp null", "'2038-01-19 03:14:07'", STAMP, "2038-01-19 03:14:07+00"),
    ("timestamp null", "'0000-00-00 00:00:00'", STAMP, "0000-00-00 00:00:00+00"),
    ("time", "'-838:59:59'", VARYING, "-838:59:59"),
    ("time(6)", "'-00:00:00.000001'", VARYING, "-00:00:00.000001"),
    ("time(2)", "'100:01:02.5'", VARYING, "100:01:02.50"),
    ("time(3)", "'-01:00:00.250'", VARYING, "-01:00:00.250"),
    ("year", "'0000'", "INT", "0000"),
    ("json", "'{\"a\": [1, -2.5, \"x\", null, true, {\"b\": 18446744073709551615}], \"ü\": \"\\\\u00e4\"}'", "JSONB",
     None),
    ("json", "'[]'", "JSONB", "[]"),
    ("point", "ST_GeomFromText('POINT(1 -2)')", "BYTEA", "\\x000000000101000000000000000000f03f00000000000000c0"),
    ("geometry", "ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)", "BYTEA", None),
)  # fmt: skip
"""MySQL's type, a value, the type of ``(*)``, and the text (None: what a SELECT returns)."""

OF_MARIADB = (
    ("inet6", "'2001:db8::ff00:42:8329'", VARYING, "2001:db8::ff00:42:8329"),
    ("inet6", "'::ffff:192.0.2.1'", VARYING, "::ffff:192.0.2.1"),
    ("inet6", "'::'", VARYING, "::"),
    ("inet6", "'1:2:0:4:5:6:7:8'", VARYING, "1:2::4:5:6:7:8"),
    ("inet6", "'1:0:3:0:5:6:7:0'", VARYING, "1::3:0:5:6:7:0"),
    ("inet6", "'0:0:3:4:0:0:7:8'", VARYING, "::3:4:0:0:7:8"),
    ("inet6", "'1:2:3:4:5:6:7:0'", VARYING, "1:2:3:4:5:6:7::"),
    ("inet6", "'::1.2.3.4'", VARYING, "::1.2.3.4"),
    ("inet6", "'::5'", VARYING, "::5"),
    ("inet6", "'0:0:0:0:0:1:0:5'", VARYING, "::1:0:5"),
    ("inet6", "'::fffe:1.2.3.4'", VARYING, "::fffe:102:304"),
    ("inet4", "'192.0.2.0'", VARYING, "192.0.2.0"),
    ("varchar(100) compressed", "'short ü'", VARYING, "short ü"),
    ("varchar(900) compressed", "REPEAT('ü', 400)", VARYING, "ü" * 400),
    ("varchar(200) compressed character set latin1", "REPEAT('ä', 150)", VARYING, "ä" * 150),
    ("text compressed", "REPEAT('x', 70)", VARYING, "x" * 70),
    ("mediumtext compressed", "REPEAT('ab', 50000)", VARYING, "ab" * 50000),
    ("text compressed character set latin1", "''", VARYING, ""),
    ("blob compressed", "REPEAT(x'00ff', 200)", "BYTEA", "\\x" + "00ff" * 200),
    ("varbinary(300) compressed", "x'00ff00'", "BYTEA", "\\x00ff00"),
    ("varchar(20) character set latin1", "'after ä'", VARYING, "after ä"),
    ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", VARYING, "123e4567-e89b-12d3-a456-426655440000"),
    ("uuid", "'123e4567-e89b-42d3-a456-426655440000'", VARYING, "123e4567-e89b-42d3-a456-426655440000"),
    ("uuid", "'018f4e6a-7b1c-7def-8123-456789abcdef'", VARYING, "018f4e6a-7b1c-7def-8123-456789abcdef"),
)


def same_json(one: str | None, other: str | None) -> bool:
    return one == other or (one is not None and other is not None and json.loads(one) == json.loads(other))


@pytest.mark.parametrize("kind", [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])])
def test_a_value_of_every_type_by_the_stream_and_by_the_snapshot(
    servers: Callable[[str], MysqlInfo], kind: str
) -> None:
    server = servers(kind)
    database = f"y_{uuid.uuid4().hex[:8]}"
    server.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    types = (*TYPES, *(OF_MARIADB if kind == MARIADB else ()))
    columns = ", ".join(f"c{at} {written}" for at, (written, _, _, _) in enumerate(types))
    values = ", ".join(value for _, value, _, _ in types)
    table = f"{database}.every"
    lax = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    server.run(
        lax, f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}, made INT AS (id * 2) STORED) ROW_FORMAT = DYNAMIC"
    )
    insert = f"INSERT INTO {table} ({', '.join(['id', *(f'c{at}' for at in range(len(types)))])}) VALUES"
    server.run(lax, f"{insert} (1, {values})", f"{insert} (2{', NULL' * len(types)})")
    options = cdc_options(server, database)
    described = MysqlCdcConnector().describe_table(options, table)
    assert [column.canonical for column in described.columns[1:-1]] == [canonical for _, _, canonical, _ in types]
    assert (described.columns[-1].canonical, described.key) == (None, ("id",))
    replica = Replica(options, [table])
    replica.catch_up()
    server.run(lax, f"{insert} (3, {values})")
    server.run(f"UPDATE {table} SET id = 4 WHERE id = 2")
    replica.catch_up()
    rows = {row["id"]: row for row in replica.rows[table].values()}
    for at, (written, value, canonical, text) in enumerate(types):
        snapshot, stream = rows["1"][f"c{at}"], rows["3"][f"c{at}"]
        if canonical == "JSONB":
            assert same_json(snapshot, stream), (written, value)
        else:
            assert snapshot == stream, (written, value)
        assert text is None or stream == text, (written, value)
        assert rows["4"][f"c{at}"] is None
    assert "made" not in rows["1"]
    assert set(rows) == {"1", "3", "4"}
    if kind == MARIADB:
        assert replica.differences() == {}
    replica.close()


def test_a_value_that_cannot_be_read_names_its_column_and_row(mariadb: MysqlInfo) -> None:
    database = f"y_{uuid.uuid4().hex[:8]}"
    mariadb.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (word VARCHAR(10) CHARACTER SET utf8mb4, id INT PRIMARY KEY)",
    )
    replica = Replica(cdc_options(mariadb, database), [f"{database}.t"])
    replica.catch_up()
    # A client can only store such bytes by a column of bytes that is made a text without a conversion.
    mariadb.run(f"INSERT INTO {database}.t VALUES ('fine', 1)")
    replica.catch_up()
    assert replica.reader is not None
    known = replica.reader._known._known[f"{database}.t"][1]
    broken = RowsPart(1, "write", b"\xfc\x02\xc3\x28\x07\x00\x00\x00", 0, 2, True)
    with pytest.raises(CaptureError, match=rf'column "word" of table {database}.t, row \(id = 7\): the value cannot'):
        decode_rows(known, broken, Records("d"), 1, 0, 0, None)
    replica.close()


def test_a_table_declared_with_other_columns_is_read_again_after_a_change(mariadb: MysqlInfo) -> None:
    database = f"y_{uuid.uuid4().hex[:8]}"
    mariadb.run(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b TEXT)")
    replica = Replica(cdc_options(mariadb, database), [f"{database}.t"])
    replica.catch_up()
    mariadb.run(f"INSERT INTO {database}.t VALUES (1, 1, 'x')")
    replica.catch_up()
    mariadb.run(
        f"ALTER TABLE {database}.t ADD c DECIMAL(5,2) DEFAULT 1.5 FIRST, DROP b, MODIFY a BIGINT",
        f"INSERT INTO {database}.t (id, a) VALUES (2, 5000000000)",
    )
    changes: list[SchemaChange] = []
    while len(changes) < 2:
        changes += replica.step(wait=0.2).changes
    dropped, change = changes
    assert (dict(dropped.added), dict(dropped.dropped)) == ({}, {"b": "text"}), "by the statement"
    assert (dict(change.added), dict(change.dropped)) == ({"c": "decimal(5,2)"}, {}), "by the rows"
    assert (dict(change.retyped), dict(change.old)) == ({"a": "bigint(20)"}, {"a": "int(11)"})
    assert replica.rows[f"{database}.t"]['["2"]'] == {"c": "1.50", "id": "2", "a": "5000000000"}
    replica.close()
    mariadb.run(f"DROP TABLE {database}.t", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    with pytest.raises(CaptureError, match="was dropped at 000001:"):
        read_on(replica)


def test_the_declared_types_that_values_fit() -> None:
    small = type_of("tinyint", "tinyint(1)", 3, 0, is_json=False)
    declared = ("BOOLEAN", "SMALLINT", "INT", "BIGINT", "NUMERIC(12, 0)", VARYING, "DATE")
    assert [name for name in declared if small.fits_into(name)] == list(declared[:-1])
    large = type_of("bigint", "bigint(20) unsigned", 20, 0, is_json=False)
    assert [name for name in declared if large.fits_into(name)] == ["BIGINT", "NUMERIC(12, 0)", VARYING]
    assert type_of("json", "json", None, None, is_json=False).fits_into("STRUCT<a INT>")
    assert type_of("vector", "vector(3)", None, None, is_json=False).canonical is None
    assert labels_of("enum('a','it''s',',')") == ("a", "it's", ",")
