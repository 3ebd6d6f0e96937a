"""Blocks of JSON that Arrow decodes: each record is decoded rightly or left to Spark."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from rw_sql.runtime.decoding.json_blocks import BlockReader
from tests.integration.json_reference import Texts, is_json, nested_row_of, row_of

_SUFFIX = ',"rw_end":true}\n'
_SCHEMA = pa.schema({
    "id": pa.int64(), "name": pa.string(), "userid": pa.int32(), "ratio": pa.float64(), "ison": pa.bool_(),
})  # fmt: skip
_READER = BlockReader(_SCHEMA, "rw_end", _SUFFIX)


def texts_of(values: list[bytes | None]) -> pa.Array:
    """Values as a reader gets them."""
    made = [value[:-1] + _SUFFIX.encode() if value is not None and value.endswith(b"}") else value for value in values]
    return pa.array(made, pa.binary())


def rows_of(values: list[bytes | None], reader: BlockReader = _READER) -> list[dict[str, object] | None]:
    """The row of each value; None for those that are left."""
    rows, known = reader.read(texts_of(values))
    given = iter(rows.to_pylist())
    made = [next(given) if is_known else None for is_known in known]
    assert next(given, None) is None
    return made


@pytest.mark.parametrize("seed", range(8))
def test_random_texts(seed: int) -> None:
    texts = Texts(Random(f"blocks {seed}"))
    values = [texts.draw() for _ in range(250)]
    for at in range(0, len(values), 5):
        for value, row in zip(values[at : at + 5], rows_of(list(values[at : at + 5])), strict=True):
            if row is not None:
                assert is_json(value), value
                assert row == row_of(value, _SCHEMA.names), value


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'{"id":1,"name":"a","userid":-2,"ratio":1.5,"ison":true}', (1, "a", -2, 1.5, True)),
        (b'{"id":null,"other":{"id":7,"x":[1,{}]}}', (None, None, None, None, None)),
        (b'{"name":"a\\n\\"b \xc3\xa9 \xf0\x9f\x90\xa2"}', (None, 'a\n"b é 🐢', None, None, None)),
        (b'{"ratio":5,"name":"NaN Info"}', (None, "NaN Info", None, 5.0, None)),
        (b'{"name":"x","note":"' + b"y" * 5_000 + b'"}', (None, "x", None, None, None)),
        (b'{\n  "id" : 4\n}', None),
        (b'{"id" : 4 , "x":\n[ 1 ]\n}', (4, None, None, None, None)),
    ],
)
def test_plain_values(value: bytes, row: tuple[object, ...] | None) -> None:
    assert rows_of([value]) == [None if row is None else dict(zip(_SCHEMA.names, row, strict=True))]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"[1]",
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"id":1},{"id":2}',
        b'{"x":{"id":1}',
        b'{"id":"1"}',
        b'{"id":1.0}',
        b'{"id":9223372036854775808}',
        b'{"userid":2147483648}',
        b'{"name":1}',
        b'{"name":{"a":1}}',
        b'{"ison":1}',
        b'{"ison":"true"}',
        b'{"ratio":"1.5"}',
        b'{"ratio":1e999}',
        b'{"ratio":-0}',
        b'{"ratio":NaN}',
        b'{"other":[1, -Infinity]}',
        b'{"ID":1}',
        b'{"id":null,"Id":2}',
        b'{"id":1,"id":2}',
        b'{"i\\u0064":1}',
        b'{"name":"\\ud800"}',
        b'{"name":"a\x00b"}',
        b'{"name":"a\nb"}',
        b'{"name":"\xff"}',
        b'\xef\xbb\xbf{"id":1}',
        b'{"id":01}',
        b"{'id':1}",
        b'{"id":1,}',
        b'{"id":1 /* one */}',
        b'{"x":' + b"[" * 1_200 + b"]" * 1_200 + b"}",
        b'{"x":' + b"9" * 1_200 + b"}",
        b'{"' + b"x" * 60_000 + b'":1}',
    ],
)
def test_what_is_left_to_spark(value: bytes | None) -> None:
    good = b'{"id":5}'
    row = dict.fromkeys(_SCHEMA.names) | {"id": 5}
    assert rows_of([value]) == [None]
    assert rows_of([good, value, good]) == ([None] * 3 if value not in _ALONE else [row, None, row])


_ALONE = [
    None, b"", b"{}", b"[1]", b'{"ratio":-0}', b'{"ratio":NaN}', b'{"other":[1, -Infinity]}',
    b'{"ID":1}', b'{"id":null,"Id":2}', b'{"i\\u0064":1}', b'\xef\xbb\xbf{"id":1}',
    b'{"x":' + b"[" * 1_200 + b"]" * 1_200 + b"}", b'{"x":' + b"9" * 1_200 + b"}", b'{"' + b"x" * 60_000 + b'":1}',
    b"{'id':1}",
]  # fmt: skip
"""Those that do not fail a block."""


@pytest.mark.parametrize("bad", [1, 3, 400])
def test_a_block_is_divided_at_what_fails_it(bad: int) -> None:
    values: list[bytes | None] = [b'{"id":%d,"name":"n"}' % at for at in range(10_000)]
    for at in Random(bad).sample(range(10_000), bad):
        values[at] = b'{"id":"text"}'
    rows = rows_of(values)
    left = sum(row is None for row in rows)
    assert all(row is None or row["id"] == at for at, row in enumerate(rows))
    assert bad <= left <= (10_000 if bad == 400 else bad * 64)


_TIMES = pa.schema({"day": pa.date32(), "bare": pa.timestamp("us"), "zoned": pa.timestamp("us", "UTC")})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("day", "2024-02-29", "2024-02-29"),
        ("bare", "2024-02-29T01:02:03", "2024-02-29 01:02:03"),
        ("bare", "2024-02-29 01:02:03.000004", "2024-02-29 01:02:03.000004"),
        ("zoned", "2024-02-29T01:02:03.5Z", "2024-02-29 01:02:03.500000+00:00"),
        ("zoned", "2024-02-29 01:02:03+02:30", "2024-02-28 22:32:03+00:00"),
        ("zoned", "0002-01-01T00:00:00-17:59", "0002-01-01 17:59:00+00:00"),
    ],
)
def test_times(name: str, text: str, value: str) -> None:
    rows, known = BlockReader(_TIMES, "rw_end", _SUFFIX).read(texts_of([f'{{"{name}":"{text}"}}'.encode()]))
    assert known.all()
    assert str(rows.column(name)[0].as_py()) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("day", "2023-02-29"),
        ("day", "0000-01-01"),
        ("day", "0001-01-01"),
        ("day", "2024-02-29Z"),
        ("day", "2024-2-9"),
        ("day", "19000"),
        ("bare", "2024-02-29"),
        ("bare", "2024-02-29T01:02"),
        ("bare", "2024-02-29T24:00:00"),
        ("bare", "2024-02-29T01:02:60"),
        ("bare", "2024-02-29T01:02:03Z"),
        ("bare", "2024-02-29T01:02:03.1234567"),
        ("zoned", "2024-02-29T01:02:03"),
        ("zoned", "2024-02-29T01:02:03+18:30"),
        ("zoned", "9999-12-31T23:00:00-02:00"),
        ("zoned", "2024-02-29T01:02:03Z\\n"),
        ("zoned", " 2024-02-29T01:02:03Z"),
    ],
)
def test_times_that_are_left_to_spark(name: str, text: str) -> None:
    values: list[bytes | None] = [f'{{"{name}":"{text}"}}'.encode(), b'{"day":"2024-01-01"}']
    rows, known = BlockReader(_TIMES, "rw_end", _SUFFIX).read(texts_of(values))
    assert not known[0]
    assert rows.num_rows == known.sum()


_LINE = pa.struct({"sku": pa.string(), "qty": pa.int32()})
_NESTED = pa.schema({
    "id": pa.int64(), "ratio": pa.float64(), "addr": pa.struct({"zipcode": pa.string(), "no": pa.int32()}),
    "lines": pa.list_(_LINE),
})  # fmt: skip
_NESTED_READER = BlockReader(_NESTED, "rw_end", _SUFFIX)


def _nested_text(random: Random) -> bytes:
    """A record of nested columns, often with NULLs and members that are missing, and sometimes with one fault."""

    def member(name: str, value: str) -> list[str]:
        if random.random() < 0.2:
            return []
        spelled = name.upper() if random.random() < 0.02 else name
        wrong = random.choice(('"x"', "1.5", "true", "[]", "{}", "3000000000")) if random.random() < 0.02 else value
        return [f'"{spelled}":{"null" if random.random() < 0.15 else wrong}'] * (2 if random.random() < 0.01 else 1)

    def made(*members: list[str]) -> str:
        every = [each for found in members for each in found]
        random.shuffle(every)
        return "{" + ",".join(every) + "}"

    word = random.choice(('"a"', '""', '"é {[\\"no\\":1"', '"1"'))
    lines = (
        "null" if random.random() < 0.1 else made(member("sku", word), member("qty", str(random.randint(-9, 9))))
        for _ in range(random.randint(0, 3))
    )
    address = made(member("zipcode", word), member("no", "7"), member("other", '{"no":[1]}'))
    return made(
        member("id", str(random.randint(0, 99))),
        member("ratio", random.choice(("1", "-2.25", "1e3", "-0"))),
        member("addr", address),
        member("lines", f"[{','.join(lines)}]"),
    ).encode()


@pytest.mark.parametrize("seed", range(8))
def test_random_texts_of_nested_columns(seed: int) -> None:
    random = Random(f"nested {seed}")
    hostile = Texts(random)
    values = [_nested_text(random) if random.random() < 0.9 else hostile.draw() for _ in range(500)]
    decoded = 0
    for size in (1, 5):
        for at in range(0, len(values), size):
            part: list[bytes | None] = list(values[at : at + size])
            for value, row in zip(values[at : at + size], rows_of(part, _NESTED_READER), strict=True):
                if row is not None:
                    decoded += 1
                    assert is_json(value), value
                    assert row == nested_row_of(value), value
    assert decoded > 250


_DEEP = BlockReader(
    pa.schema({
        "a": pa.list_(pa.list_(pa.float64())), "b": pa.struct({"c": pa.list_(pa.struct({"d": pa.int64()}))}),
    }),
    "rw_end",
    _SUFFIX,
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'{"a":[[1,2.5],[],null,[null]]}', {"a": [[1.0, 2.5], [], None, [None]], "b": None}),
        (b'{"b":{"c":[{"d":1},{},null]}}', {"a": None, "b": {"c": [{"d": 1}, {"d": None}, None]}}),
        (b'{"b":{"c":null,"x":{"d":2}}}', {"a": None, "b": {"c": None}}),
        (b'{"b":{}}', {"a": None, "b": {"c": None}}),
        (b'{"a":[],"b":null}', {"a": [], "b": None}),
        (b'{"a":[[1,-0.0]]}', None),
        (b'{"a":[[1,1e999]]}', None),
        (b'{"a":[1]}', None),
        (b'{"a":{"0":[1]}}', None),
        (b'{"b":{"c":[{"D":1}]}}', None),
        (b'{"b":{"C":[{"d":1}]}}', None),
        (b'{"b":{"c":[{"d":1},{"D":1}]}}', None),
        (b'{"b":{"c":[{"d":1,"d":2}]}}', None),
        (b'{"b":{"c":{"d":1}}}', None),
        (b'{"b":[]}', None),
        (b'{"b":""}', None),
        (b'{"b":{"c":[{"d":"1"}]}}', None),
        (b'{"b":{"rw_end":true}', None),
        (b'{"b":{"c":[1]}}', None),
    ],
)
def test_nested_values(value: bytes, row: dict[str, object] | None) -> None:
    good = b'{"a":[[5]],"b":{"c":[{"d":5}]}}'
    (found,) = rows_of([value], _DEEP)
    assert found == row
    first, found, last = rows_of([good, value, good], _DEEP)
    if row is not None:
        assert (first, found, last) == ({"a": [[5.0]], "b": {"c": [{"d": 5}]}}, row, first)
    else:
        assert found is None


def test_a_null_leaves_only_its_own_record() -> None:
    # "ID" and "No" are other members; "no" and "id" are NULL in a few records.
    usual = b'{"id":1,"addr":{"no":2,"No":5},"kind":"ID","ID" :9}'
    values = [usual, b'{"id":null,"addr":{"no":3},"kind":"ID"}', b'{"id":1,"addr":{}}', usual, b'{"iD":4}']

    def row(id_: int | None, number: int | None) -> dict[str, object]:
        return {"id": id_, "ratio": None, "addr": {"zipcode": None, "no": number}, "lines": None}

    assert rows_of([*values], _NESTED_READER) == [row(1, 2), row(None, 3), row(1, None), row(1, 2), None]


@pytest.mark.parametrize("name", ["\u212aind", "\u017fku", "KIND", "SKU"])
def test_letters_beyond_ascii_that_become_ascii_in_another_case(name: str) -> None:
    reader = BlockReader(pa.schema({"kind": pa.string(), "sku": pa.string()}), "rw_end", _SUFFIX)
    assert rows_of([f'{{"{name}":"a"}}'.encode()], reader) == [None]
