"""Sessions that jobs use one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_session_is_used_again_only_after_its_query_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    sessions = SparkSessions(spark)
    session = sessions.new()
    stream = session.readStream.format("rate").load().writeStream.queryName("ingest-1").format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        sessions.release(session)
        assert sessions.new() is not session
    finally:
        query.stop()
    sessions.release(session)
    assert sessions.new() is session
