"""Times in the time zone of the session, in a process whose time zone is another one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rw_sql.cli.script.report import json_value
from rw_sql.plan.result.plan import Table
from rw_sql.session import results
from rw_sql.session.results import cell_text, read_rows, read_values, rows_of
from rw_sql.session.sparkless import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import DataType

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose time zone is Europe/Berlin."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def frame(zone: str, columns: dict[str, DataType], *rows: tuple[Any, ...]) -> Any:
    """A frame of a session with a time zone, whose rows are as PySpark returns them."""
    made = [Row(*columns)(*row) for row in rows]
    return SimpleNamespace(
        columns=list(columns),
        schema=StructType([StructField(name, kind) for name, kind in columns.items()]),
        sparkSession=SimpleNamespace(conf={"spark.sql.session.timeZone": zone}),
        take=lambda count: made[:count],
    )


def python(at: datetime) -> datetime:
    """The value that PySpark returns for a TIMESTAMP."""
    found: datetime = TimestampType().fromInternal(int(at.timestamp()) * 1_000_000 + at.microsecond)
    return found


EIGHT = datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "text", "in_json"),
    [
        ("UTC", "2026-01-31 08:00:00", "2026-01-31T08:00:00+00:00"),
        ("America/New_York", "2026-01-31 03:00:00", "2026-01-31T03:00:00-05:00"),
        ("+05:45", "2026-01-31 13:45:00", "2026-01-31T13:45:00+05:45"),
        ("Nowhere/Town", "2026-01-31 09:00:00", "2026-01-31T09:00:00+01:00"),
    ],
)
def test_a_timestamp_is_shown_in_the_zone_of_the_session(zone: str, text: str, in_json: str) -> None:
    result = frame(zone, {"at": TimestampType()}, (python(EIGHT),), (None,))
    assert read_rows(result).rows == ((text,), (None,))
    assert [json_value(value) for (value,) in read_values(result).rows] == [in_json, None]


def test_the_two_hours_at_the_end_of_summer_time_differ() -> None:
    first, second = (datetime(2025, 10, 26, hour, 30, tzinfo=UTC) for hour in (0, 1))
    rows = ((python(first),), (python(second),))
    assert read_rows(frame("UTC", {"at": TimestampType()}, *rows)).rows == (
        ("2025-10-26 00:30:00",),
        ("2025-10-26 01:30:00",),
    )
    values = read_values(frame("Europe/Berlin", {"at": TimestampType()}, *rows)).rows
    assert [json_value(value) for (value,) in values] == ["2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"]


def test_a_timestamp_without_a_zone_stays_as_it_is() -> None:
    at = datetime(2026, 1, 31, 8)
    values = read_values(frame("UTC", {"n": TimestampNTZType(), "at": TimestampType()}, (at, python(EIGHT))))
    assert values.rows == ((at, EIGHT),)
    assert values.rows[0][0].tzinfo is None
    assert json_value(at) == "2026-01-31T08:00:00"


def test_timestamps_within_other_values() -> None:
    inner = StructType([StructField("at", TimestampType()), StructField("n", IntegerType())])
    columns: dict[str, DataType] = {
        "list": ArrayType(TimestampType()),
        "map": MapType(TimestampType(), inner),
        "pairs": ArrayType(inner),
        "plain": MapType(StringType(), TimestampNTZType()),
    }
    at, naive = python(EIGHT), datetime(2026, 1, 31, 8)
    row = ([at, None], {at: Row("at", "n")(at, 1)}, [Row("at", "n")(None, 2), None], {"k": naive})
    result = frame("America/New_York", columns, row, (None, None, None, None))
    assert read_rows(result).rows == (
        (
            "[2026-01-31 03:00:00, NULL]",
            "{2026-01-31 03:00:00: {at: 2026-01-31 03:00:00, n: 1}}",
            "[{at: NULL, n: 2}, NULL]",
            "{k: 2026-01-31 08:00:00}",
        ),
        (None, None, None, None),
    )
    struct = read_values(result).rows[0][1][EIGHT]
    assert json_value(struct) == {"at": "2026-01-31T03:00:00-05:00", "n": 1}


def test_a_struct_with_two_fields_of_one_name_keeps_both() -> None:
    twice = StructType([StructField("at", TimestampType()), StructField("at", TimestampType())])
    ((value,),) = read_values(frame("UTC", {"s": twice}, (Row("at", "at")(python(EIGHT), None),))).rows
    assert (list(value.__fields__), tuple(value)) == (["at", "at"], (EIGHT, None))


def test_the_first_and_the_last_time_of_python() -> None:
    last, first = datetime(9999, 12, 31, 23, 59, 59), datetime(1, 1, 1, 0, 53, 28)
    rows = read_rows(frame("UTC", {"at": TimestampType()}, (last,), (first,))).rows
    assert rows == (("9999-12-31 22:59:59",), ("0001-01-01 00:00:00",))
    # In New York, the first time is before the year 1, which Python does not represent.
    ((value,),) = read_values(frame("America/New_York", {"at": TimestampType()}, (first,))).rows
    assert json_value(value) == "0001-01-01T00:00:00+00:00"


def test_a_result_without_timestamps_does_not_ask_for_the_zone() -> None:
    result = frame("UTC", {"n": IntegerType(), "d": TimestampNTZType()}, (1, None))
    result.sparkSession = None
    assert read_values(result).rows == ((1, None),)


def test_the_rows_of_a_statement_without_spark_are_in_the_zone_of_the_next_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(columns=(("at", "TIMESTAMP"), ("n", "INT")), rows=((EIGHT, 1),))
    monkeypatch.setattr(results, "defaults_of_file", dict)
    assert rows_of(table).rows == (("2026-01-31 09:00:00", "1"),)
    assert json_value(records_of(table)[0]["at"]) == "2026-01-31T09:00:00+01:00"
    monkeypatch.setattr(results, "defaults_of_file", lambda: {"spark.sql.session.timeZone": "UTC"})
    assert rows_of(table).rows == (("2026-01-31 08:00:00", "1"),)
    assert json_value(records_of(table)[0]["at"]) == "2026-01-31T08:00:00+00:00"


def test_the_text_of_a_time_leaves_out_its_zone() -> None:
    assert cell_text(datetime(2026, 1, 31, 8, 0, 0, 500, tzinfo=NEW_YORK)) == "2026-01-31 08:00:00.000500"
    assert cell_text(datetime(2026, 1, 31, 8)) == "2026-01-31 08:00:00"
