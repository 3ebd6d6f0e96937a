"""Readers of a change feed apply the commits that Delta divides among batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.connectors.sink import DEBEZIUM, DELETE, OP, UPDATE_BEFORE, UPSERT
from rw_sql.runtime.jobs.inputs import VERSION
from rw_sql.runtime.positions.feed_keys import HASHES, FeedByKey
from rw_sql.runtime.sinks import job as sink_job
from rw_sql.runtime.sinks.batches import FEED_COLUMNS, arranged
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import shape

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@dataclass(slots=True)
class Target:
    """A table with a change feed, and a target to which a stream of the feed writes."""

    folder: Path
    spark: SparkSession
    rows: dict[int, str | None] = field(default_factory=dict)
    batches: dict[int, list[int]] = field(default_factory=dict)
    """The numbers of rows of the parts of each batch."""

    most_bytes: int = 2**40
    kill_at: int = -1
    """The batch after whose rows were written the query fails, once."""

    @property
    def path(self) -> str:
        return str(self.folder / "a table")

    def write(self, word: str, ids: range, mode: str = "overwrite", **options: str) -> None:
        """Writes rows in several files."""
        rows = self.spark.range(ids.start, ids.stop).selectExpr("CAST(id AS INT) AS id", f"'{word}' AS word")
        writer = rows.repartition(4).write.format("delta").mode(mode).options(**options)
        writer.option("delta.enableChangeDataFeed", "true").save(self.path)

    def read(self, type_: str = UPSERT) -> None:
        """Applies all changes that the stream has not read yet. Each batch has one file of a commit."""

        def select(rows: DataFrame) -> DataFrame:
            return rows.where(f"{VERSION} >= 0").selectExpr("id", "word", *FEED_COLUMNS)

        feed = FeedByKey(
            warehouse=Warehouse.at(str(self.folder)),
            path=self.path,
            checkpoint=str(self.folder / "checkpoint"),
            keys=("id",),
            select=select,
        )

        def on_batch(frame: DataFrame, batch: int) -> None:
            self.batches[batch] = []
            for part in feed.parts(feed.rows(frame, batch), batch, self.most_bytes):
                found = arranged(part.toArrow(), shape(type_, "id"), keys_move=True)
                self.batches[batch].append(found.num_rows)
                for row in found.to_pylist():
                    if row[OP] == DELETE:
                        self.rows.pop(row["id"], None)
                    elif row[OP] != UPDATE_BEFORE:
                        self.rows[row["id"]] = row["word"]
            if batch == self.kill_at:
                self.kill_at = -1
                raise RuntimeError("killed")

        reader = self.spark.readStream.format("delta").option("maxBytesPerTrigger", "1b")
        stream = select(reader.option("readChangeFeed", "true").load(self.path)).writeStream
        stream = stream.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True)
        stream.foreachBatch(on_batch).start().awaitTermination()

    @property
    def expected(self) -> dict[int, str | None]:
        return {row.id: row.word for row in self.spark.read.format("delta").load(self.path).collect()}


@pytest.mark.parametrize("type_", [UPSERT, DEBEZIUM])
def test_an_overwrite_leaves_the_target_with_the_new_rows(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    target = Target(tmp_path, spark)
    target.write("a", range(40))
    target.read(type_)
    target.write("b", range(10, 50))
    target.kill_at = max(target.batches) + 3
    with pytest.raises(Exception, match="killed"):
        target.read(type_)
    target.read(type_)
    assert target.rows == target.expected == dict.fromkeys(range(10, 50), "b")
    # The commit was divided, and no batch has most of its rows.
    assert max(sum(parts) for parts in list(target.batches.values())[-6:]) < 30


def test_a_commit_of_rows_with_a_map_key_is_one_part(spark: SparkSession, tmp_path: Path) -> None:
    feed = FeedByKey(
        warehouse=Warehouse.at(str(tmp_path)), path="", checkpoint="", keys=("tags",), select=lambda rows: rows
    )
    rows = spark.range(9).selectExpr("map('a', id) AS tags", "id")
    half = HASHES // 2
    assert [feed._of_keys(rows, *part).count() for part in ((0, half), (half, HASHES))] == [0, 9]
    by_both = replace(feed, keys=("tags", "id"))
    found = [by_both._of_keys(rows, *part).count() for part in ((0, half), (half, HASHES))]
    assert sum(found) == 9
    assert all(found)


def test_overwrites_updates_and_restores_are_applied_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    target = Target(tmp_path, spark)
    table = f"delta.`{target.path}`"
    target.write("a", range(30))
    target.read()
    target.write("b", range(20))
    spark.sql(f"UPDATE {table} SET word = 'c' WHERE id < 10")
    target.write("d", range(30, 60), "append")
    target.write("e", range(50, 60), replaceWhere="id >= 50")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    target.read()
    assert target.rows == target.expected
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0")
    target.read()
    assert target.rows == target.expected == dict.fromkeys(range(30), "a")


@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_large_commit_is_held_in_parts(spark: SparkSession, tmp_path: Path, has_vectors: bool) -> None:
    target = Target(tmp_path, spark)
    target.write("a", range(100), **{"delta.enableDeletionVectors": str(has_vectors).lower()})
    target.read()
    spark.sql(f"UPDATE delta.`{target.path}` SET word = 'b', id = id + 50")
    spark.sql(f"DELETE FROM delta.`{target.path}` WHERE id % 2 = 0")
    target.most_bytes = 500
    first = max(target.batches) + 1
    target.read()
    assert target.rows == target.expected == dict.fromkeys(range(51, 150, 2), "b")
    parts = [count for batch, counts in target.batches.items() if batch >= first for count in counts]
    assert max(parts) < 80
    assert len(parts) > 4


def test_equal_keys_are_in_one_part(spark: SparkSession) -> None:
    """In Spark's hashes, as in a comparison, 0.0 and -0.0 are one value, and so are all NaN values."""
    struct = "named_struct('a', array({}))"
    for one, other in (
        ("0.0D", "-0.0D"),
        ("CAST(0 AS FLOAT)", "CAST('-0.0' AS FLOAT)"),
        ("DOUBLE('NaN')", "-DOUBLE('NaN')"),
    ):
        hashes = [f"xxhash64({form.format(value)})" for form in ("{}", struct) for value in (one, other)]
        (row,) = spark.sql(f"SELECT {', '.join(f'{each} AS c{at}' for at, each in enumerate(hashes))}").collect()
        assert (row[0], row[2]) == (row[1], row[3])


def test_a_sink_writes_an_overwrite_of_a_users_table_and_an_update_of_all_rows(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_job, "BATCH_BYTES", 500)
    own, copy = "overwritten_words", tmp_path / "copy"
    session.run(
        f"CREATE TABLE {own} (id INT, word STRING) USING delta LOCATION '{tmp_path}/own' "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        f"INSERT INTO {own} SELECT /*+ REPARTITION(4) */ CAST(id AS INT), 'a' FROM range(100)",
        f"CREATE SINK k FROM {own} WITH (connector = 'deltalake', location = '{copy}', type = 'upsert', "
        "primary_key = 'id')",
        "FLUSH",
    )

    def rows() -> dict[int, str]:
        return {row["id"]: row["word"] for row in DeltaTable(str(copy)).to_pyarrow_table().to_pylist()}

    try:
        assert rows() == dict.fromkeys(range(100), "a")
        overwrite = f"INSERT OVERWRITE {own} SELECT /*+ REPARTITION(4) */ CAST(id AS INT), 'b' FROM range(50, 150)"
        session.run(overwrite, "FLUSH")
        assert rows() == dict.fromkeys(range(50, 150), "b")
        before = DeltaTable(str(copy)).version()
        session.run(f"UPDATE {own} SET word = 'c'", "FLUSH")
        assert rows() == dict.fromkeys(range(50, 150), "c")
        # The update is one batch, which is written in parts.
        assert DeltaTable(str(copy)).version() > before + 2
        assert {job.state for job in session.jobs().values()} == {"RUNNING"}
    finally:
        session.run("DROP SINK IF EXISTS k", f"DROP TABLE {own}")
