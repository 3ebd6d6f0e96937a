"""Plain Spark reads the catalog, whichever way a query names its views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from rw_sql.errors import SqlError
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


def test_each_session_reads_its_own_warehouse_by_the_same_names(spark: SparkSession, tmp_path: Path) -> None:
    made = []
    for rows, session in ((3, spark), (5, spark.newSession())):
        attached = AttachedSession(session, str(tmp_path / str(rows)))
        attached.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '{rows}')",
            "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s",
            "FLUSH",
        )
        made.append(attached)
    first, second = made
    assert (first.rows_of("totals"), second.rows_of("totals")) == ([(3,)], [(5,)])
    for name in ("default.totals", "public.Totals", "spark_catalog.default.totals"):
        assert second.rows_of(name) == [(5,)], name
    assert first.rows_of("default.totals") == [(3,)]
    assert [row.n for row in second.spark.table("default.totals").collect()] == [5]
    for text in ("DROP VIEW totals", "DROP VIEW default.totals", "ALTER VIEW default.totals RENAME TO other"):
        with pytest.raises(SqlError, match="RW236"):
            second.sql(text)
    second.run("ALTER MATERIALIZED VIEW totals RENAME TO counted")
    assert (first.rows_of("totals"), second.rows_of("counted")) == ([(3,)], [(5,)])
    second.run("ALTER MATERIALIZED VIEW counted RENAME TO totals")
    assert (first.rows_of("totals"), second.rows_of("totals")) == ([(3,)], [(5,)])
    second.detach()
    assert first.rows_of("totals") == [(3,)]
    first.detach()
    assert not spark.catalog.tableExists("default.totals")


def test_each_session_reads_its_own_schema_of_the_same_name(spark: SparkSession, tmp_path: Path) -> None:
    made = []
    for rows in (3, 5):
        attached = AttachedSession(spark, str(tmp_path / str(rows)))
        attached.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '{rows}')",
            "CREATE SCHEMA mart",
            "CREATE MATERIALIZED VIEW mart.sums AS SELECT count(*) AS n FROM s",
            "FLUSH",
        )
        attached.detach()
    for rows, session in ((3, spark), (5, spark.newSession())):
        made.append(AttachedSession(session, str(tmp_path / str(rows)), run_jobs=False))
    first, second = made
    for name in ("mart.sums", "spark_catalog.mart.sums"):
        assert (first.rows_of(name), second.rows_of(name)) == ([(3,)], [(5,)])
    with pytest.raises(SqlError, match="RW236"):
        second.sql("DROP VIEW mart.sums")
    second.sql("USE mart")
    assert second.rows_of("sums") == [(5,)]
    second.detach()
    assert first.rows_of("mart.sums") == [(3,)]
    first.detach()
    assert not spark.catalog.databaseExists("mart")


def test_a_failure_between_the_catalogs_views_does_not_mix_two_warehouses(
    two: tuple[AttachedSession, AttachedSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    assert source_names(first) == {"first"}
    metastore = second.attached._runtime.context.metastore
    definitions = metastore.view_definitions()
    broken = [(name, text) for name, text in definitions if name == "rw_sources"] + [("rw_jobs", "SELECT nonsense")]
    with monkeypatch.context() as patch:
        patch.setattr(metastore, "view_definitions", lambda: broken)
        with pytest.raises(PySparkException):
            source_names(second)
    assert source_names(first) == {"first"}
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
