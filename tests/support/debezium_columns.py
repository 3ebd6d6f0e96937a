"""The columns of a table of PostgreSQL, and the values that Debezium writes for them in each of its modes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DECIMALS = ("precise", "string", "double")
_TIMES = ("adaptive", "connect", "isostring", "adaptive_time_microseconds", "microseconds", "nanoseconds")
_BINARIES = ("bytes", "base64", "hex", "base64-url-safe")
KEYS: Mapping[str, tuple[str, ...]] = {
    "int": ("id INT",),
    "composite": ("region TEXT", "number SMALLINT"),
    "uuid": ("id UUID",),
    "decimal": ("id NUMERIC(8, 2)",),
    "moment": ("id TIMESTAMPTZ",),
    "time": ("id TIMESTAMP", "word CHAR(3)"),
}
_IDENTITIES = ("DEFAULT", "FULL", "USING INDEX")
_WORDS = (
    "",
    "plain",
    'say "x"',
    "back\\slash",
    "two\nlines",
    "tab\there",
    "\x01\x0b\x7f",
    "ü 漢 🦀",
    "\\N",
    "{},'",
    "NULL",
)
_JSON = ("{}", "null", "[1, 2.50]", '{"a": {"b": [null, "ü"]}}', "1e3")
BIG = ("big", "bigj", "bigb", "biga", "bigi", "bigu")
"""Columns whose values are stored apart from the row (TOAST)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The settings of one history. If ``is_listed`` is true, the statement lists the columns; otherwise all columns
    come from the schema."""

    decimal: str
    time: str
    binary: str
    interval: str
    key: str
    identity: str
    has_tombstones: bool
    has_truncates: bool
    partitions: int
    is_listed: bool

    @staticmethod
    def of(seed: int) -> Modes:
        """The modes for a seed. Twelve consecutive seeds cover every mode."""
        chance = random.Random(seed)
        return Modes(
            decimal=_DECIMALS[(seed + seed // 6) % 3],
            time=_TIMES[seed % 6],
            binary=_BINARIES[seed % 4],
            interval=("numeric", "string")[seed // 2 % 2],
            key=tuple(KEYS)[seed // 2 % 6],
            identity=_IDENTITIES[seed // 3 % 3],
            has_tombstones=(seed + seed // 4) % 2 == 0,
            has_truncates=seed // 4 % 2 == 0,
            partitions=chance.choice((1, 3)),
            is_listed=chance.random() < 0.5,
        )

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Debezium's connector."""
        return {
            "decimal.handling.mode": self.decimal,
            "time.precision.mode": self.time,
            "binary.handling.mode": self.binary,
            "interval.handling.mode": self.interval,
            "tombstones.on.delete": str(self.has_tombstones).lower(),
            "skipped.operations": "none" if self.has_truncates else "t",
        }


def _text(value: str | None) -> str | None:
    return value


def _number(value: str | None) -> object:
    return None if value is None else Decimal(value)


def _float(value: str | None) -> object:
    return None if value is None else repr(float(value))


def _parsed(value: str) -> Any:
    return json.loads(value, parse_float=Decimal, parse_int=Decimal)


def _json(value: str | None) -> object:
    """A JSON value in a form in which numbers are compared by value, and in which JSON's null differs from NULL."""
    return None if value is None else [_parsed(value)]


def _numbers(value: str | None) -> object:
    """An array of decimals, or of texts of decimals."""
    return None if value is None else [None if item is None else Decimal(item) for item in _parsed(value)]


def _floats(value: str | None) -> object:
    return None if value is None else [None if item is None else float(item) for item in _parsed(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its type in PostgreSQL, random values as SQL, and the texts that both sides return for a value.

    ``listed`` is the type of the column in a statement that lists the columns; None if the column must have the type of
    the schema. ``known`` converts a text to a form that can be compared.
    """

    name: str
    type: str
    make: Callable[[random.Random], str]
    listed: str | None
    here: str
    there: str
    known: Callable[[str | None], object] = _text


def _quoted(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _moment(chance: random.Random) -> str:
    year = chance.choice((2, 44, 1582, 1969, 1970, 1999, 2024, 2026, 2261))
    fraction = chance.choice(("", ".1", ".123", ".123456", ".999999", ".000001"))
    return f"{year:04d}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d} {_clock(chance)}{fraction}"


def late_moment(chance: random.Random) -> str:
    """A time within the years that 64-bit nanoseconds can represent."""
    year = chance.choice((1700, 1900, 1969, 1970, 1999, 2024, 2026, 2261))
    fraction = chance.choice(("", ".1", ".123", ".123456", ".999999", ".000001"))
    return f"{year:04d}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d} {_clock(chance)}{fraction}"


def _clock(chance: random.Random) -> str:
    return f"{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:{chance.randint(0, 59):02d}"


def _digits(chance: random.Random, before: int, after: int) -> str:
    sign = chance.choice(("", "-"))
    whole = str(chance.randint(0, 10 ** chance.randint(0, before) - 1))
    return f"{sign}{whole}.{chance.randint(0, 10**after - 1):0{after}d}"


def nullable(make: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    return lambda chance: "NULL" if chance.random() < 0.15 else make(chance)


def _array(make: Callable[[random.Random], str], kind: str) -> Callable[[random.Random], str]:
    def made(chance: random.Random) -> str:
        items = ["NULL" if chance.random() < 0.2 else make(chance) for _ in range(chance.randint(0, 3))]
        return f"ARRAY[{', '.join(items)}]::{kind}[]"

    return made


def _big_count(chance: random.Random) -> int:
    """A number of values that is usually large enough for the column to be stored apart from the row (TOAST)."""
    return chance.choice((1, 900, 1200))


def columns_of(modes: Modes, table: str) -> tuple[Column, ...]:
    """The columns besides the key, with the values that Debezium writes for them in these modes."""
    to_millis = modes.time == "connect"
    moment = late_moment if modes.time == "nanoseconds" else _moment
    number, numbers = (_float, _floats) if modes.decimal == "double" else (_number, _numbers)
    as_double = modes.decimal == "double"

    def decimal(name: str, kind: str, make: Callable[[random.Random], str], listed: str) -> Column:
        return Column(
            name=name,
            type=kind,
            make=make,
            listed="DOUBLE" if as_double else listed,
            here=f"CAST({name} AS STRING)",
            there=f"({name}::numeric)::text",
            known=number,
        )

    def plain(name: str, kind: str, make: Callable[[random.Random], str], listed: str) -> Column:
        return Column(
            name=name, type=kind, make=make, listed=listed, here=f"CAST({name} AS STRING)", there=f"{name}::text"
        )

    def timed(name: str, kind: str, make: Callable[[random.Random], str], listed: str) -> Column:
        there = f"{name}::text"
        if to_millis and kind.startswith("TIMESTAMP"):
            there = f"date_trunc('milliseconds', {name})::text"
        elif to_millis and kind.startswith("TIME"):
            there = f"({name} - make_interval(secs => (extract(microseconds FROM {name})::int % 1000) / 1e6))::text"
        return Column(name=name, type=kind, make=make, listed=listed, here=f"CAST({name} AS STRING)", there=there)

    def listed_json(
        name: str, kind: str, make: Callable[[random.Random], str], known: Callable[[str | None], object] = _json
    ) -> Column:
        return Column(
            name=name,
            type=kind,
            make=make,
            listed=None,
            here=f"to_json({name})",
            there=f"to_json({name})::text",
            known=known,
        )

    def binary(name: str, make: Callable[[random.Random], str]) -> Column:
        there, here, listed = f"encode({name}, 'hex')", name, "VARCHAR"
        if modes.binary == "bytes" or (modes.binary == "base64" and modes.is_listed):
            here, listed = f"lower(hex({name}))", "BYTEA"
        elif modes.binary == "base64":
            there = f"replace(encode({name}, 'base64'), E'\\n', '')"
        elif modes.binary == "base64-url-safe":
            there = f"translate(encode({name}, 'base64'), E'+/\\n', '-_')"
        return Column(name=name, type="BYTEA", make=make, listed=listed, here=here, there=there)

    months = "extract(year FROM iv) * 12 + extract(month FROM iv)"
    seconds = "extract(hour FROM iv) * 3600 + extract(minute FROM iv) * 60 + extract(second FROM iv)"
    interval = Column(
        name="iv",
        type="INTERVAL",
        make=nullable(
            lambda chance: (
                f"'{chance.randint(0, 3)} years {chance.randint(0, 11)} months {chance.randint(0, 40)} days "
                f"{_clock(chance)}.{chance.choice(('0', '5', '25'))}'::interval"
            )
        ),
        listed="BIGINT" if modes.interval == "numeric" else "VARCHAR",
        here="CAST(iv AS STRING)",
        there=f"((({months}) * 30.4375 + extract(day FROM iv)) * 86400000000 + ({seconds}) * 1000000)::bigint::text"
        if modes.interval == "numeric"
        else "'P' || extract(year FROM iv) || 'Y' || extract(month FROM iv) || 'M' || extract(day FROM iv) || 'DT' || "
        "extract(hour FROM iv) || 'H' || extract(minute FROM iv) || 'M' || "
        "trim_scale(extract(second FROM iv)) || 'S'",
    )
    word = nullable(lambda chance: _quoted(chance.choice(_WORDS)))

    def big_text(chance: random.Random) -> str:
        return f"repeat('{chance.randint(0, 999)}é', {_big_count(chance)})"

    # With base64, Debezium writes NULL in place of bytes that did not change, except with FULL.
    keeps_bytes, small_text = not modes.binary.startswith("base64") or modes.identity == "FULL", "'728é'"
    rendered_tsa = "to_json(transform(tsa, x -> CAST(x AS STRING)))"
    return (
        plain("s", "SMALLINT", nullable(lambda c: str(c.choice((-32768, -1, 0, 7, 32767)))), "SMALLINT"),
        plain("i", "INT NOT NULL", lambda c: str(c.choice((-(2**31), -1, 0, 7, 2**31 - 1))), "INT"),
        plain("b", "BIGINT", nullable(lambda c: str(c.choice((-(2**63) + 1, 0, 7, 2**63 - 1)))), "BIGINT"),
        decimal("n", "NUMERIC", nullable(lambda c: _digits(c, 15, c.randint(1, 10))), "NUMERIC"),
        decimal("n2", "NUMERIC(10, 2)", nullable(lambda c: _digits(c, 8, 2)), "NUMERIC(10, 2)"),
        decimal("n30", "NUMERIC(30, 10)", nullable(lambda c: _digits(c, 20, 10)), "NUMERIC(30, 10)"),
        timed("ts", "TIMESTAMP", nullable(lambda c: f"'{moment(c)}'"), "TIMESTAMP"),
        timed("ts3", "TIMESTAMP(3)", nullable(lambda c: f"'{moment(c)}'"), "TIMESTAMP"),
        Column(
            name="tz",
            type="TIMESTAMPTZ",
            make=nullable(lambda c: f"'{moment(c)}{c.choice(('+00', '+02', '-07:30'))}'"),
            listed="TIMESTAMPTZ",
            here="CAST(tz AS STRING)",
            there="(tz AT TIME ZONE 'UTC')::text",
        ),
        plain("d", "DATE", nullable(lambda c: f"'{moment(c)[:10]}'"), "DATE"),
        timed("t", "TIME", nullable(lambda c: f"'{_clock(c)}{c.choice(('', '.5', '.000001', '.123456'))}'"), "VARCHAR"),
        plain("u", "UUID", nullable(lambda c: f"'{c.getrandbits(128):032x}'"), "VARCHAR"),
        Column(
            name="j",
            type="JSONB",
            make=nullable(lambda c: f"'{c.choice(_JSON)}'"),
            listed="JSONB",
            here="j",
            there="j::text",
            known=_json,
        ),
        binary("by", nullable(lambda c: f"decode('{c.randbytes(c.randint(0, 9)).hex()}', 'hex')")),
        listed_json("ia", "INT[]", nullable(_array(lambda c: str(c.randint(-9, 9)), "int"))),
        listed_json("ta", "TEXT[]", nullable(_array(lambda c: _quoted(c.choice(_WORDS[:-1])), "text"))),
        listed_json("na", "NUMERIC(10, 2)[]", nullable(_array(lambda c: _digits(c, 8, 2), "numeric(10,2)")), numbers),
        Column(
            name="tsa",
            type="TIMESTAMP[]",
            make=nullable(_array(lambda c: f"'{late_moment(c)}'", "timestamp")),
            listed=None,
            here=rendered_tsa,
            there="CASE WHEN tsa IS NOT NULL THEN "
            "to_json(ARRAY(SELECT date_trunc('milliseconds', x) FROM unnest(tsa) x)::text[])::text END"
            if to_millis
            else "to_json(tsa::text[])::text",
            known=_json,
        ),
        plain("e", f"{table}_mood", nullable(lambda c: f"'{c.choice(('sad', 'ok', 'größe'))}'"), "VARCHAR"),
        interval,
        Column(
            name="r", type="REAL", make=nullable(_float_literal), listed="REAL",
            here="CAST(r AS STRING)", there="r::text", known=_float,
        ),
        Column(
            name="dp", type="DOUBLE PRECISION", make=nullable(_float_literal), listed="DOUBLE",
            here="CAST(dp AS STRING)", there="dp::text", known=_float,
        ),
        plain("bo", "BOOLEAN", nullable(lambda c: c.choice(("true", "false"))), "BOOLEAN"),
        Column(
            name="c", type="CHAR(5)", make=word_of(5), listed="VARCHAR", here="c", there="rpad(c::text, 5)"
        ),
        plain("v", "VARCHAR(40)", word, "VARCHAR"),
        plain("big", "TEXT NOT NULL DEFAULT 'none'", big_text, "VARCHAR"),
        Column(
            name="bigj", type="JSONB", make=nullable(lambda c: f"to_jsonb({big_text(c)})"), listed="JSONB", here="bigj",
            there="bigj::text", known=_json,
        ),
        binary("bigb", nullable(lambda c: f"convert_to({big_text(c) if keeps_bytes else small_text}, 'UTF8')")),
        listed_json("biga", "TEXT[]", nullable(lambda c: f"ARRAY[{big_text(c)}, NULL]")),
        listed_json("bigi", "INT[]", nullable(
            lambda c: f"(SELECT array_agg(i * {c.randint(1, 9999)}) FROM generate_series(1, {_big_count(c)}) i)"
        )),
        listed_json("bigu", "UUID[]", nullable(
            lambda c: f"(SELECT array_agg(md5(i || '{c.random()}')::uuid) FROM generate_series(1, {_big_count(c)}) i)"
        )),
    )  # fmt: skip


def word_of(length: int) -> Callable[[random.Random], str]:
    """Returns a function that makes random texts of at most this many characters."""
    return nullable(lambda chance: f"left({_quoted(chance.choice(_WORDS))}, {length})")


def _float_literal(chance: random.Random) -> str:
    return f"'{chance.choice(('NaN', 'Infinity', '-Infinity', '-0', '0.1', '1.5e30', '-3.25', '7'))}'"
