"""Tables whose paths have characters with a meaning in URIs or in patterns of paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.connectors.delta.commits import read_commit
from rw_sql.connectors.delta.reader import read
from rw_sql.connectors.delta.sink import DeltaSink
from rw_sql.connectors.delta.source import DeltaConnector
from rw_sql.connectors.ranged import Encoding
from rw_sql.connectors.spec import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DELTA = DeltaConnector()


@pytest.mark.parametrize("name", ["plain", "a blank", "a+b", "\u00fc"])
@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "{}//", "{}/./", "{}/x/.."])
def test_appended_rows_of_a_table_with_column_mapping(
    spark: SparkSession, tmp_path: Path, name: str, form: str
) -> None:
    folder = tmp_path / name
    spark.sql(f"CREATE TABLE delta.`{folder}` (id INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    for number in (1, 2):
        spark.createDataFrame([(number,)], "id INT").write.format("delta").mode("append").save(str(folder))
    (folder / "x").mkdir()
    path = form.format(folder)
    DELTA.check_options({"delta.path": path})
    commit = read_commit(path, 2)
    assert commit is not None
    assert [file.rows for file in commit.appended] == [1]
    rows = read(spark, path, name, "`id` INT", commits=(commit,), upto=None)
    assert [row.id for row in rows.select("_rw_row.id").collect()] == [2]


@pytest.mark.parametrize("name", ["plain", "{a,b}", "c*", "d?", "{e", "a`b", "f g", "h#i", "k:l", "m~n"])
def test_a_path_is_no_pattern(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """In a folder beside tables that the path would match as a pattern."""
    path = tmp_path / name
    for other in ("a", "b", "cc", "dd"):
        if other != name:
            write_deltalake(str(tmp_path / other), pa.table({"id": [99]}))
    write_deltalake(str(path), pa.table({"id": [1], "part": ["p/q"]}), partition_by=["part"])
    write_deltalake(str(path), pa.table({"id": [2], "part": ["r s"]}), mode="append")
    options = {"delta.path": str(path)}
    DELTA.check_options(options)
    (split,) = DELTA.look(options).splits.values()
    assert (split.start, split.end) == (0, 2)
    columns = {"id": "BIGINT", "part": "STRING"}

    def rows(frame: DataFrame) -> list[tuple[int, str]]:
        return sorted((row.id, row.part) for row in frame.collect())

    both = [(1, "p/q"), (2, "r s")]
    assert rows(DELTA.read_snapshot(spark, options, columns)) == both
    encoding = Encoding(row="`id` BIGINT, `part` STRING")
    for start, end, expected in ((0, 2, both), (0, 1, both[:1]), (1, 2, both[1:])):
        frame = DELTA.read_batch(spark, options, {split.split: (start, end)}, encoding=encoding)
        assert rows(frame.select("_rw_row.*")) == expected


def test_a_table_may_have_other_columns_with_quotes(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 2):
        write_deltalake(str(tmp_path / "t"), pa.table({"id": [number], "x`y": ["a"]}), mode="append")
    options = {"delta.path": str(tmp_path / "t")}
    frame = DELTA.read_batch(spark, options, {"t": (1, 2)}, encoding=Encoding(row="`id` BIGINT"))
    assert [row.id for row in frame.select("_rw_row.id").collect()] == [2]


@pytest.mark.parametrize("name", ["a[1]", "a%20b", "a\\b", "[", "m^n", "a|b"])
def test_a_path_that_delta_rs_misreads_is_refused(tmp_path: Path, name: str) -> None:
    """delta-rs panics at some characters, decodes percent signs, and reads a backslash as a slash."""
    path = str(tmp_path / name)
    checks: list[tuple[Callable[[Mapping[str, str]], None], dict[str, str]]] = [
        (DELTA.check_options, {"delta.path": path}),
        (DeltaSink().check_options, {"location": path, "type": "append-only"}),
    ]
    for check, options in checks:
        with pytest.raises(OptionError, match="must not contain"):
            check(options)
