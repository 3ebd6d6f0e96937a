"""Captured tables of many columns: a thread's query is prepared in seconds, and both ways have the same rows.

The time that Spark's optimizer needs may double with each column. Forty columns would then take longer than any test.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.metastore.records import LivePosition
from rw_sql.model.definitions import cdc_rows
from rw_sql.runtime.decoding.cdc_rows import cdc_frame, numbered
from rw_sql.runtime.decoding.decoder import BATCH, BUCKET, ERROR, OFFSET, RUN, SINCE, SPLIT
from rw_sql.runtime.spark.row_query import RowQuery
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = 40

KINDS = (
    ("INT", "7"),
    ("CHARACTER VARYING", "x"),
    ("NUMERIC(12, 2)", "1.50"),
    ("TIMESTAMP WITH TIME ZONE", "2024-01-01 00:00:00.5+00"),
    ("INT[]", "[1,null]"),
)

LOG = pa.schema(
    [
        (SPLIT, pa.string()),
        *((name, pa.int64()) for name in (OFFSET, RUN, BATCH, SINCE, "_rw_index")),
        (BUCKET, pa.int32()),
        *((name, pa.string()) for name in ("table_name", "op", "key", "row")),
        ("_rw_unchanged", pa.list_(pa.string())),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def change(index: int, op: str, *, key: dict[str, str] | None = None, **values: str) -> dict[str, object]:
    """A row of the log with values in all columns, except those that are given."""
    row = {"id": str(index), **{f"c{at}": KINDS[at % len(KINDS)][1] for at in range(COLUMNS)}, **values}
    numbers = dict.fromkeys((OFFSET, RUN, BATCH, SINCE, BUCKET), 1)
    texts = {"key": None if key is None else json.dumps(key), "row": None if op == "d" else json.dumps(row)}
    return {**numbers, **texts, SPLIT: "shop", "_rw_index": index, "table_name": "public.t", "op": op}


def test_a_thread_has_the_rows_of_the_query(spark: SparkSession) -> None:
    listed = ", ".join(f"c{at} {KINDS[at % len(KINDS)][0]}" for at in range(COLUMNS))
    statement = parse_statement(f"CREATE TABLE t (id INT PRIMARY KEY, {listed}) FROM pg TABLE 'public.t'")
    assert isinstance(statement, CreateTable)
    own = cdc_rows(statement)
    changes = [
        change(0, "r"),
        change(1, "u", key={"id": "9"}),
        change(2, "d", key={"id": "2"}),
        change(3, "r", c0="no number"),
    ]
    log = pa.Table.from_pylist(changes, schema=LOG)

    def rows(given: DataFrame, *, is_numbered: bool) -> DataFrame:
        decoded = cdc_frame(given, own, LivePosition(0, 0, 0), is_numbered=is_numbered).where(f"{ERROR} IS NULL")
        return decoded.selectExpr(*(f"{column.name} AS `{column.name}`" for column in own.columns), "_rw_op")

    sessions = SparkSessions(spark, is_local=True)
    with sessions.lent() as session:
        whole = rows(local_frame(session, log), is_numbered=False).toArrow()
        given = numbered(log, "public.t")
        query = RowQuery.of(session, given.schema, lambda frame: rows(frame, is_numbered=True), is_stepwise=True)
        assert query is not None
        found = query.rows(given)
    assert found is not None
    order = [("id", "ascending"), ("_rw_op", "ascending")]
    assert found.sort_by(order).to_pylist() == whole.sort_by(order).to_pylist()
    assert [(row["id"], row["_rw_op"]) for row in whole.sort_by(order).to_pylist()] == [
        (0, 1),
        (1, 1),
        (2, -1),
        (9, -1),
    ]
