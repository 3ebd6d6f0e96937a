"""Rows that a commit appended to a table with column mapping, whose path has characters that URIs encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.delta.commits import read_commit
from rw_sql.connectors.delta.reader import read

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["plain", "a blank", "a+b", "\u00fc"])
def test_appended_rows_of_a_table_with_column_mapping(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    for number in (1, 2):
        spark.createDataFrame([(number,)], "id INT").write.format("delta").mode("append").save(path)
    commit = read_commit(path, 2)
    assert commit is not None
    rows = read(spark, path, name, "`id` INT", commits=(commit,), upto=None)
    assert [row.id for row in rows.select("_rw_row.id").collect()] == [2]
