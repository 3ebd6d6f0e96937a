"""The values of CSV fields: what is NULL, and what is empty."""

from __future__ import annotations

import re
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.files import rows as file_rows
from rw_sql.connectors.files.rows import NO_VALUE
from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding import csv_text
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def decoded(
    spark: SparkSession, columns: str, lines: Sequence[str | bytes], delimiter: str = ","
) -> list[tuple[Any, ...]]:
    """The values of each line, or its error."""
    statement = source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        f"FORMAT PLAIN ENCODE CSV (without_header = 'true', delimiter = '{delimiter}')"
    )
    values = [line.encode() if isinstance(line, str) else line for line in lines]
    made = [("t:0", at, None, value, "0", None, None) for at, value in enumerate(values)]
    rows = decode(spark.createDataFrame(made, RECORDS), statement, run=0, batch=0, bucket=0).orderBy(OFFSET).collect()
    names = [column.name for column in statement.columns]
    return [(row[ERROR],) if row[ERROR] else tuple(row[name] for name in names) for row in rows]


def test_a_field_of_two_quotes_is_an_empty_text_and_an_empty_field_is_null(spark: SparkSession) -> None:
    lines = ["1,a,b", '2,"",""', "3,,", '4," "," "', '"","",', ',"",""""', '5,"x",""']
    assert decoded(spark, "id INT, word VARCHAR, raw BYTEA", lines) == [
        (1, "a", b"b"),
        (2, "", b""),
        (3, None, None),
        (4, " ", b" "),
        (None, "", None),
        (None, "", b'"'),
        (5, "x", b""),
    ]
    assert decoded(spark, "word VARCHAR", ["a", '""', NO_VALUE]) == [("a",), ("",), (None,)]


def test_types_without_an_empty_value_read_two_quotes_as_null(spark: SparkSession) -> None:
    kinds = ("INT", "DOUBLE PRECISION", "NUMERIC(10, 2)", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "JSONB")
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    nulls = (None,) * len(kinds)
    lines = [",".join(['""'] * len(kinds)), "," * (len(kinds) - 1)]
    assert decoded(spark, columns, lines) == [nulls, nulls]


def test_a_line_that_is_not_utf_8_is_an_error(spark: SparkSession) -> None:
    lines: list[str | bytes] = ["1,Zürich,x", "2,Zürich,x".encode("latin-1"), b"3,a,\xff", '"4","é",""']
    told = ("the value is not UTF-8",)
    assert decoded(spark, "id INT, word VARCHAR, raw BYTEA", lines) == [
        (1, "Zürich", b"x"), told, told, (4, "é", b""),
    ]  # fmt: skip


def test_a_decimal_is_exact_however_long_it_is(spark: SparkSession) -> None:
    zeros = "0" * 60
    lines = [f"1.5{zeros}", f'"1.50{zeros}"', "15e-1", f"1.{zeros}1", "1e-600000000", "0e600000000", "1e99999999999"]
    found = [row[0] for row in decoded(spark, "n NUMERIC(10, 2)", lines)]
    assert found[:3] == [Decimal("1.50")] * 3
    assert all("is not of type NUMERIC(10, 2)" in str(told) for told in found[3:])


NO_QUOTE = "a quoted field has no closing quote: each line is one record"
AFTER_QUOTE = "a quoted field has text after its closing quote"
MORE_LINES = "the value has more than one line: each record is one line"


def test_a_record_that_is_not_one_line_of_csv_is_an_error_with_its_reason(spark: SparkSession) -> None:
    reasons = {
        "1,a\n2,b": MORE_LINES, "1,a\r\n2,b": MORE_LINES, "1,a\r2,b": MORE_LINES, "1,a,b\n\n": MORE_LINES,
        "\n1,a,b": MORE_LINES, '1,"a"\n2,b': MORE_LINES, '"1"\r,a,b': MORE_LINES,
        '"1"x,a,b': AFTER_QUOTE, '"1" ,a,b': AFTER_QUOTE, '1,"a""b"c,d': AFTER_QUOTE, '1,a,"b" ': AFTER_QUOTE,
        '1,a,"b': NO_QUOTE, '1,a,"': NO_QUOTE, '1,"a,b\n2,c,d': NO_QUOTE, '1,a,"b""': NO_QUOTE,
        "": "the value is empty", "\n": "the value is empty", "\r\n": "the value is empty",
        '1,"a\0",b': "the value has quotes and a NUL character",
        "1,a": "the value is not CSV with the declared columns",
        ",,,": "the value is not CSV with the declared columns",
    }  # fmt: skip
    assert decoded(spark, "id VARCHAR, word VARCHAR, more VARCHAR", list(reasons)) == [
        (reason,) for reason in reasons.values()
    ]
    assert decoded(spark, "word VARCHAR", ["", "\n", '""', " "]) == [
        ("the value is empty",), ("the value is empty",), ("",), (" ",),
    ]  # fmt: skip
    good = {
        '1,"a\r\nb\n","c\rd"\r\n': ("1", "a\r\nb\n", "c\rd"),
        ' "1",a"b,c"': (' "1"', 'a"b', 'c"'),
        '"""","a,""b""",""': ('"', 'a,"b"', ""),
        "a\0b,\u2028,\x0b\x85": ("a\0b", "\u2028", "\x0b\x85"),
    }
    assert decoded(spark, "id VARCHAR, word VARCHAR, more VARCHAR", list(good)) == list(good.values())


@pytest.mark.parametrize("delimiter", [",", "\\t", " ", "|", "^", "]", "#", "q", "é", "\\"])
def test_random_lines_are_read_by_the_grammar_of_rfc_4180_or_refused(spark: SparkSession, delimiter: str) -> None:
    character = "\t" if delimiter == "\\t" else delimiter
    random = Random(delimiter)
    pieces = ['"', '"', character, character, "a", " ", "\n", "\r", "\\", "b", "\ufeff", "\u2028", "\x1f", "é"]
    lines = ["".join(random.choice(pieces) for _ in range(random.randint(0, 8))) for _ in range(1000)]
    wanted = [fields(line, character) for line in lines]
    read = decoded(spark, "v0 VARCHAR, v1 VARCHAR", lines, delimiter)
    found = [row if len(row) == 2 else None for row in read]
    assert dict(zip(lines, found, strict=True)) == dict(zip(lines, wanted, strict=True))
    assert sum(row is not None for row in wanted) > 50
    # The reader of files refuses the same lines before it reorders their fields.
    for line, row in zip(lines, wanted, strict=True):
        if "\n" not in line and not line.endswith("\r"):
            split = file_rows.fields_of(line.encode(), character.encode())
            assert (split is not None and len(split) == 2) == (row is not None), line


def fields(record: str, separator: str) -> tuple[str | None, ...] | None:
    """The two fields of a record; None for any other record."""
    line = re.sub(r"(\r\n|\n|\r)\Z", "", record)
    found: list[str | None] = []
    while True:
        if match := re.match(r'"((?:[^"]|"")*)"', line):
            found.append(match[1].replace('""', '"'))
        elif match := re.match(rf'(?!")[^{re.escape(separator)}\r\n]*', line):
            found.append(match[0] or None)
        rest = line[match.end() :] if match else None
        if not rest:
            return tuple(found) if rest == "" and len(found) == 2 else None
        if not rest.startswith(separator):
            return None
        line = rest[len(separator) :]


def test_a_record_with_more_fields_than_spark_reads_is_an_error(spark: SparkSession) -> None:
    most = csv_text.MOST_FIELDS
    other = ("the value is not CSV with the declared columns",)
    more = (csv_text.MORE_FIELDS,)
    commas = "," * 2 * most
    lines = {
        "1,a": ("1", "a"),
        commas: more,
        "x," * most + "x": more,
        '"",' * most: more,
        # Spark still reads this line, and one more field is too many.
        "," * (most - 1): other,
        "," * most: more,
        # Separators within a quoted field do not count.
        f'1,"{commas}"': ("1", commas),
        f'"{commas}"",""{commas}",2': (f'{commas}","{commas}', "2"),
        f'"a"b{commas}': (AFTER_QUOTE,),
        f'1,"{commas}': (NO_QUOTE,),
        f"1,2\n{commas}": (MORE_LINES,),
        "é" * most: other,
        f"1,{'é' * most}": ("1", "é" * most),
    }
    assert decoded(spark, "v0 VARCHAR, v1 VARCHAR", list(lines)) == list(lines.values())
    assert decoded(spark, "v0 VARCHAR, v1 VARCHAR", [line.replace(",", "|") for line in lines], "|") == [
        tuple(value.replace(",", "|") for value in row) if len(row) == 2 else row for row in lines.values()
    ]


def test_a_record_with_too_many_fields_is_an_error_after_columns_were_added(spark: SparkSession) -> None:
    statement = source_definition(
        "CREATE SOURCE s (v0 VARCHAR, v1 VARCHAR, v2 VARCHAR) WITH (connector = 'kafka', topic = 't', "
        "properties.bootstrap.server = 'h:1') FORMAT PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
    )
    lines = ["a", "a,b", "," * 3 * csv_text.MOST_FIELDS, "a,b,c"]
    made = [("t:0", at, None, line.encode(), "0", None, None) for at, line in enumerate(lines)]
    rows = decode(spark.createDataFrame(made, RECORDS), statement, run=0, batch=0, bucket=0, added=2)
    found = [(row["v0"], row["v1"], row["v2"], row[ERROR]) for row in rows.orderBy(OFFSET).collect()]
    assert found == [
        ("a", None, None, None),
        ("a", "b", None, None),
        (None, None, None, csv_text.MORE_FIELDS),
        ("a", "b", "c", None),
    ]
