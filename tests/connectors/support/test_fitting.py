"""Values of Parquet files in the types of columns: exactly, or an error of the row."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rw_sql.connectors.support.fitting import fitted, matches

UTC = datetime.UTC
TIME, DAY = datetime.datetime(2024, 4, 11, 5, tzinfo=UTC), datetime.date(2024, 4, 11)
MISFIT = object()
"""A value that does not fit."""


def result(values: list[Any], given: pa.DataType, wanted: pa.DataType) -> list[Any]:
    """The fitted values, also of the middle of a longer array, whose parts have offsets."""
    made, is_misfit = fitted(pa.array(values, given), wanted)
    assert made.type == wanted
    made.validate(full=True)
    padded, is_padded = fitted(pa.array([*values, *values, *values], given)[len(values) : 2 * len(values)], wanted)
    assert (padded.to_pylist(), is_padded.tolist()) == (made.to_pylist(), is_misfit.tolist())
    return [MISFIT if wrong else value for value, wrong in zip(made.to_pylist(), is_misfit, strict=True)]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.large_string(), pa.binary_view()])
def test_a_map_may_be_null(kind: pa.DataType) -> None:
    value = b"x" if pa.types.is_binary_view(kind) else "x"
    values = [[("a", value)], None, []]
    assert result(values, pa.map_(pa.string(), kind), pa.map_(pa.string(), pa.string())) == [[("a", "x")], None, []]


def test_a_map_that_is_null_may_have_items() -> None:
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), pa.array([1, 2, 3]))
    mask = pa.array([False, True, False])
    given = pa.StructArray.from_arrays([maps], fields=[pa.field("m", maps.type)], mask=mask)
    made, _ = fitted(given, pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))
    assert made.to_pylist() == [{"m": [("a", 1)]}, None, {"m": [("c", 3)]}]


@pytest.mark.parametrize("kind", [pa.list_view(pa.int32()), pa.large_list_view(pa.int32())])
def test_list_views_keep_their_items(kind: pa.DataType) -> None:
    assert result([[1, 2], None, [], [3]], kind, pa.list_(pa.int64())) == [[1, 2], None, [], [3]]


@pytest.mark.parametrize(
    ("given", "wanted", "values"),
    [
        (pa.float64(), pa.decimal128(10, 2), {1.1: Decimal("1.10"), 1.239: MISFIT, math.nan: MISFIT, 1e12: MISFIT}),
        (pa.float64(), pa.float32(), {1.5: 1.5, 1e300: MISFIT, math.inf: math.inf, 0.0: 0.0}),
        (pa.float64(), pa.int64(), {2.0: 2, 2.5: MISFIT}),
        (pa.int64(), pa.int32(), {5: 5, 2**40: MISFIT}),
        (pa.int64(), pa.bool_(), {0: False, 1: True, 7: MISFIT}),
        (
            pa.decimal128(20, 2),
            pa.bool_(),
            {Decimal("0.00"): False, Decimal("1.00"): True, Decimal("0.01"): MISFIT, Decimal(10**12): MISFIT},
        ),
        (pa.float64(), pa.bool_(), {0.0: False, 1.0: True, 1.5: MISFIT, math.nan: MISFIT}),
        (pa.int64(), pa.decimal128(10, 2), {5: Decimal("5.00"), 2**40: MISFIT, -(2**63): MISFIT}),
        (pa.uint64(), pa.decimal128(10, 0), {5: Decimal(5), 2**64 - 1: MISFIT}),
        (pa.decimal128(20, 2), pa.int32(), {Decimal("2.00"): 2, Decimal("1.50"): MISFIT, Decimal(10**12): MISFIT}),
        (pa.int64(), pa.string(), {5: "5"}),
        (pa.decimal128(10, 3), pa.decimal128(10, 2), {Decimal("1.230"): Decimal("1.23"), Decimal("1.239"): MISFIT}),
        (
            pa.timestamp("ns"),
            pa.timestamp("us"),
            {datetime.datetime(2024, 4, 11, 5): datetime.datetime(2024, 4, 11, 5)},
        ),
        (pa.timestamp("us", tz="UTC"), pa.date32(), {TIME: MISFIT, TIME.replace(hour=0): DAY}),
        (pa.timestamp("us"), pa.date32(), {datetime.datetime(2024, 4, 11): DAY, datetime.datetime(1, 1, 1, 1): MISFIT}),
        (
            pa.string(),
            pa.int32(),
            {"7": 7, " +12\n": 12, "-0": 0}
            | dict.fromkeys(
                ["x", "٣", "１", "0x10", "1_000", "1e3", "1.0", "\x001", "\u00a01", "1\u2028", "+-1", ""], MISFIT
            ),
        ),
        (
            pa.string(),
            pa.float64(),
            {" +1.5 ": 1.5, "inf": math.inf, "9" * 40: 1e40}
            | dict.fromkeys(["٣", "0x10", "1_0", "INFINITY", "-nan", "iNf", "1f", "1,5", "\x001"], MISFIT),
        ),
        (pa.string(), pa.decimal128(10, 2), {"٣": MISFIT, "0x10": MISFIT, " 1.5 ": Decimal("1.50"), "1_0": MISFIT}),
        (
            pa.string(),
            pa.timestamp("us", tz="UTC"),
            dict.fromkeys(
                [
                    "2024-04-11T05",
                    "2024-04-11 05:00:00z",
                    "2024-04-11 05:00:00+02 Z",
                    "2024-04-11 05:00:00\n",
                    " 2024-04-11",
                    "2024-04-11 05:00:00 UTC",
                    "20240411",
                    "2024-04-11Z",
                ],
                MISFIT,
            ),
        ),
        (pa.string(), pa.decimal128(10, 2), {"1.230": Decimal("1.23"), "1.239": MISFIT, "1e2": Decimal(100)}),
        (pa.string(), pa.float64(), {"1.5": 1.5, "1e400": MISFIT, "-Infinity": -math.inf, "1d": MISFIT}),
        (pa.large_string(), pa.float32(), {"1.5": 1.5, "1e40": MISFIT, "inf": math.inf}),
        (pa.string(), pa.date32(), {"2024-04-11": DAY, "2024-04-11 05:00:00": MISFIT}),
        (
            pa.string(),
            pa.timestamp("us", tz="UTC"),
            {
                "2024-04-11 05:00:00": TIME,
                "2024-04-11T07:00:00.000000000+02:00": TIME,
                "2024-04-11": TIME.replace(hour=0),
                "2024-04-11 05:00:00.123456789": MISFIT,
                "": MISFIT,
            },
        ),
        (
            pa.string(),
            pa.timestamp("us"),
            {
                "2024-04-11 05:00:00": TIME.replace(tzinfo=None),
                "2024-04-11T05:00:00Z": TIME.replace(tzinfo=None),
                "2024-04-11T05:00:00+02:00": MISFIT,
            },
        ),
        (pa.binary(), pa.string(), {b"a": "a", b"\xff": MISFIT}),
    ],
)
def test_a_value_fits_exactly_or_not_at_all(given: pa.DataType, wanted: pa.DataType, values: dict[Any, Any]) -> None:
    assert result([*values, None], given, wanted) == [*values.values(), None]
    inside = pa.list_(pa.struct([("V", given)])), pa.list_(pa.struct([("v", wanted)]))
    assert result([[{"V": value}, None] for value in values] + [None, []], *inside) == [
        *(MISFIT if value is MISFIT else [{"v": value}, None] for value in values.values()),
        None,
        [],
    ]
    of_map = pa.map_(pa.string(), given), pa.map_(pa.string(), wanted)
    assert result([[("k", value)] for value in values] + [None, []], *of_map) == [
        *(MISFIT if value is MISFIT else [("k", value)] for value in values.values()),
        None,
        [],
    ]


def test_a_number_is_a_time_in_the_unit_of_its_size() -> None:
    seconds = int(TIME.timestamp())
    numbers = [
        seconds,
        seconds * 10**3,
        seconds * 10**6,
        seconds * 10**9,
        -5,
        None,
        seconds * 10**9 + 1,
        2**63 - 1,
        -(2**63),
    ]
    zoned = result(numbers, pa.int64(), pa.timestamp("us", tz="UTC"))
    early = datetime.datetime(1969, 12, 31, 23, 59, 55, tzinfo=UTC)
    assert zoned == [TIME, TIME, TIME, TIME, early, None, MISFIT, MISFIT, MISFIT]
    assert result([2**64 - 1, None], pa.uint64(), pa.timestamp("us")) == [MISFIT, None]
    assert result([86_400], pa.int32(), pa.timestamp("us")) == [datetime.datetime(1970, 1, 2)]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.date32(), pa.date32()),
        (pa.date32(), pa.string()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us", tz="UTC"), pa.date32()),
    ],
)
@pytest.mark.parametrize("shape", ["plain", "list", "struct", "value", "key"])
def test_dates_of_the_julian_calendar_do_not_fit(shape: str, given: pa.DataType, wanted: pa.DataType) -> None:
    days = [datetime.date(1582, 10, 4), datetime.date(1582, 10, 16), datetime.date(2024, 4, 11)]
    shapes: dict[str, tuple[Any, Any]] = {
        "plain": (lambda kind: kind, lambda day: day),
        "list": (pa.list_, lambda day: [day]),
        "struct": (lambda kind: pa.struct([("day", kind)]), lambda day: {"day": day}),
        "value": (lambda kind: pa.map_(pa.string(), kind), lambda day: [("k", day)]),
        "key": (lambda kind: pa.map_(kind, pa.int32()), lambda day: [(day, 1)]),
    }
    kind, value = shapes[shape]
    if pa.types.is_date(given):
        made = pa.array([value(day) for day in days], kind(given))
    else:
        made = pa.array([value(datetime.datetime(*day.timetuple()[:3])) for day in days], kind(given))
    assert fitted(made, kind(wanted))[1].tolist() == [False, False, False]
    assert fitted(made, kind(wanted), is_julian=True)[1].tolist() == [True, False, False]
    texts, is_misfit = fitted(pa.array(["1500-01-01"]), pa.date32(), is_julian=True)
    assert (texts.to_pylist(), is_misfit.tolist()) == ([datetime.date(1500, 1, 1)], [False])


def test_fields_are_matched_by_name_in_any_case_and_order() -> None:
    given = pa.struct([("userId", pa.int64()), ("b", pa.int64()), ("more", pa.int64())])
    wanted = pa.struct([("b", pa.int32()), ("userid", pa.int32()), ("c", pa.string())])
    values = [{"userId": 1, "b": 2, "more": 3}, None, {"userId": 2**40, "b": 2, "more": 3}]
    assert result(values, given, wanted) == [{"b": 2, "userid": 1, "c": None}, None, MISFIT]
    assert matches(["userId", "userid", "x"], ["USERID", "userid", "X"]) == {
        "userId": None,
        "userid": "userid",
        "x": "X",
    }


def test_a_list_of_another_kind_of_items_may_be_empty() -> None:
    given, wanted = pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.string())
    assert result([[], None], given, wanted) == [[], None]
    assert result([[{"a": 1}], []], given, wanted) == [MISFIT, []]


def test_keys_of_maps_that_do_not_fit() -> None:
    of_map = pa.map_(pa.string(), pa.int64()), pa.map_(pa.int32(), pa.int32())
    assert result([[("1", 1)], [("x", 1)], None], *of_map) == [[(1, 1)], MISFIT, None]


def texts(*values: bytes) -> pa.Array:
    """Strings with any bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("form", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_text_that_is_not_utf_8_does_not_fit(form: pa.DataType) -> None:
    given = texts(b"ok", b"na\xff", b"\xc0\x80", "\u00e4\U0001f600".encode()).cast(form)
    made, is_misfit = fitted(given, pa.string())
    made.validate(full=True)
    assert made.to_pylist() == ["ok", None, None, "\u00e4\U0001f600"]
    assert is_misfit.tolist() == [False, True, True, False]
    # The bytes are data of a BYTEA column.
    assert fitted(given, pa.binary())[0].to_pylist()[1] == b"na\xff"
    offsets = [0, 1, 2, 3, 4]
    keys, values = pa.array(list("abcd")), texts(b"ok", b"\xff", b"b", b"c")
    for inside in (
        pa.ListArray.from_arrays(offsets, values),
        pa.StructArray.from_arrays([values], names=["v"]),
        pa.MapArray.from_arrays(offsets, keys, values),
        pa.MapArray.from_arrays(offsets, values, keys),
    ):
        made, is_misfit = fitted(inside, inside.type)
        made.validate(full=True)
        assert is_misfit.tolist() == [False, True, False, False]


def test_the_values_of_a_dictionary_are_read_by_the_rules_of_their_type() -> None:
    given = pa.array(["0x1F", "7", None, "7"]).dictionary_encode()
    made, is_misfit = fitted(given, pa.int64())
    assert (made.to_pylist(), is_misfit.tolist()) == ([None, 7, None, 7], [True, False, False, False])
    made, is_misfit = fitted(pa.array(["1e400", "1.5"], pa.string_view()), pa.float64())
    assert (made.to_pylist(), is_misfit.tolist()) == ([None, 1.5], [True, False])
    lists = pa.ListArray.from_arrays([0, 1, 2], pa.array(["0x1F", "7"]).dictionary_encode())
    assert fitted(lists, pa.list_(pa.int64()))[1].tolist() == [True, False]
    assert fitted(texts(b"\xff", b"a").dictionary_encode(), pa.string())[1].tolist() == [True, False]


def test_a_uuid_is_text_or_16_bytes() -> None:
    number = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
    given = pa.array([None, number.bytes, number.bytes], pa.uuid())[1:]
    for wanted, value in ((pa.string(), str(number)), (pa.binary(), number.bytes)):
        made, is_misfit = fitted(given, wanted)
        assert (made.type, made.to_pylist(), is_misfit.tolist()) == (wanted, [value, value], [False, False])
    assert fitted(pa.ListArray.from_arrays([0, 2], given), pa.list_(pa.string()))[0].to_pylist() == [[str(number)] * 2]
    assert fitted(given, pa.int64())[1].tolist() == [True, True]


def test_values_with_parts_are_no_text() -> None:
    for given in ([[1]], [{"a": 1}]):
        assert fitted(pa.array(given), pa.string())[1].tolist() == [True]


LAST_DAY, LAST_MICROS = 2_932_896, 253_402_300_799_999_999


@pytest.mark.parametrize(
    ("number", "kind", "limits"),
    [
        (pa.int32(), pa.date32(), (-719_162, LAST_DAY)),
        (pa.int64(), pa.timestamp("us"), (-62_135_596_800_000_000, LAST_MICROS)),
        (pa.int64(), pa.timestamp("us", tz="UTC"), (-62_135_596_800_000_000, LAST_MICROS)),
    ],
)
def test_years_are_1_to_9999(number: pa.DataType, kind: pa.DataType, limits: tuple[int, int]) -> None:
    first, last = limits
    given = pa.array([first - 1, first, None, last, last + 1], number).cast(kind)
    is_outside = [True, False, False, False, True]
    assert fitted(given, kind)[1].tolist() == is_outside
    for inside, kinds in (
        (pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], given), pa.list_(kind)),
        (pa.StructArray.from_arrays([given], names=["v"]), pa.struct([("v", kind)])),
        (pa.MapArray.from_arrays([0, 1, 2, 3, 4, 5], pa.array(list("abcde")), given), pa.map_(pa.string(), kind)),
    ):
        assert inside.type == kinds
        assert fitted(inside, kinds)[1].tolist() == is_outside


def test_other_types_of_times_are_in_the_years_too() -> None:
    seconds = pa.array([LAST_MICROS // 10**6, LAST_MICROS // 10**6 + 1], pa.int64()).cast(pa.timestamp("s"))
    assert fitted(seconds, pa.timestamp("us"))[1].tolist() == [False, True]
    days = pa.array([LAST_DAY, LAST_DAY + 1], pa.int32()).cast(pa.date32())
    assert fitted(days, pa.timestamp("us"))[1].tolist() == [False, True]
