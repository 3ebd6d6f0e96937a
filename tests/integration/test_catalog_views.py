"""Plain Spark reads the catalog, whichever way a query names its views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.sql import late_views
from tests.integration.attached import AttachedSession

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def source_names(session: AttachedSession) -> set[str]:
    return {row.name for row in session.sql("SELECT name FROM RW_Catalog.rw_sources")}


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> tuple[AttachedSession, AttachedSession]:
    """Two sessions of one Spark, each with its own warehouse and source."""
    made = []
    for name, session in (("first", spark), ("second", spark.newSession())):
        attached = AttachedSession(session, str(tmp_path / name), run_jobs=False)
        attached.run(f"CREATE SOURCE {name} (id INT) WITH (connector = 'datagen')")
        made.append(attached)
    return made[0], made[1]


@pytest.mark.long
def test_each_session_reads_the_catalog_of_its_own_warehouse(two: tuple[AttachedSession, AttachedSession]) -> None:
    first, second = two
    assert source_names(first) == {"first"}
    assert source_names(second) == {"second"}
    assert [row.name for row in first.spark.table("rw_catalog.rw_sources").collect()] == ["first"]
    assert [row.name for row in second.spark.read.table("rw_catalog.rw_sources").collect()] == ["second"]
    for session in two:
        session.detach()


def test_the_views_are_made_when_they_are_first_spoken_of(spark: SparkSession, tmp_path: Path) -> None:
    session = AttachedSession(spark, str(tmp_path / "warehouse"), run_jobs=False)
    spark.sql("USE rw_catalog")
    try:
        assert "rw_jobs" in {row.viewName for row in spark.sql("SHOW VIEWS").collect()}
        assert spark.sql("SELECT * FROM rw_operations").count() == 0
    finally:
        spark.sql("USE default")
        session.detach()


@pytest.mark.parametrize("read", ["SELECT count(*) FROM late3", "SHOW VIEWS LIKE 'late3'", "DESCRIBE late3"])
def test_a_statement_does_not_see_that_a_thread_creates_the_views(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    session = AttachedSession(spark, str(tmp_path / "warehouse"))
    session.run("CREATE SOURCE numbers (id INT) WITH (connector = 'datagen', datagen.rows.per.second = '5')")
    session.run(*(f"CREATE MATERIALIZED VIEW late{at} AS SELECT id FROM numbers" for at in range(5)))
    session.detach()
    monkeypatch.setattr(late_views, "AT_ONCE", 0)
    again = AttachedSession(spark, str(tmp_path / "warehouse"), run_jobs=False)
    try:
        assert len(spark.sql(read).collect()) == 1
        assert {row.viewName for row in spark.sql("SHOW VIEWS").collect()} >= {f"late{at}" for at in range(5)}
    finally:
        again.detach()
    assert not {row.viewName for row in spark.sql("SHOW VIEWS").collect()} & {f"late{at}" for at in range(5)}
