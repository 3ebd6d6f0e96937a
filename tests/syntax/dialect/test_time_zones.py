"""The names of time zones that Spark accepts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from rw_sql.syntax.dialect.time_zones import time_zone


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("GMT", 0),
        ("Europe/Berlin", 1),
        ("+05:45", 5.75),
        ("-3", -3),
        ("UTC+01:30", 1.5),
        ("GMT-03:30", -3.5),
        ("PST", -8),
        ("IST", 5.5),
    ],
)
def test_a_zone_has_the_offset_that_spark_gives_it(name: str, hours: float) -> None:
    zone = time_zone(name)
    assert zone is not None
    assert datetime(2026, 1, 31, tzinfo=zone).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Nowhere/Town", "+99:00", "../etc/passwd"])
def test_other_names_are_no_zones(name: str) -> None:
    assert time_zone(name) is None
