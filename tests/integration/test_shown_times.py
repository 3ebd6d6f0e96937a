"""The command line and notebooks show times as Spark does, whatever the time zone of the Python process."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.script.report import json_value
from rw_sql.magics.result import CellResult
from rw_sql.plan.result.plan import Table
from rw_sql.runtime.spark.frames import frame_of
from rw_sql.session.results import read_rows, read_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark

_SECONDS = (0, 1_769_846_400, 1_761_438_600, 1_761_442_200)
"""The last two are the two hours at the end of summer time in Europe/Berlin."""


@pytest.fixture
def in_berlin(session: AttachedSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[AttachedSession]:
    """A session in a Python process whose time zone is Europe/Berlin."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        before = session.spark.conf.get("spark.sql.session.timeZone")
        yield session
        session.spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "+05:45", "PST"])
def test_times_are_shown_in_the_zone_of_the_session(in_berlin: AttachedSession, zone: str) -> None:
    spark = in_berlin.spark
    spark.sql(f"SET TIME ZONE '{zone}'")
    values = ", ".join(f"({second})" for second in _SECONDS)
    rows = f"(SELECT timestamp_seconds(s) AS at, s FROM VALUES {values} AS v (s))"
    found = spark.sql(f"SELECT at, array(at), map(at, s), CAST(at AS TIMESTAMP_NTZ) FROM {rows} ORDER BY s")
    wanted = spark.sql(
        "SELECT CAST(at AS STRING), CAST(array(at) AS STRING), "
        f"'{{' || CAST(at AS STRING) || ': ' || s || '}}', CAST(at AS STRING) FROM {rows} ORDER BY s"
    )
    assert read_rows(found).rows == read_rows(wanted).rows
    assert repr(CellResult(found)).count(str(wanted.first()[0])) == 4  # type: ignore[index]
    in_json = spark.sql(f"SELECT date_format(at, \"yyyy-MM-dd'T'HH:mm:ssxxx\") FROM {rows} ORDER BY s")
    assert [json_value(row[0]) for row in read_values(found).rows] == [row[0] for row in in_json.collect()]


def test_a_field_of_a_struct_is_shown_in_the_zone_of_the_session(in_berlin: AttachedSession) -> None:
    spark = in_berlin.spark
    spark.sql("SET TIME ZONE 'UTC'")
    found = spark.sql(
        "SELECT struct(TIMESTAMP '2026-01-31 08:00:00' AS at, 1 AS n), TIMESTAMP_NTZ '2026-01-31 08:00:00'"
    )
    assert read_rows(found).rows == (("{at: 2026-01-31 08:00:00, n: 1}", "2026-01-31 08:00:00"),)


def test_the_result_of_a_statement_of_rw_sql_is_in_the_zone_of_the_session(in_berlin: AttachedSession) -> None:
    spark = in_berlin.spark
    spark.sql("SET TIME ZONE 'Asia/Tokyo'")
    table = Table(columns=(("at", "TIMESTAMP"),), rows=((datetime(2026, 1, 31, 8, tzinfo=UTC),), (None,)))
    found = frame_of(spark, table)
    assert read_rows(found).rows == (("2026-01-31 17:00:00",), (None,))
    assert [row.at for row in found.selectExpr("CAST(at AS STRING) AS at").collect()] == ["2026-01-31 17:00:00", None]
    assert found.toPandas()["at"][0].isoformat() == "2026-01-31T17:00:00"
