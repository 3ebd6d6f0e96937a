"""A second implementation of FORMAT PLAIN ENCODE JSON in plain Python. Also makes random texts for this implementation
and the decoder.

The implementation has nothing in common with the decoder except the documentation of the format. Python's ``json``
(without its constants) and Jackson's ObjectMapper decide whether a text is JSON, and both must agree.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import Decimal, localcontext
from random import Random
from typing import TYPE_CHECKING, Any

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, RAW, decode

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

COLUMNS = (
    "id BIGINT, name VARCHAR, userid INT, amount NUMERIC(38, 18), ratio DOUBLE, doc JSONB, ison BOOLEAN, "
    "addr STRUCT<zipcode VARCHAR, no INT>, lines STRUCT<sku VARCHAR, qty INT, doc JSONB>[], tags MAP(VARCHAR, VARCHAR)"
)
RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
LONGEST_NUMBER = 1000
DEEPEST = 1000


class WrongError(Exception):
    """A text is not JSON, or does not fit the columns."""


class Number(str):
    """A number with its original spelling."""


class Members(list[tuple[str, Any]]):
    """The members of an object in their original order. Equal names may occur several times."""


# The row of a text


def parse(raw: bytes, longest_number: int | None = LONGEST_NUMBER) -> Any:
    """Parses strict JSON in UTF-8. Raises WrongError for any other text, and for a number with more than
    ``longest_number`` characters."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    try:
        found = json.loads(
            raw.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Members
        )
    except (ValueError, RecursionError) as error:
        raise WrongError(str(error)) from error
    _check_limits(found, 1, longest_number)
    return found


def row_of(raw: bytes, columns: Collection[str] = ()) -> dict[str, Any]:
    """The row of a value, by default with all columns of COLUMNS. Raises WrongError if the value has no row."""
    kinds = {
        "id": _integer(63), "name": _text, "userid": _integer(31), "amount": _amount, "ratio": _ratio, "doc": _text,
        "ison": _boolean, "addr": _struct({"zipcode": _text, "no": _integer(31)}),
        "lines": _array(_struct({"sku": _text, "qty": _integer(31), "doc": _text})), "tags": _map,
    }  # fmt: skip
    return _row({name: kinds[name] for name in columns or kinds}, raw)


def nested_row_of(raw: bytes) -> dict[str, Any]:
    """The row of a value with four of the columns. The structs in ``lines`` contain only numbers and strings. Raises
    WrongError if the value has no row."""
    kinds = {
        "id": _integer(63), "ratio": _ratio, "addr": _struct({"zipcode": _text, "no": _integer(31)}),
        "lines": _array(_struct({"sku": _text, "qty": _integer(31)})),
    }  # fmt: skip
    return _row(kinds, raw)


def _row(kinds: dict[str, Any], raw: bytes) -> dict[str, Any]:
    found = parse(raw, longest_number=None)
    if not isinstance(found, Members):
        raise WrongError("no object")
    _check_characters(found)
    row: dict[str, Any] = _struct(kinds)(found)
    return row


def _check_limits(value: Any, depth: int, longest_number: int | None) -> None:
    """Raises WrongError for a text that is nested more deeply than Jackson accepts, or that contains a longer number
    than Jackson accepts."""
    if depth > DEEPEST:
        raise WrongError("too deep")
    match value:
        case Number() if longest_number is not None and len(value) > longest_number:
            raise WrongError("too long a number")
        case Members():
            for _, item in value:
                _check_limits(item, depth + isinstance(item, list), longest_number)
        case list():
            for item in value:
                _check_limits(item, depth + isinstance(item, list), longest_number)


def _check_characters(value: Any) -> None:
    """Raises WrongError for an escape that is half of a character, because UTF-8 cannot represent half of a
    character."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise WrongError("half a character") from error
        case Members():
            for name, item in value:
                _check_characters(name)
                _check_characters(item)
        case list():
            for item in value:
                _check_characters(item)


def _struct(kinds: dict[str, Any]) -> Any:
    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Members):
            raise WrongError("no object")
        row = {}
        for name, kind in kinds.items():
            own = [item for given, item in value if given == name]
            others = [item for given, item in value if given != name and given.lower() == name]
            row[name] = kind((own or others or [None])[-1])
        return row

    return convert


def _array(kind: Any) -> Any:
    def convert(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if isinstance(value, Members) or not isinstance(value, list):
            raise WrongError("no array")
        return [kind(item) for item in value]

    return convert


def _map(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Members):
        raise WrongError("no object")
    return {name: _text(item) for name, item in value}


def _digits(value: Any, pattern: str) -> str:
    """The text of a number. The number may also be inside a string."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise WrongError("no number")
    return value


def _integer(bits: int) -> Any:
    def convert(value: Any) -> int | None:
        if value is None:
            return None
        found = int(_digits(value, r"[-+]?[0-9]+"))
        if not -(2**bits) <= found < 2**bits:
            raise WrongError("too large")
        return found

    return convert


_NUMBER = r"[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?"


def _amount(value: Any) -> Decimal | None:
    if value is None:
        return None
    with localcontext(prec=3000):
        given = Decimal(_digits(value, _NUMBER))
        if abs(given) >= Decimal(10) ** 20:
            raise WrongError("too large")
        found = given.quantize(Decimal("1e-18"))
        if found != given:
            raise WrongError("more digits than the column has")
    return found


def _ratio(value: Any) -> float | None:
    if value is None:
        return None
    found = float(_digits(value, _NUMBER))
    if math.isinf(found):
        raise WrongError("too large for a double")
    return found


def _boolean(value: Any) -> bool | None:
    match value:
        case None | True | False:
            return value
        case str() if value.lower() in ("true", "1"):
            return True
        case str() if value.lower() in ("false", "0"):
            return False
        case _:
            raise WrongError("no boolean")


def _text(value: Any) -> str | None:
    """The content of a string. For any other value, the value as JSON, with all of its digits."""
    match value:
        case None:
            return None
        case True:
            return "true"
        case False:
            return "false"
        case str():
            return str(value)
        case _:
            return _dump(value)


def _dump(value: Any) -> str:
    match value:
        case Number():
            return str(value)
        case Members():
            return "{" + ",".join(f"{_dump(name)}:{_dump(item)}" for name, item in value) + "}"
        case list():
            return "[" + ",".join(map(_dump, value)) + "]"
        case str():
            upper = json.dumps(value, ensure_ascii=False)
            return re.sub(r"\\u00[0-9a-f]{2}", lambda found: "\\u" + found[0][2:].upper(), upper)
        case _:
            return json.dumps(value)


# Random texts

_NUMBERS = (
    "0", "-0", "1", "-7", "42", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1.0", "1.10",
    "0.5", "-0.0", "1e3", "1E-7", "12345678901234567890.123456789", "0.1000000000000000055511151231257827", "1E400",
    "9007199254740993", "123456789012345678901234567890", "0.000000000000000000049", "3.141592653589793238462643",
)  # fmt: skip
_STRINGS = (
    '""', '"a"', '"żółw 🐢"', '"a\\"b"', '"\\\\"', '"\\u00e9\\n\\t\\/"', '"\\ud83d\\udc22"', '"}{"', '"]["', '"1.10"',
    '"x\\\\ud800"', '"\\u0000"', '"\\"userId\\":1"', '"{\\"a\\":1.10}"', '"\\u001f\x7f"', '", \\"id\\": 1"', '"eu-1"',
)  # fmt: skip
_BARE = (b":NaN", b":-Infinity", b":INF", b":1.", b":.5")
_SPACES = ("", "", "", " ", "\n", " \t\r\n")
_SPELLINGS = {
    "id": ("id", "ID", "i\\u0064"), "name": ("name", "Name", "NAME"), "userid": ("userid", "userId", "UserID"),
    "amount": ("amount",), "ratio": ("ratio", "Ratio"), "doc": ("doc", "Doc"), "ison": ("ison", "isOn", "is\\u004fn"),
    "addr": ("addr", "Addr"), "lines": ("lines", "Lines"), "tags": ("tags", "Tags"), "zipcode": ("zipcode", "zipCode"),
    "no": ("no", "No"), "sku": ("sku", "SKU"), "qty": ("qty", "Qty"),
}  # fmt: skip


class Texts:
    """Makes random values for a source with COLUMNS. A value is valid, or has one fault."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # Each text spells a name in only one way. Another test checks which of two different spellings applies.
        self._spelled: dict[str, str] = {}

    def draw(self) -> bytes:
        """One value."""
        self._spelled = {name: self._random.choice(given) for name, given in _SPELLINGS.items()}
        if self._random.random() < 0.3:
            self._spelled = {name: name for name in _SPELLINGS}
        text = self._space() + self._row() + self._space()
        raw = text.encode()
        return self._spoiled(raw) if self._random.random() < 0.45 else raw

    def _space(self) -> str:
        return self._random.choice(_SPACES)

    def _object(self, members: list[tuple[str, str]]) -> str:
        inner = ",".join(
            f'{self._space()}"{name}"{self._space()}:{self._space()}{value}{self._space()}' for name, value in members
        )
        return "{" + (inner or self._space()) + "}"

    def _row(self) -> str:
        makers = {
            "id": self._whole, "name": self._leaf, "userid": self._whole, "amount": self._number, "ratio": self._number,
            "doc": self._any, "ison": lambda: self._random.choice(("true", "false")), "addr": self._address,
            "lines": self._lines, "tags": self._tags,
        }  # fmt: skip
        members = []
        for name, make in makers.items():
            if self._random.random() < 0.5:
                members.append((self._spelled[name], "null" if self._random.random() < 0.1 else make()))
        if members and self._random.random() < 0.08:
            name = self._random.choice(members)[0]
            maker = next(make for plain, make in makers.items() if self._spelled[plain] == name)
            members.append((name, maker()))
        if self._random.random() < 0.1:
            members.append(("other", self._any()))
        self._random.shuffle(members)
        return self._object(members)

    def _whole(self) -> str:
        if self._random.random() < 0.04:
            return self._random.choice((*_NUMBERS, '"5"', "true", "{}", "[]"))
        return str(self._random.randint(-(2**31), 2**31 - 1))

    def _number(self) -> str:
        if self._random.random() < 0.04:
            return self._random.choice((*_NUMBERS, "true", "[1]"))
        return self._random.choice([number for number in _NUMBERS if number != "1E400" and len(number) < 36][:14])

    def _leaf(self) -> str:
        return self._random.choice((*_NUMBERS, *_STRINGS, *_STRINGS, "true", "null"))

    def _any(self, depth: int = 0) -> str:
        chosen = self._random.random()
        if depth > 2 or chosen < 0.4:
            return self._leaf()
        if chosen < 0.45 and depth == 0:
            deep = self._random.choice((50, 400, 1200))
            return "[" * deep + "1.10" + "]" * deep
        if chosen < 0.47:
            return "9" * self._random.choice((400, 990, 1100))
        many = range(self._random.randint(0, 3))
        if chosen < 0.7:
            return "[" + ",".join(self._space() + self._any(depth + 1) for _ in many) + "]"
        names = ("a", "userId", "id", "ID", 'q\\"', "\\u0061", "", "name")
        return self._object([(self._random.choice(names), self._any(depth + 1)) for _ in many])

    def _address(self) -> str:
        if self._random.random() < 0.03:
            return self._random.choice(("[]", "1", '""'))
        parts = [("zipcode", self._leaf), ("no", self._whole)]
        return self._object([(self._spelled[name], make()) for name, make in parts if self._random.random() < 0.7])

    def _line(self) -> str:
        if self._random.random() < 0.05:
            return "null"
        parts = [("sku", self._leaf), ("qty", self._whole), ("doc", self._any)]
        return self._object([(self._spelled[name], make()) for name, make in parts if self._random.random() < 0.7])

    def _lines(self) -> str:
        if self._random.random() < 0.03:
            return self._random.choice(("{}", "1", '"x"'))
        return "[" + ",".join(self._line() for _ in range(self._random.randint(0, 3))) + "]"

    def _tags(self) -> str:
        names = ("a", "b", "a", "userId", "id", "ID", "żółw")
        count = self._random.randint(0, 4)
        return self._object([(self._random.choice(names), self._leaf()) for _ in range(count)])

    def _spoiled(self, raw: bytes) -> bytes:
        random = self._random
        at = random.randint(0, len(raw))
        another = self._row().encode()
        faults = (
            lambda: raw + another,
            lambda: raw + b"\n" + another,
            lambda: raw + b"," + another,
            lambda: raw
            + random.choice((b" x", b"]", b"}", b"\x00", b"1", b'""', b"null", b"//", b"\xff", b"\xa0", b":")),
            lambda: random.choice((b"\xef\xbb\xbf", b"\x00", b"[", b"{", b"1", b"#\n", b",")) + raw,
            lambda: b"[" + raw + b"]",
            lambda: raw[:at],
            lambda: raw[:at] + raw[at + 1 :],
            lambda: raw[:at]
            + random.choice((b"\x00", b"\x01", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\n", b"\t")) + raw[at:],
            lambda: raw[:at]
            + random.choice((b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"'", b"0", b"-", b"."))
            + raw[at:],
            lambda: raw.replace(b'"', b"'"),
            lambda: raw.replace(b'"', b"", 2),
            lambda: raw.replace(b"}", b",}", 1),
            lambda: raw.replace(b"}", b"} ", 1).replace(b":", b"::", 1),
            lambda: re.sub(rb":(\s*)(-?\d)", rb":\g<1>0\2", raw, count=1),
            lambda: re.sub(rb":(\s*)(\d)", rb":\1+\2", raw, count=1),
            lambda: re.sub(rb":\s*-?\d+", random.choice(_BARE), raw, count=1),
            lambda: raw.replace(b"true", b"True").replace(b"null", b"None"),
            lambda: raw.replace(b"\\", random.choice((b"\\x", b"\\u12", b"\\ud800", b"\\udc00")), 1),
            lambda: raw.decode().encode("utf-16-le"),
            lambda: random.choice((b"", b" ", b"null", b"1", b"[]", b'"x"', b"{}", b"[{}]", b"}", b"{", b"true")),
        )  # fmt: skip
        return random.choice(faults)()


def compare(spark: SparkSession, seed: int, count: int) -> Counter[str]:
    """Decodes ``count`` random texts. Asserts that each text gives its expected result, which is one correct row or one
    error."""
    texts = Texts(Random(f"json {seed}"))
    values = [texts.draw() for _ in range(count)]
    statement = source_definition(
        f"CREATE SOURCE s ({COLUMNS}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT PLAIN ENCODE JSON"
    )
    records = spark.createDataFrame(
        [("t:0", at, None, value, "0", None, None) for at, value in enumerate(values)], RECORDS
    )
    frame = decode(records.coalesce(1), statement, run=0, batch=0, bucket=0)
    found: dict[int, Any] = {}
    for row in frame.collect():
        assert row[OFFSET] not in found, values[row[OFFSET]]
        found[row[OFFSET]] = row
    by_jackson = _by_jackson(spark, values)
    outcomes: Counter[str] = Counter()
    for at, value in enumerate(values):
        assert at in found, (seed, value)
        row = found[at]
        assert by_jackson[at] == is_json(value), ("Python and Jackson differ", seed, value)
        wanted = _row_or_none(value)
        if wanted is None:
            assert row[ERROR] is not None, (seed, value, row)
            assert row[RAW] == value
            outcomes["errors"] += 1
            outcomes["of them JSON"] += by_jackson[at]
            continue
        assert row[ERROR] is None, (seed, value, row[ERROR])
        told = {name: _plain(row[name]) for name in wanted}
        assert _alike(told, wanted), (seed, value, told, wanted)
        outcomes["rows"] += 1
    return outcomes


def _alike(told: Any, wanted: Any) -> bool:
    """True if two values are the same. JSON within text may escape other characters, but has the same digits."""
    match wanted:
        case dict():
            return told is not None and told.keys() == wanted.keys() and all(_alike(told[k], wanted[k]) for k in wanted)
        case list():
            return told is not None and len(told) == len(wanted) and all(map(_alike, told, wanted))
        case str() if told != wanted and told is not None and wanted[:1] in ("{", "["):
            return bool(parse(told.encode(), None) == parse(wanted.encode(), None))
        case _:
            return bool(told == wanted)


def is_json(value: bytes) -> bool:
    """True if a value is strict JSON, within Jackson's limits."""
    try:
        parse(value)
    except WrongError:
        return False
    return True


def _row_or_none(value: bytes) -> dict[str, Any] | None:
    try:
        return row_of(value)
    except WrongError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def _by_jackson(spark: SparkSession, values: list[bytes]) -> list[bool]:
    """Returns, for each value, whether Jackson reads it as one JSON value. Jackson gets the text, because it would
    guess the encoding of bytes."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    jackson = jvm.com.fasterxml.jackson
    feature = jackson.databind.DeserializationFeature.FAIL_ON_TRAILING_TOKENS
    mapper = jackson.databind.ObjectMapper().enable(feature)
    found = []
    for value in values:
        try:
            found.append(not mapper.readTree(value.decode()).isMissingNode())
        except (Py4JJavaError, UnicodeDecodeError):
            found.append(False)
    return found
