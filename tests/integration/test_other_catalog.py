"""A session whose current catalog is not Spark's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.attached import AttachedSession

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

CATALOG = {
    "spark.sql.catalog.other": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.other.url": "jdbc:derby:memory:other;create=true",
    "spark.sql.catalog.other.driver": "org.apache.derby.jdbc.EmbeddedDriver",
}


def test_views_are_in_sparks_own_catalog(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    own = spark.newSession()
    for key, value in CATALOG.items():
        own.conf.set(key, value)
    own.sql("USE other")
    assert own.catalog.currentCatalog() == "other"

    session = AttachedSession(own, str(tmp_path / "warehouse"))
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        "FLUSH",
    )
    assert session.rows_of("spark_catalog.default.v") == [(1,), (2,)]
    names = [row[0] for row in session.sql("SELECT name FROM spark_catalog.rw_catalog.rw_materialized_views")]
    assert names == ["v"]

    own.sql("USE spark_catalog.default")
    assert session.rows_of("v") == [(1,), (2,)]
    own.sql("USE other")
    session.run("CREATE SCHEMA raw", "CREATE MATERIALIZED VIEW raw.w AS SELECT id + 1 AS id FROM v", "FLUSH")
    assert session.rows_of("spark_catalog.raw.w") == [(2,), (3,)]
    session.run("DROP MATERIALIZED VIEW raw.w", "DROP SCHEMA raw")
    assert not spark.catalog.databaseExists("raw")
    assert own.catalog.currentCatalog() == "other"
    session.detach()
    assert not spark.catalog.tableExists("default.v")
