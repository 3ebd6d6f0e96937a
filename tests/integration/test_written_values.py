"""Values in the forms that writers use: each is read exactly, or the record is an error, the same in every format."""

from __future__ import annotations

import csv
import json
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.model.relations import Relation
from rw_sql.plan.ports.queries import TABLESAMPLE, WHOLE, AnalyzedQuery
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode
from rw_sql.runtime.spark.query_analysis import analyze
from tests.integration.test_change_formats import definition, plain, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

REFUSED = object()
NULL = object()

# For each type, JSON values in their written form, and their texts.
WRITTEN: dict[str, dict[str, Any]] = {
    "SMALLINT": {
        "5": "5", '"5"': "5", "-32768": "-32768", "32768": REFUSED, "70000": REFUSED, "1e3": REFUSED, "1.0": REFUSED,
        '"x"': REFUSED, "true": REFUSED, "null": NULL, '"٣"': REFUSED, r'"\u00015"': REFUSED, r'"5\u001f"': REFUSED,
    },
    "INT": {"2147483648": REFUSED, '"+7"': "7", '"1_000"': REFUSED, '"1e3"': REFUSED, '"0x10"': REFUSED},
    "BIGINT": {
        "9223372036854775807": "9223372036854775807", "9223372036854775808": REFUSED, "-9223372036854775809": REFUSED,
        '"9223372036854775808"': REFUSED, '"12L"': REFUSED,
    },
    "BOOLEAN": {
        "true": "True", '"true"': "True", '"FALSE"': "False", "1": "True", "0": "False", '"0"': "False",
        '"t"': REFUSED, '"yes"': REFUSED, "2": REFUSED,
    },
    "DOUBLE": {
        "1": "1.0", '"2.5"': "2.5", "1e3": "1000.0", '"1e400"': REFUSED, "1e400": REFUSED, "-1e400": REFUSED,
        '"Infinity"': "inf", '"-inf"': "-inf", '"NaN"': "nan", '"1d"': REFUSED, '"0x1p3"': REFUSED, '"1,5"': REFUSED,
    },
    "REAL": {"1.5": "1.5", "4e38": REFUSED, '"4e38"': REFUSED},
    "NUMERIC(10, 2)": {
        "1.23": "1.23", "1.2300": "1.23", '"1.230"': "1.23", "1.239": REFUSED, '"1.239"': REFUSED, "1e3": "1000.00",
        '"1e3"': "1000.00", "123.456e1": "1234.56",
        "123.4567e1": REFUSED, "123456789.1": REFUSED, '"1,5"': REFUSED, '"1,234.5"': REFUSED,
        "1.0000000000000001e0": REFUSED, "12000e-4": "1.20", "0.00e-7": "0.00", '"+.12E+1 "': "1.20",
        "-0.005": REFUSED, "1e-30": REFUSED, '"NaN"': REFUSED, '"∞"': REFUSED, '"1_0"': REFUSED,
        '"٣"': REFUSED, '"٥e-3"': REFUSED, '"1.٥"': REFUSED, '"-１E1"': REFUSED, '"1’000"': REFUSED,
        r'"\u0663"': REFUSED, r'"1\uFF11"': REFUSED, r'"1\u2019000"': REFUSED, r'"\u00011"': REFUSED,
    },
    "NUMERIC": {
        "12345678901234567890.1234567891": "12345678901234567890.1234567891", "1e27": "1" + "0" * 27 + ".0000000000",
        "12345678901234567890.12345678912": REFUSED, "1.12345678912": REFUSED, "1e28": REFUSED, '"1e-11"': REFUSED,
        "1.5000000000000": "1.5000000000",
    },
    "NUMERIC(38, 0)": {"9" * 38: "9" * 38, "9" * 39: REFUSED, "1.0": "1", "1.5": REFUSED},
    "DATE": {
        '"2024-02-29"': "2024-02-29", "19000": "2022-01-08", '"2024-02-29T00:00:00Z"': "2024-02-29",
        '"2024-02-29Z"': "2024-02-29", '"2024-02-29T10:00:00"': REFUSED, '"2024-02-29 or so"': REFUSED,
        '"2024-02-30"': REFUSED, '"12024-01-01"': REFUSED, '"0044-03-15 BC"': REFUSED, '"infinity"': REFUSED,
        "1704067200000": REFUSED, "[2024,1,1]": REFUSED, '"01/02/2024"': REFUSED,
        '"2024-02-29+02 Z"': REFUSED, '"2024-02-29T00:00+02:00[UTC]"': REFUSED, '"2024-02-29+0200 CEST"': "2024-02-29",
        '"2024-02-29Z +02"': REFUSED, '"2024-02-29 00:00:00 UTC +02"': REFUSED,
    },
    "TIMESTAMP": {
        '"2024-01-01T10:20"': "2024-01-01 10:20:00", '"2024-01-01 10:20:30.5"': "2024-01-01 10:20:30.500000",
        '"2024-01-01 10:20:30.123456000"': "2024-01-01 10:20:30.123456", '"2024-01-01 10:20:30.123456789"': REFUSED,
        '"2024-01-01T10:20:30Z"': "2024-01-01 10:20:30", '"2024-01-01T10:20:30+00:00"': "2024-01-01 10:20:30",
        '"2024-01-01T10:20:30+02:00"': REFUSED, "1700000000123456000": "2023-11-14 22:13:20.123456",
        "1700000000123456789": REFUSED, '"2024-01-01 24:00:00"': REFUSED, "[2024,1,1,0,0]": REFUSED,
        '"2024-01-01 10:20:30 BC"': REFUSED, '"infinity"': REFUSED, "1704067200.5": REFUSED,
        '"9999-12-31 23:59:59.999999"': "9999-12-31 23:59:59.999999", "9223372036854775807": REFUSED,
        '"2024-01-01 02:00:00 UTC +02"': REFUSED, '"2024-01-01 02:00:00Z PM"': REFUSED,
        '"2024-01-01 02:00:00 +00 Z"': REFUSED, '"2024-01-01 02:00:00 +00 UTC"': "2024-01-01 02:00:00",
        '"2024-01-01 02:00:00 +00 +0030"': REFUSED, '"2024-01-01 02:00:00Z[+02:00]"': REFUSED,
        '"2024-01-01 02:00:00 +00 +02"': REFUSED, '"2024-01-01 02:00:00 +0000 +00"': "2024-01-01 02:00:00",
    },
    "TIMESTAMPTZ": {
        # Java
        '"2024-01-01T00:00:00Z"': "2024-01-01 00:00:00", '"2024-01-01T00:00:00.123456789Z"': REFUSED,
        '"2024-01-01T01:00+01:00[Europe/Berlin]"': "2024-01-01 00:00:00",
        '"2024-01-01T00:00Z[UTC]"': "2024-01-01 00:00:00", '"2024-01-01T00:00Z"': "2024-01-01 00:00:00",
        '"Mon Jan 01 00:00:00 CET 2024"': REFUSED, '"+12024-01-01T00:00:00Z"': REFUSED,
        '"-0044-03-15T00:00:00Z"': REFUSED,
        # Go
        '"2024-01-01T00:00:00.1234567Z"': REFUSED, '"2024-01-01T00:00:00.123456000Z"': "2024-01-01 00:00:00.123456",
        '"2024-01-01 00:00:00.5 +0000 UTC"': "2024-01-01 00:00:00.500000",
        '"2024-01-01 01:00:00 +0100 CET m=+0.001"': "2024-01-01 00:00:00",
        '"2024-01-01 03:00:00 +0300 +03"': "2024-01-01 00:00:00",
        '"2024-01-01 03:30:00 +0330 +0330"': "2024-01-01 00:00:00", '"2024-01-01 03:00:00 +0300 +02"': REFUSED,
        '"2023-12-31 21:00:00 -0300 ADT"': "2024-01-01 00:00:00", '"2024-01-01 02:00:00 +02 AD"': REFUSED,
        # A zone is written once, and the hours are those of a day.
        '"2024-01-01 02:00:00 UTC +02"': REFUSED, '"2024-01-01 02:00:00 GMT +0200"': REFUSED,
        '"2024-01-01 02:00:00Z PM"': REFUSED, '"2024-01-01 02:00:00 UTC PM"': REFUSED,
        '"2024-01-01 02:00:00Z CET"': REFUSED,
        # A second zone that contradicts the first.
        '"2024-01-01 02:00:00 +02 Z"': REFUSED, '"2024-01-01 02:00:00+02:00Z"': REFUSED,
        '"2024-01-01 02:00:00 +0200 UTC"': REFUSED, '"2024-01-01 02:00:00+02GMT"': REFUSED,
        '"2024-01-01 00:00:00 +00 Z"': REFUSED, '"2024-01-01 00:00:00 +0000 GMT"': "2024-01-01 00:00:00",
        '"2024-01-01 00:00:00 -00:00 UTC"': "2024-01-01 00:00:00", '"2024-01-01 03:30:00 +0330 UTC"': REFUSED,
        '"2024-01-01 00:00:00 +0030 UTC"': REFUSED, '"2024-01-01 02:00:00 +02 T"': REFUSED,
        '"2024-01-01 03:30:00 +0330 +0345"': REFUSED, '"2024-01-01 03:30:00 +0330 +03"': REFUSED,
        '"2024-01-01 03:00:00 +0300 +0330"': REFUSED, '"2024-01-01 03:00:00 +03:00 +03 m=+1.5"': "2024-01-01 00:00:00",
        '"2024-01-01T02:00+02:00[UTC]"': REFUSED, '"2024-01-01T02:00+02:00[Etc/UTC]"': REFUSED,
        '"2024-01-01T02:00+02:00[Z]"': REFUSED, '"2024-01-01T02:00+02:00[GMT0]"': REFUSED,
        '"2024-01-01T02:00+02:00[+03:00]"': REFUSED, '"2024-01-01T02:00+02:00[UTC+03:00]"': REFUSED,
        '"2024-01-01T02:00Z[UTC+02:00]"': REFUSED, '"2024-01-01T02:00Z[GMT+2]"': REFUSED,
        '"2024-01-01T02:00+02:00[UTC+02:00]"': "2024-01-01 00:00:00",
        '"2024-01-01T02:00+02:00[Etc/GMT-2]"': "2024-01-01 00:00:00",
        '"2024-01-01T00:00+00:00[Etc/UTC]"': "2024-01-01 00:00:00", '"2024-01-01T00:00Z[GMT]"': "2024-01-01 00:00:00",
        '"2024-01-01 02:00:00 UTC m=+0.1"': REFUSED, '"2024-01-01 02:00:00 +0000 PM"': REFUSED,
        '"2024-01-01 02:00:00+00AM"': REFUSED, '"2024-01-01T00:00:00 GMT[Europe/London]"': "2024-01-01 00:00:00",
        # Python, Rust
        '"2024-01-01 00:00:00+00:00"': "2024-01-01 00:00:00", '"2024-01-01 02:00:00 +02:00"': "2024-01-01 00:00:00",
        '"2024-01-01 00:00:00.000001 UTC"': "2024-01-01 00:00:00.000001",
        # JavaScript
        '"2024-01-01T00:00:00.123Z"': "2024-01-01 00:00:00.123000",
        '"Mon Jan 01 2024 01:00:00 GMT+0100 (Central European Standard Time)"': REFUSED,
        '"Mon, 01 Jan 2024 00:00:00 GMT"': REFUSED,
        # PostgreSQL
        '"2024-01-01 02:00:00+02"': "2024-01-01 00:00:00", '"2024-01-01 05:30:15+05:30:15"': "2024-01-01 00:00:00",
        '"2024-01-01 24:00:00+00"': REFUSED, '"0044-03-15 00:00:00+00 BC"': REFUSED, '"infinity"': REFUSED,
        '"01/01/2024 00:00:00 CET"': REFUSED, '"2024-01-01T00:00:60Z"': REFUSED,
        '"9999-12-31T23:59:59-05:00"': REFUSED, '"0001-01-01T00:00:00+05:00"': REFUSED,
        "1700000000123": "2023-11-14 22:13:20.123000", "1700000000123456789": REFUSED,
        "9223372036854775807": REFUSED,
    },
}  # fmt: skip

NESTED: dict[str, dict[str, Any]] = {
    "STRUCT<a TIMESTAMPTZ, b NUMERIC(10, 2), c DOUBLE[]>": {
        '{"a":1700000000123,"b":1.25,"c":[1,2.5]}': {
            "a": "2023-11-14 22:13:20.123000+00:00", "b": "1.25", "c": [1, 2.5],
        },
        '{"a":"2024-01-01T00:00:00.000000001Z"}': REFUSED, '{"b":"1,5"}': REFUSED, '{"b":1.239}': REFUSED,
        '{"c":[1e400]}': REFUSED, '{"c":5}': REFUSED, '{"b":12345678.91}': {"a": None, "b": "12345678.91", "c": None},
        "5": REFUSED, "{}": {"a": None, "b": None, "c": None}, '{"a":null}': {"a": None, "b": None, "c": None},
    },
    "NUMERIC[]": {
        "[12345678901234567890.5, 1]": ["12345678901234567890.5000000000", "1.0000000000"], '["x"]': REFUSED,
        "[[1]]": REFUSED, '{"a":1}': REFUSED, "[null]": [None],
        '["1", "٣"]': REFUSED, r'["\u0663"]': REFUSED,
    },
    "INT[]": {"[1,2]": [1, 2], "[1.5]": REFUSED, "[3000000000]": REFUSED, '["7"]': [7]},
    "MAP(NUMERIC, INT)": {'{"٣":1}': REFUSED, '{"3":"٣"}': REFUSED},
    "MAP(VARCHAR, DATE)": {'{"a":19000}': [("a", "2022-01-08")], '{"a":"2024-02-30"}': REFUSED},
}  # fmt: skip


def read(spark: SparkSession, kinds: Sequence[str], format: str, values: list[bytes]) -> list[dict[str, Any] | object]:
    """Decodes records with the columns ``v0``, ``v1`` … of these types; returns their values, or REFUSED.

    One query for all types, because compiling it takes Spark longer than running it.
    """
    key = ", PRIMARY KEY (id)" if format == "DEBEZIUM ENCODE JSON" else ""
    columns = ", ".join(f"v{number} {kind}" for number, kind in enumerate(kinds))
    statement = definition(
        f"CREATE SOURCE t (id INT, {columns}{key}) WITH (connector = 'kafka', topic = 't', "
        f"properties.bootstrap.server = 'b:9092') FORMAT {format}"
    )
    frame = decode(records_of(spark, [(None, value) for value in values]), statement, run=1, batch=0, bucket=0)
    found = {row[OFFSET]: row for row in frame.toArrow().to_pylist()}
    return [REFUSED if found[at][ERROR] else found[at] for at in range(len(values))]


def value_of(row: dict[str, Any] | object, column: int) -> Any:
    """The value in a column; REFUSED for a refused record. No other column may have one."""
    if not isinstance(row, dict):
        return row
    others = {name for name, value in row.items() if re.fullmatch(r"v\d+", name) and value is not None}
    assert others <= {f"v{column}"}
    return row[f"v{column}"]


def as_text(value: Any) -> Any:
    return NULL if value is None else value if value is REFUSED else str(value).removesuffix("+00:00")


@pytest.mark.long
def test_a_value_is_read_exactly_or_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    kinds = list(WRITTEN)
    cases = [(at, value, wanted) for at, kind in enumerate(kinds) for value, wanted in WRITTEN[kind].items()]
    records = {
        "PLAIN ENCODE JSON": [f'{{"id": 1, "v{at}": {value}}}' for at, value, _ in cases],
        "DEBEZIUM ENCODE JSON": [f'{{"op": "c", "after": {{"id": 1, "v{at}": {value}}}}}' for at, value, _ in cases],
    }
    fields = [json.loads(value) if value[0] == '"' else "" if value == "null" else value for _, value, _ in cases]
    records["PLAIN ENCODE CSV (without_header = 'true', delimiter = ';')"] = [
        f'1;{";" * at}"{field}"{";" * (len(kinds) - 1 - at)}' for (at, _, _), field in zip(cases, fields, strict=True)
    ]
    for format, values in records.items():
        rows = read(spark, kinds, format, [value.encode() for value in values])
        answers = zip(cases, rows, strict=True)
        found = {(kinds[at], value): as_text(value_of(row, at)) for (at, value, _), row in answers}
        assert found == {(kinds[at], value): wanted for at, value, wanted in cases}, format


CSV_LINES = (
    '"x""y",1', '"x"",y",2', r'"C:\",3', r'"C:\\x",4', r"C:\x,5", '"""",6', '"""q""",7', 'a"b,8', 'a""b,9',
    r'"x\y",10', "' a',11", " a ,12", '"é, ü",13', "#c,14", '"a""b,c""d",15',
)  # fmt: skip


def test_fields_of_csv_are_quoted_as_python_and_rfc_4180_quote_them(spark: SparkSession) -> None:
    format = "PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
    rows = read(spark, ["VARCHAR", "VARCHAR"], format, [f"0,{line}".encode() for line in CSV_LINES])
    found = [[row["v0"], row["v1"]] if isinstance(row, dict) else "refused" for row in rows]
    assert found == list(csv.reader(CSV_LINES))


def test_a_line_of_csv_whose_last_field_does_not_end_is_an_error(spark: SparkSession) -> None:
    format = "PLAIN ENCODE CSV (without_header = 'true', delimiter = '|')"
    lines = ['x|"first', 'x|"', '"a|b"|"c""', 'x|"a|"""', 'x|a"b', 'x|""', '"a"|"b"""']
    rows = read(spark, ["VARCHAR", "VARCHAR"], format, [f"0|{line}".encode() for line in lines])
    found = [row["v1"] if isinstance(row, dict) else "refused" for row in rows]
    assert found == ["refused", "refused", "refused", 'a|"', 'a"b', "", 'b"']


def test_the_line_end_of_a_csv_record_is_no_part_of_it(spark: SparkSession) -> None:
    format = "PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
    lines = ["x,a\n", "x,a\r\n", "x,a\r", 'x,"a\n"', 'x,"a"\n', "x,a\n\n", "x,\n", "x,a\rb", 'x,"a\n', "x,a\n1,x,b"]
    rows = read(spark, ["VARCHAR", "VARCHAR"], format, [f"0,{line}".encode() for line in lines])
    found = [row["v1"] if isinstance(row, dict) else "refused" for row in rows]
    assert found == ["a", "a", "a", "a\n", "a", "refused", None, "refused", "refused", "refused"]


@pytest.mark.long
def test_parts_are_read_by_the_same_rules(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    kinds = list(NESTED)
    cases = [(at, value, wanted) for at, kind in enumerate(kinds) for value, wanted in NESTED[kind].items()]
    for format, around in (
        ("PLAIN ENCODE JSON", '{"id": 1, "v%d": %s}'),
        ("DEBEZIUM ENCODE JSON", '{"op": "c", "after": {"id": 1, "v%d": %s}}'),
    ):
        rows = read(spark, kinds, format, [(around % (at, value)).encode() for at, value, _ in cases])
        found = {
            (kinds[at], value): told(kinds[at], value_of(row, at))
            for (at, value, _), row in zip(cases, rows, strict=True)
        }
        assert found == {(kinds[at], value): wanted for at, value, wanted in cases}, format


def told(kind: str, value: Any) -> Any:
    if value is REFUSED:
        return value
    return [(key, str(part)) for key, part in value] if kind.startswith("MAP") else plain(value)


def test_what_in_a_query_changes_by_itself(spark: SparkSession) -> None:
    sessions = SimpleNamespace(lent=lambda: nullcontext(spark))
    relation = Relation(name="s_varies", columns=(("k", "BIGINT"), ("at", "TIMESTAMP")))

    def found(query: str) -> tuple[str | None, str | None]:
        made = analyze(sessions, AnalyzedQuery(query=query, relations=(relation,)))  # type: ignore[arg-type]
        assert made.refusal is None, made.refusal
        return made.varies, made.varies_in

    another = "a function that gives another value each time"
    for call, varies in (
        ("now()", "now()"), ("current_timestamp", "current_timestamp()"), ("current_date", "current_date()"),
        ("curdate()", "current_date()"), ("localtimestamp()", "localtimestamp()"), ("rand()", another),
        ("uuid()", another), ("input_file_name()", another),
        ("shuffle(array(k))", another), ("randn()", another), ("spark_partition_id()", another),
    ):  # fmt: skip
        assert found(f"SELECT k, {call} AS x FROM s_varies") == (varies, None), call
    assert found("SELECT k FROM s_varies WHERE at > now() - INTERVAL 1 HOUR") == ("now()", "Filter")
    assert found("SELECT k, max(now()) AS x FROM s_varies GROUP BY k") == ("now()", "Aggregate")
    assert found("SELECT k, unix_timestamp(at) AS x FROM s_varies") == (None, None)
    sample = "s_varies TABLESAMPLE (10 PERCENT)"
    for drawing in (
        f"SELECT k FROM {sample}",
        f"WITH some AS (SELECT k FROM {sample}) SELECT k FROM some",
        f"SELECT k FROM s_varies WHERE k IN (SELECT k FROM {sample})",
        "SELECT k FROM s_varies TABLESAMPLE (BUCKET 3 OUT OF 10)",
    ):
        request = AnalyzedQuery(query=drawing, relations=(relation,), form=WHOLE)
        assert analyze(sessions, request).varies == TABLESAMPLE, drawing  # type: ignore[arg-type]
    # Spark shows only 25 columns of a step, and 25 arguments of a function.
    many = ", ".join(f"k AS c{number}" for number in range(30))
    assert found(f"SELECT {many}, datediff(current_date(), at) AS age FROM s_varies") == ("current_date()", None)
    most = ", ".join(f"k + {number}" for number in range(30))
    assert found(f"SELECT greatest({most}, year(now())) AS x FROM s_varies") == ("now()", None)
    # Texts that Spark converts to the current day or time.
    assert found("SELECT k, CAST('today' AS DATE) AS x FROM s_varies") == ("'today'", None)
    assert found("SELECT k FROM s_varies WHERE at >= ' Now'") == ("'Now'", "Filter")
    assert found("SELECT k FROM s_varies WHERE at >= 'yesterday UTC'::timestamp_ntz") == ("'yesterday'", "Filter")
    for call in (
        "to_date('today')", "to_timestamp('today')", "to_timestamp_ltz('today')", "to_timestamp_ntz('today')",
        "try_to_timestamp('today')", "date('today')", "TRY_CAST('today' AS DATE)",
        "date_part('year', 'today'::date)", "extract(DAY FROM to_date('today'))", "nvl2(k, to_date('today'), at)",
    ):  # fmt: skip
        assert found(f"SELECT k, {call} AS x FROM s_varies") == ("'today'", None), call
    assert found("SELECT k FROM s_varies WHERE at >= to_date('today')") == ("'today'", "Filter")
    assert found("SELECT k, max(to_timestamp('now')) AS x FROM s_varies GROUP BY k") == ("'now'", "Aggregate")
    assert found("SELECT k, to_date('2026-01-01') AS x FROM s_varies") == (None, None)
    assert found("SELECT k FROM s_varies WHERE k > uniform(1, 5)") == (another, "Filter")
    assert found("SELECT k, DATE 'tomorrow' AS x FROM s_varies") == ("DATE 'tomorrow'", "Literal")
    assert found("SELECT k FROM s_varies -- date 'now'") == (None, None)
    # Strings and names that look like calls.
    for same in (
        "SELECT k FROM s_varies WHERE string(k) LIKE '%now()%' AND k > 1",
        "SELECT k, count(*) AS n FROM s_varies WHERE concat(k, '') <> 'current_date()' GROUP BY k",
        "SELECT k AS `now()` FROM s_varies",
    ):
        assert found(same) == (None, None), same
    for call, varies in (("now()", "now()"), ("to_timestamp('now')", "'now'")):
        query = f"SELECT k FROM s_varies WHERE k IN (SELECT k FROM s_varies WHERE at > {call})"
        within = AnalyzedQuery(query=query, relations=(relation,), form=WHOLE)
        assert analyze(sessions, within).varies == varies  # type: ignore[arg-type]
    assert found("SELECT k, 'the date \"today\"' AS x, CAST('now and then' AS STRING) AS s FROM s_varies") == (
        None,
        None,
    )
    assert found("SELECT k, 'today' AS x, CAST('2024-01-01' AS DATE) AS d FROM s_varies") == (None, None)
    assert found("SELECT CAST(today AS DATE) AS d FROM (SELECT at AS today FROM s_varies) t") == (None, None)
