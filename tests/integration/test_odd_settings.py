"""The rows of a view, and what SELECT reads from its source, do not depend on the settings of a session or process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.jvm import java_session
from tests.integration.attached import AttachedSession, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

ODD = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}

NESTED = {
    "ats": ["2026-07-01 12:00:00+02:00"],
    "nested": {"at": "2026-07-01 12:00:00+02:00"},
    "at_of": {"x": "2026-07-01 12:00:00"},
}

RECORDS = (
    {
        "id": 1,
        "at": "2026-07-01 12:00:00+02:00",
        "day": "2026-07-01",
        "d": 1.5,
        "userId": "a",
        "tags": [1.25],
        **NESTED,
    },
    {"id": 2, "at": 1_782_907_200_000, "day": 20_635, "d": "1.50", "USERID": "b", "tags": None},
    {"id": 3, "at": "2026-07-01 12:00:00", "day": None, "d": None, "userId": None, "tags": []},
    # Errors, whatever the settings are.
    {"id": "x", "at": None, "day": None, "d": None},
    {"id": 5, "at": None, "day": None, "d": 1.239},
)

VIEW = (
    "SELECT id, at, day, d, userId AS userid, CAST(at AS STRING) AS told, typeof(at) AS kind, size(tags) AS tags, "
    "d / 3.00 AS third, ats, nested, at_of, TRY_CAST('x' AS INT) AS none, "
    "CAST('2026-07-01 12:00:00' AS TIMESTAMP) AS fixed FROM s"
)


@pytest.fixture
def odd_process(spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark whose new sessions have odd settings, as a process that was started with them."""
    conf = java_session(spark).sharedState().conf()
    for key, value in ODD.items():
        conf.set(key, value)
    yield spark.newSession()
    for key in ODD:
        conf.remove(key)


OF_BOTH = "id, unix_micros(at), day, d, userid, unix_micros(ats[0]), unix_micros(nested.at), unix_micros(at_of['x'])"
OF_VIEW = f"{OF_BOTH}, told, kind, tags, third, none, unix_micros(fixed)"


def rows(session: AttachedSession, columns: str, relation: str) -> list[tuple[str, ...]]:
    """The rows as text, in which the session's time zone changes nothing."""
    return [tuple(map(str, row)) for row in session.sql(f"SELECT {columns} FROM {relation} ORDER BY id")]


@pytest.mark.parametrize("first_is_odd", [False, True])
def test_a_view_has_the_same_rows_in_any_process(
    spark: SparkSession, odd_process: SparkSession, tmp_path: Path, *, first_is_odd: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    path = str(tmp_path / "warehouse")
    one, other = (odd_process, spark) if first_is_odd else (spark, odd_process)

    first = AttachedSession(one, path)
    first.run(
        "CREATE SOURCE s (id INT, at TIMESTAMPTZ, day DATE, d NUMERIC(10, 2), userId VARCHAR, tags DOUBLE[], "
        "ats TIMESTAMPTZ[], nested STRUCT<at TIMESTAMPTZ>, at_of MAP(VARCHAR, TIMESTAMPTZ)) WITH "
        f"(connector = 'posix_fs', posix_fs.root = '{folder}', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW v AS {VIEW}",
        "FLUSH",
    )
    stored = rows(first, OF_VIEW, "v")
    assert rows(first, OF_BOTH, "s") == [row[:8] for row in stored]
    assert [row[1:4] for row in stored] == [
        ("1782900000000000", "2026-07-01", "1.50"),
        ("1782907200000000", "2026-07-01", "1.50"),
        ("1782907200000000", "None", "None"),
    ]
    assert stored[0][5:8] == ("1782900000000000", "1782900000000000", "1782907200000000")
    kinds = dict(first.spark.table("v").dtypes)
    assert [kinds[name] for name in ("ats", "nested", "at_of")] == [
        "array<timestamp>",
        "struct<at:timestamp>",
        "map<string,timestamp>",
    ]
    assert (kinds["at"], kinds["fixed"], kinds["third"]) == ("timestamp", "timestamp", "decimal(16,6)")
    assert stored[0][8:] == ("2026-07-01 10:00:00", "timestamp", "1", "0.500000", "None", "1782907200000000")
    assert stored[1][10] == "None"
    first.detach()

    (folder / "b.json").write_text(json.dumps({**RECORDS[0], "id": 7}) + "\n")
    second = AttachedSession(other, path)
    wait_until(lambda: len(second.flushed_rows_of("v", "id")) == 4, "the second file is read")
    found = rows(second, OF_VIEW, "v")
    assert found[:3] == stored
    assert found[3][1:] == stored[0][1:]
    assert rows(second, OF_BOTH, "s") == [row[:8] for row in found]
    assert dict(second.spark.table("v").dtypes) == kinds
    second.detach()
