"""Which settings of a process may change the rows of a job: none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.job_settings import JOB_SETTINGS, settings_to_reset
from rw_sql.runtime.spark.jvm import java_session
from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ODD = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.json.filterPushdown.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
}


def test_only_settings_of_the_meaning_of_queries_are_reset() -> None:
    kept = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.catalog.lake": "org.example.Catalog",
        "my.own": "x",
    }
    found = settings_to_reset({**ODD, **kept})
    assert set(found) == ODD.keys() - JOB_SETTINGS.keys()
    assert list(found) == sorted(found)


@pytest.fixture
def odd(spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark whose new sessions have odd settings, as after a start with them."""
    conf = java_session(spark).sharedState().conf()
    for key, value in ODD.items():
        conf.set(key, value)
    yield spark
    for key in ODD:
        conf.remove(key)


@pytest.mark.spark
def test_a_session_for_jobs_means_the_same_in_every_process(odd: SparkSession) -> None:
    assert odd.newSession().conf.get("spark.sql.ansi.enabled") == "false"
    session = SparkSessions(odd).new()
    assert {key: session.conf.get(key) for key in JOB_SETTINGS} == JOB_SETTINGS
    for key in settings_to_reset(ODD):
        assert session.conf.get(key) != ODD[key], key
    query = "SELECT typeof(CAST('2024-01-01' AS TIMESTAMP)), size(NULL), current_timezone(), 1 AS Word"
    assert tuple(session.sql(query).select("word", "*").collect()[0]) == (1, "timestamp", None, "UTC", 1)
    assert session.sql("SELECT '\\t'").collect()[0][0] == "\t"
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        session.sql("SELECT CAST('x' AS INT)").collect()
    with pytest.raises(Exception, match="DUPLICATED_MAP_KEY"):
        session.sql("SELECT map('a', 1, 'a', 2)").collect()
