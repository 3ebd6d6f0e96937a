"""Jobs that end leave their Spark sessions to later jobs, because Spark never frees some parts of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from rw_sql.runtime.refresh import loading

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[SparkSession]:
    """The sessions that are created in this test."""
    made: list[SparkSession] = []
    real = SparkSession.newSession

    def create(self: SparkSession) -> SparkSession:
        made.append(real(self))
        return made[-1]

    monkeypatch.setattr(SparkSession, "newSession", create)
    return made


def test_refreshes_use_one_session_after_the_other(
    session: AttachedSession, created: list[SparkSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "IN_MEMORY_ROWS", 0)
    upstream = str(tmp_path / "upstream")
    write_deltalake(upstream, pa.table({"k": [1, 2], "word": ["a", "b"]}))
    session.run(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, word VARCHAR) WITH (connector = 'delta', "
        f"delta.path = '{upstream}', refresh_mode = 'FULL_RELOAD')"
    )
    for rows in ([(1, "a"), (2, "b")], [(1, "b")], [(1, "c"), (3, None)]):
        before = len(created)
        columns = dict(zip(("k", "word"), zip(*rows, strict=True), strict=True))
        schema = pa.schema([("k", pa.int64()), ("word", pa.string())])
        write_deltalake(upstream, pa.table(columns, schema=schema), mode="overwrite")
        session.sql("REFRESH TABLE t")
        (waited,) = session.sql("WAIT TABLE t")
        assert waited.change == "WAITED", waited.detail
        assert session.rows_of("t") == rows
    assert len(created) == before


def test_views_and_sinks_use_the_sessions_of_those_that_were_dropped(
    session: AttachedSession, created: list[SparkSession], tmp_path: Path
) -> None:
    upstream = str(tmp_path / "upstream")
    write_deltalake(upstream, pa.table({"k": [1, 2], "word": ["a", "b"]}))
    session.run(f"CREATE SOURCE s (k BIGINT, word VARCHAR) WITH (connector = 'delta', delta.path = '{upstream}')")
    numbers = []
    for round_ in range(3):
        session.run(
            "CREATE MATERIALIZED VIEW v AS SELECT word, count(*) AS c FROM s GROUP BY word",
            f"CREATE SINK w FROM s WITH (connector = 'deltalake', location = '{tmp_path / str(round_)}')",
            "FLUSH",
            "DROP SINK w",
            "DROP MATERIALIZED VIEW v",
        )
        numbers.append(len(created))
    assert numbers[1:] == [numbers[0]] * 2
