"""JSON is read strictly: a record is a right row or an error, its fields are found in any case, its digits kept."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode
from tests.integration import json_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rw_sql.syntax.statements import CreateSource

pytestmark = pytest.mark.spark

Result = tuple[Any, ...] | str


def source(columns: str) -> CreateSource:
    return source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT PLAIN ENCODE JSON"
    )


def read(spark: SparkSession, columns: str, values: Sequence[bytes | None]) -> list[Result]:
    """The result of each value: its row, or the reason why it has none."""
    statement = source(columns)
    records = spark.createDataFrame(
        [("t:0", at, None, value, "0", None, None) for at, value in enumerate(values)], json_reference.RECORDS
    )
    rows = decode(records.coalesce(1), statement, run=0, batch=0, bucket=0)
    found: dict[int, Result] = {}
    names = [column.name for column in statement.columns]
    for row in rows.collect():
        assert row[OFFSET] not in found
        found[row[OFFSET]] = row[ERROR] if row[ERROR] is not None else tuple(row[name] for name in names)
    assert sorted(found) == list(range(len(values)))
    return [found[at] for at in range(len(values))]


WRONG = (
    b'{"id":3}{"id":4}',
    b'{"id":5}\n{"id":6}',
    b'{"id":7} trailing',
    b'{"id":16}]',
    b'{"id":16}}',
    b'{"id":16},',
    b'{"id":16},{"id":17}',
    b'{"id":16},"x":{}',
    b'{"id":14}\x00',
    b'\x00{"id":14}',
    b"{'id':12}",
    b'{"id":12,\'x\':1}',
    b'{"id":12,"x":\'1\'}',
    b"{id:12}",
    b'{"id":1,}',
    b'{,"id":1}',
    b'{"id":1,,"x":2}',
    b'{"id":01}',
    b'{"id":1,"x":00.5}',
    b'{"id":1,"x":.5}',
    b'{"id":1,"x":5.}',
    b'{"id":1,"x":+5}',
    b'{"id":1,"x":NaN}',
    b'{"id":1,"x":-Infinity}',
    b'{"id":1,"x":INF}',
    b'{"id":1,"x":True}',
    b'{"id":1,"x":undefined}',
    b'{"id":1} // one',
    b'/* one */{"id":1}',
    b'{"id":1 /* one */}',
    b'# one\n{"id":1}',
    b'{"id":1,"x":"a\tb"}',
    b'{"id":1,"x":"a\nb"}',
    b'{"id":1,"x":"\\q"}',
    b'{"id":1,"x":"\\u12"}',
    b'{"id":1,"x":"\\ud800"}',
    b'{"id":1,"x":"\\udc00\\ud800"}',
    b'{"id":1,"x":"\\\\ud83d\\udc00"}',
    b'{"id":1,"x":"a\\\\\\\\ud83d\\udc00"}',
    b'{"id":1,"\\n\\\\ud83d\\udc00":2}',
    b'{"id":1,"x":"\\ud83d\\ude00\\ude00"}',
    b'{"id":1,"x":"\\ud83d\\\\ude00"}',
    b'{"id":1,"x":"\xff"}',
    b'{"id":1,"x":"\xc3',
    b'{"id":1,"x":"\xed\xa0\x80"}',
    b'\xef\xbb\xbf{"id":1}',
    '{"id":1}'.encode("utf-16-le"),
    b'{"id":1',
    b'{"id":1,"x":{"y":2}',
    b'{"id":1,"x":"}',
    b'{"}',
    b'{"id":}',
    b'{"id"}',
    b'{1.5:"id"}',
    b"",
    b"   ",
    b"null",
    b"7",
    b'"x"',
    b"[]",
    b'[{"id":1}]',
    b"true",
    b"}",
    b"{",
    b'{"id":"seven"}',
    b'{"id":7.0}',
    b'{"id":7e0}',
    b'{"id":99999999999}',
    b'{"id":true}',
    b'{"id":{}}',
    b"[" * 1100 + b"]" * 1100,
    b'{"id":1,"x":' + b"[" * 1100 + b"]" * 1100 + b"}",
)  # fmt: skip

RIGHT = {
    b'{"id":1}': 1,
    b'{"id":"7"}': 7,
    b' \t\r\n{"id":1} \t\r\n': 1,
    b'{"id":1}\n': 1,
    b'{ "id" : 1 }': 1,
    b'{\n  "id": 1\n}': 1,
    b"{}": None,
    b" { } ": None,
    b'{"id":null}': None,
    b'{"i\\u0064":1}': 1,
    b'{"id":1,"id":2}': 2,
    b'{"id":1,"x":"}{"}': 1,
    b'{"id":1,"x":"\\\\ud800 \\ud83d\\ude00 \\u0000"}': 1,
    b'{"id":1,"x":"\\\\\\ud83d\\ude00 \\\\\\\\ude00 \\ud7ff\\uE000 \\uD83D\\uDE00"}': 1,
    b'{"id":1,"x":{"id":2},"y":[{"id":3}]}': 1,
    b'{"id":-0}': 0,
    b'{"id":1,"x":1E400}': 1,
    b'{"x":"{\\"id\\":2}","id":1}': 1,
    b'{"id":1,"x":' + b"[" * 900 + b"]" * 900 + b"}": 1,
    '{"id":1,"x":"żółw 🐢"}'.encode(): 1,
}


@pytest.mark.parametrize("columns", ["id INT", "id INT, x VARCHAR", "id INT, at TIMESTAMP, y STRUCT<z INT>[]"])
def test_a_value_is_one_object_of_strict_json_or_an_error(spark: SparkSession, columns: str) -> None:
    right = [value for value in RIGHT if "STRUCT" not in columns or b'"y"' not in value]
    found = read(spark, columns, [*WRONG, None, *right])
    accepted = [(value, row) for value, row in zip(WRONG, found, strict=False) if not isinstance(row, str)]
    assert accepted == []
    assert found[len(WRONG)] == "the record has no value"
    assert [(value, row[0]) for value, row in zip(right, found[len(WRONG) + 1 :], strict=True)] == [
        (value, RIGHT[value]) for value in right
    ]


def test_the_reason_says_what_is_wrong(spark: SparkSession) -> None:
    said = {
        b'{"id":3}{"id":4}': "the value has text after its JSON object",
        b'{"id":7} trailing': "the value has text after its JSON object",
        b'{"id":14}\x00': "the value has text after its JSON object",
        b'{"id":1,"x":"\xff"}': "the value is not UTF-8",
        b'{"id":1,"x":"\\ud800"}': "the value has half of a surrogate pair for a character",
        b"{'id':12}": "the value is not JSON with the declared columns",
        b"": "the value is not JSON",
        b"[]": "the value is not JSON with the declared columns",
        b'{"id":"x"}': 'column "id": x is not of type INT',
    }
    assert read(spark, "id INT", list(said)) == list(said.values())


CASES: tuple[tuple[str, bytes, Result], ...] = (
    ("userid INT", b'{"userId":1}', (1,)),
    ("userid INT", b'{"USERID" : 1}', (1,)),
    ("userid INT", b'{"user\\u0049d":1}', (1,)),
    ("userid INT", b'{"userId":2,"userid":1}', (1,)),
    ("userid INT", b'{"userid":1,"userId":2}', (1,)),
    ("userid INT", b'{"USERID":1,"userId":2}', (2,)),
    ("userid INT", b'{"userId":1,"userId":2}', (2,)),
    ("userid INT", b'{"userId":"x"}', 'column "userid": x is not of type INT'),
    ("userid INT", b'{"x":"userId","y":{"userId":1}}', (None,)),
    ("userid INT", b'{"x":"\\"userId\\":1"}', (None,)),
    ("userid INT", b'{"userid":null,"userId":1}', (None,)),
    ("userid INT, j JSONB", b'{"userid":null,"userId":1,"j":{"userid":null,"userId":2}}',
     (None, '{"userid":null,"userId":2}')),
    ("userid INT, m MAP(VARCHAR, INT)", b'{"userId":1,"m":{"userid":null,"userId":2}}',
     (1, {"userid": None, "userId": 2})),
    ('"userId" INT, s STRUCT<userid INT>', b'{"userId":1,"s":{"userid":2}}', (1, (2,))),
    ("ärger INT", '{"ÄRGER":1}'.encode(), (1,)),
    ('"a""b" INT', b'{"A\\"b":1}', (1,)),
    ("addr STRUCT<zipcode VARCHAR, no INT>", b'{"addr":{"zipCode":"10115","No":5}}', (("10115", 5),)),
    ("addr STRUCT<zipcode VARCHAR, no INT>", b'{"Addr":{"zipCode":"10115","no":5}}', (("10115", 5),)),
    ("id INT, addr STRUCT<id INT>", b'{"ID":1,"addr":{"id":2}}', (1, (2,))),
    ("id INT, addr STRUCT<id INT>", b'{"ID":1,"addr":{"Id":2}}', (1, (2,))),
    ('"userId" INT, s STRUCT<userid INT>', b'{"userId":1,"s":{"userId":2}}', (1, (2,))),
    ('"userId" INT, s STRUCT<userid INT>', b'{"userid":1,"s":{"USERID":2}}', (1, (2,))),
    ('"orderId" INT, lines STRUCT<orderid INT, no INT>[]', b'{"orderId":1,"lines":[{"orderId":2,"no":3}]}',
     (1, [(2, 3)])),
    ('at INT, m MAP(VARCHAR, STRUCT<"At" INT>)', b'{"At":1,"m":{"at":{"at":2}}}', (1, {"at": (2,)})),
    ("lines STRUCT<itemid INT>[]", b'{"lines":[{"itemId":1},{"itemid":2},{"x":0},null]}',
     ([(1,), (2,), (None,), None],)),
    ("m MAP(VARCHAR, STRUCT<itemid INT>)", b'{"M":{"itemId":{"itemId":1},"B":{"itemid":2}}}',
     ({"itemId": (1,), "B": (2,)},)),
    ("userid INT, m MAP(VARCHAR, INT)", b'{"m":{"userId":1}}', (None, {"userId": 1})),
    ("userid INT, j JSONB", b'{"J":{"userId":1.10, "b": "\\u00e9"}}', (None, '{"userId":1.10,"b":"é"}')),
    ("m MAP(VARCHAR, INT)", b'{"m":{"a":1,"b":2,"a":3}}', ({"b": 2, "a": 3},)),
    ("k INT", '{"\u212a":1}'.encode(), (1,)),  # the Kelvin sign, in lower case a k
    ("k INT", '{"\u212a":1,"k":2}'.encode(), (2,)),
    ("userid INT, at TIMESTAMP", b'{"userId":1,"At":0}', (1, "1970-01-01 00:00:00")),
)  # fmt: skip


@pytest.mark.parametrize("columns", sorted({columns for columns, _, _ in CASES}))
def test_fields_are_found_in_any_case(spark: SparkSession, columns: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    cases = [(value, wanted) for of, value, wanted in CASES if of == columns]
    for (value, wanted), found in zip(cases, read(spark, columns, [value for value, _ in cases]), strict=True):
        assert (found if isinstance(found, str) else tuple(_plain(each) for each in found)) == wanted, value


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return tuple(_plain(each) for each in value)
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case None | int() | str():
            return value
        case _:
            return str(value)


NUMBERS = (
    "12345678901234567890.123456789", "1.10", "1e3", "-0", "-0.0", "0.1e-7", "1E400", "123456789012345678901234567890",
    "0", "7", "1.0",
)  # fmt: skip


def test_a_number_is_text_as_it_is_written(spark: SparkSession) -> None:
    columns = "t VARCHAR, j JSONB, s STRUCT<t VARCHAR, d DOUBLE>, a VARCHAR[], m MAP(VARCHAR, VARCHAR), d DOUBLE"
    values = [
        f'{{"t":{n},"j":{{"x":[{n}, {{"y":{n}}}]}},"s":{{"t":{n},"d":1.5}},"a":[{n},"{n}"],"m":{{"k":{n}}},"d":2.5}}'
        for n in NUMBERS
    ]
    found = read(spark, columns, [value.encode() for value in values])
    for number, row in zip(NUMBERS, found, strict=True):
        assert row == (
            number,
            f'{{"x":[{number},{{"y":{number}}}]}}',
            (number, 1.5),
            [number, number],
            {"k": number},
            2.5,
        )


def test_a_double_may_be_a_word_in_quotes_and_no_number_beyond_it(spark: SparkSession) -> None:
    values = [
        b'{"d":"NaN"}', b'{"d":"-Infinity","x":"NaN"}', b'{"d":1E308}', b'{"d":"nan"}', b'{"d":"1.5"}',
    ]  # fmt: skip
    wrong = [
        b'{"d":NaN}', b'{"d":"NaN","x":NaN}', b'{"d":"NaN"}{}', b'{"d":1E400}', b'{"d":"1.5.1"}',
        b'{"d":1,"s":[{"r":1e39}]}',
    ]  # fmt: skip
    found = read(spark, "d DOUBLE, s STRUCT<r REAL>[]", [*values, *wrong])
    assert [str(row[0]) for row in found[: len(values)]] == ["nan", "-inf", "1e+308", "nan", "1.5"]
    assert all(isinstance(row, str) for row in found[len(values) :])


def test_no_number_goes_through_a_double_but_a_double(spark: SparkSession) -> None:
    columns = "n NUMERIC(38, 18), i BIGINT, t VARCHAR"
    n = Decimal("12345678901234567890.123456789012345678")
    values = [
        f'{{"n":{n},"i":9223372036854775807,"t":"1.5"}}'.encode(),
        b'{"i":9007199254740993.0}',
        b'{"i":1e3}',
        b'{"i":9223372036854775808}',
    ]
    found = read(spark, columns, values)
    assert found[0] == (n, 9223372036854775807, "1.5")
    assert all(isinstance(row, str) for row in found[1:])


ZEROS = "0" * 60
EXACT = {
    f"1.{ZEROS}": "1.00", f"1.5{ZEROS}": "1.50", f'"1.5{ZEROS}"': "1.50", "1.5e0": "1.50", "150e-2": "1.50",
    f"0.{ZEROS}e5": "0.00", "1500000000000e-12": "1.50", "1.5E+1": "15.00", "0e-9": "0.00",
}  # fmt: skip
NOT_EXACT = (
    f"1.{ZEROS}1", f"0.{'9' * 60}", f"-1.{ZEROS}1", f'"1.{ZEROS}1"', "1e-31", '"1e-40"', f"1.{'0' * 25}1e-9",
    "1E-300", "1e-99999999999", "1e-600000000", "1e600000000", '"1e600000000"', "0e-600000000", "0e600000000",
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "form"),
    [("n NUMERIC(10, 2)", '{"n":%s}'), ("n NUMERIC(10, 2)[]", '{"n":[%s]}'), ("n STRUCT<x NUMERIC>", '{"n":{"x":%s}}')],
)
def test_a_decimal_is_exact_however_long_it_is(spark: SparkSession, columns: str, form: str) -> None:
    """Also where the number has more digits than Spark's widest decimal, and where the exponent is huge."""
    texts = [*EXACT, *NOT_EXACT]
    found = read(spark, columns, [(form % text).encode() for text in texts])
    values = [row if isinstance(row, str) else next(iter(row[0])) if columns[-1] in "]>" else row[0] for row in found]
    assert [Decimal(str(value)) for value in values[: len(EXACT)]] == [Decimal(value) for value in EXACT.values()]
    assert [
        text for text, value in zip(NOT_EXACT, values[len(EXACT) :], strict=True) if not isinstance(value, str)
    ] == []


@pytest.mark.parametrize("column", ["k VARCHAR", "k NUMERIC(10, 2)"])
def test_a_key_may_be_a_long_text(spark: SparkSession, column: str) -> None:
    statement = source_definition(
        f"CREATE SOURCE t ({column}, PRIMARY KEY (k)) WITH (connector = 'kafka', topic = 't', "
        "properties.bootstrap.server = 'h:1') FORMAT UPSERT ENCODE JSON"
    )
    long = '"\\' * 50_000
    records = [("t:0", 0, json.dumps(long).encode(), b"{}", "0", None, None)]
    frame = spark.createDataFrame(records, json_reference.RECORDS)
    (row,) = decode(frame, statement, run=0, batch=0, bucket=0).collect()
    assert (row.k == long) if column == "k VARCHAR" else "is not of type NUMERIC(10, 2)" in row[ERROR]


ROW = '{"id":7,"t":1.10,"n":12345678901234567890.123456789,"j":{"x":[1e3]},"addr":{"zipCode":10115.50}}'
CHANGES = {
    "UPSERT": (b'{"id":7}', ROW),
    "DEBEZIUM": (b'{"id":7}', f'{{"payload":{{"op":"c","before":null,"after":{ROW}}}}}'),
    "MAXWELL": (None, f'{{"type":"insert","data":{ROW}}}'),
    "CANAL": (None, f'{{"isDdl":false,"type":"INSERT","data":[{ROW}],"old":null}}'),
}


@pytest.mark.parametrize("format", sorted(CHANGES))
def test_the_change_formats_are_as_strict(spark: SparkSession, format: str) -> None:
    statement = source_definition(
        "CREATE SOURCE t (id INT, t VARCHAR, n NUMERIC(38, 9), j JSONB, addr STRUCT<zipcode VARCHAR>, "
        "PRIMARY KEY (id)) "
        f"WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') FORMAT {format} ENCODE JSON"
    )
    key, text = CHANGES[format]
    value = text.encode()
    twice = value.replace(b'"id":7', b'"id":"x","id":7')
    right: list[tuple[bytes | None, bytes | None]]
    right = [(key, value), (key, b" " + value + b"\n"), (key, twice)]
    behind = (value, b" x", b"]", b"}", b",", b"\x00", b",{}", b',"x":{}', b"//")
    wrong: list[tuple[bytes | None, bytes | None]] = [(key, value + more) for more in behind]
    wrong += [
        (key, value.replace(b'"t"', b"'t'")),
        (key, value.replace(b"1.10", b"01.10")),
        (key, value.replace(b"1.10", b"NaN")),
        (key, value.replace(b"1.10", b'"\xff"')),
        (key, value.replace(b"1.10", b'"\\ud800"')),
        (key, value.replace(b"10115.50", b"10115.50,")),
        (key, b"\xef\xbb\xbf" + value),
        (key, value[:-1]),
    ]
    if format == "UPSERT":
        right += [(b"7", value)]
        wrong += [
            (each, value) for each in (b'{"id":7}{}', b"7]", b"7,8", b"7 8", b"'7'", b'{"id":7}\x00', b"07", b"NaN")
        ]
    if format == "DEBEZIUM":
        right += [(b'{"payload":{"id":7}}', None)]
        wrong += [(b'{"id":7} x', None), (b"{'id':7}", None), (b'{"payload":{"id":7}}]', None)]
    records = [("t:0", at, of, what, "0", None, None) for at, (of, what) in enumerate([*right, *wrong])]
    frame = spark.createDataFrame(records, json_reference.RECORDS).coalesce(1)
    rows = {row[OFFSET]: row for row in decode(frame, statement, run=0, batch=0, bucket=0).collect()}
    assert sorted(rows) == list(range(len(records)))
    assert [records[at][2:4] for at in range(len(right), len(records)) if rows[at][ERROR] is None] == []
    for at in range(3):
        row = rows[at]
        assert row[ERROR] is None, (records[at], row[ERROR])
        assert (row.id, row.t, row.n) == (7, "1.10", Decimal("12345678901234567890.123456789"))
        assert (row.j, row.addr.zipcode) == ('{"x":[1e3]}', "10115.50")
    assert all(rows[at][ERROR] is None for at in range(len(right)))


@pytest.mark.long
def test_random_texts_against_a_reader_in_plain_python(spark: SparkSession) -> None:
    outcomes = json_reference.compare(spark, seed=-1, count=150)
    # Enough of each kind: a run with only errors would prove nothing.
    assert min(outcomes["rows"], outcomes["errors"], 3 * outcomes["of them JSON"]) >= 20, outcomes
