"""Warehouses in folders whose names mean something else to URIs, globs, lists or SQL: rows, small batches and large
ones, a sink, the next attachment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.delta import held_rows
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.views import recomputed
from rw_sql.syntax.lexing.identifiers import literal
from tests.integration.attached import READER, AttachedSession

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("name", ["it's a, b#c?é", 'a{1,2}*`b`:%2;"c" $x'])
def test_a_warehouse_in_an_odd_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, data = tmp_path / name, tmp_path / "in"
    data.mkdir()
    (data / "1.json").write_text('{"id": 1, "k": "a"}\n{"id": 2, "k": "b"}\n')
    session = AttachedSession(spark, str(folder / "wh"))
    try:
        with monkeypatch.context() as large:
            for place in (*READER, planned_rows, held_rows, recomputed):
                for limit in ("SMALL_ROWS", "LARGE_ROWS"):
                    large.setattr(place, limit, -1, raising=False)
            session.run(
                "CREATE SOURCE s (id INT, k VARCHAR) WITH (connector = 'posix_fs', match_pattern = '*.json', "
                f"posix_fs.root = {literal(str(data))}, refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON",
                "CREATE MATERIALIZED VIEW every AS SELECT id, k FROM s",
                "CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM s GROUP BY k",
            )
            assert session.flushed_rows_of("every") == [(1, "a"), (2, "b")]
        (data / "2.json").write_text('{"id": 3, "k": "a"}\n')
        assert session.flushed_rows_of("counted") == [("a", 2), ("b", 1)]
        session.detach()
        session = AttachedSession(spark, str(folder / "wh"))
        (data / "3.json").write_text('{"id": 4, "k": "c"}\n')
        assert session.flushed_rows_of("every", "id") == [(1,), (2,), (3,), (4,)]
        session.run("REBUILD MATERIALIZED VIEW counted", "WAIT")
        assert session.rows_of("counted") == [("a", 2), ("b", 1), ("c", 1)]
        assert {job.state for job in session.jobs().values()} == {"RUNNING"}
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "in"])
    finally:
        session.detach()
