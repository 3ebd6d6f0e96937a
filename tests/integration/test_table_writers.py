"""PySpark's calls that write or cache a table by its name do not change rw_sql's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark

ROWS = "cannot change the rows of a view, because its query defines them"
CALLS: tuple[tuple[str, Callable[[DataFrame, str], Any]], ...] = (
    ("saveAsTable", lambda frame, name: frame.write.saveAsTable(name)),
    ("saveAsTable", lambda frame, name: frame.write.mode("overwrite").saveAsTable(name=name)),
    ("saveAsTable", lambda frame, name: frame.write.mode("append").saveAsTable(name)),
    ("insertInto", lambda frame, name: frame.write.insertInto(name)),
    ("insertInto", lambda frame, name: frame.write.insertInto(tableName=name, overwrite=True)),
    ("writeTo", lambda frame, name: frame.writeTo(name).append()),
    ("writeTo", lambda frame, name: frame.writeTo(table=name).using("delta").createOrReplace()),
)


@pytest.fixture
def made(session: AttachedSession, tmp_path: Path) -> AttachedSession:
    """A view over a source with one record."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.json").write_text('{"x": 7}\n', encoding="utf-8")
    session.run(
        f"CREATE SOURCE src (x INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT x FROM src",
        "FLUSH",
    )
    return session


def test_a_view_keeps_its_rows(made: AttachedSession, tmp_path: Path) -> None:
    spark: SparkSession = made.spark
    frame = spark.range(3).selectExpr("CAST(id AS INT) AS x")
    for call, write in CALLS:
        for name in ("m", "M", "`m`", "default.m", "spark_catalog.default.m"):
            with pytest.raises(SqlError) as refused:
                write(frame, name)
            assert refused.value.render() == (
                f'RW236: "m" is a materialized view: {call} {ROWS}\n'
                "HINT: ALTER MATERIALIZED VIEW m AS SELECT … changes it; DROP MATERIALIZED VIEW m drops it"
            )
    with pytest.raises(SqlError, match="a cached copy would not be updated"):
        spark.catalog.cacheTable("m")
    with pytest.raises(SqlError, match="toTable cannot change the rows of a view"):
        spark.readStream.format("rate").load().writeStream.toTable("m")
    with pytest.raises(SqlError, match="insertInto cannot change the records of a source's upstream"):
        frame.write.insertInto("src")
    with pytest.raises(SqlError, match=r"writeTo cannot change .*, because it contains the rows of"):
        frame.writeTo(f"delta.`{made.warehouse}/data/2/1`")
    assert made.rows_of("m") == [(7,)]


def test_the_users_own_tables_are_written(made: AttachedSession) -> None:
    frame = made.spark.range(1).selectExpr("CAST(id AS INT) AS x")
    try:
        frame.write.format("delta").saveAsTable("own_table")
        frame.writeTo("own_table").append()
        frame.write.insertInto("own_table")
        assert made.spark.table("own_table").count() == 3
        made.spark.catalog.cacheTable("own_table")
    finally:
        made.spark.sql("DROP TABLE IF EXISTS own_table")
