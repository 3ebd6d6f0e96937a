"""The strategies of views over a view that replaces and deletes its rows, each compared with a batch query on its rows.

The test writes the lower view commit by commit; the jobs of the upper ones are started as the reconciler starts them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject
from rw_sql.model.job_specs import view_spec
from rw_sql.model.relations import schema_columns
from rw_sql.plan.lower import lower
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs import inputs
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.high_water import last_data_version
from rw_sql.runtime.positions.progress import committed_versions
from rw_sql.runtime.spark.sessions import SparkSessions, plain_sql
from rw_sql.runtime.support import faults
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views.job import View
from rw_sql.syntax import parse_statement
from rw_sql.syntax.query.maintained_form import KEEP
from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

QUERIES = {
    "filtered": ("changes", "SELECT total * 2 AS twice FROM best WHERE n % 2 = 0"),
    "combined": (
        "combined",
        "SELECT n % 3 AS class, count(*) AS items, sum(total) AS total, avg(n) AS mean FROM best GROUP BY n % 3",
    ),
    "filtered_sums": (
        "combined",
        "SELECT n > 1 AS large, sum(total) FILTER (WHERE total > 5) AS total, "
        "round(avg(total) FILTER (WHERE n < 4), 1) AS mean, count(total) AS items FROM best GROUP BY n > 1",
    ),
    "one_row": ("combined", "SELECT count(total) AS items, sum(n) AS n FROM best WHERE n > 1"),
    "signed": (
        "signed",
        "SELECT n % 3 AS class, count(*) AS items, sum(total) AS total, avg(n) AS mean FROM best GROUP BY n % 3 "
        "HAVING count(*) > 1",
    ),
    "lowest": ("keys", "SELECT n % 3 AS class, min(total) AS low FROM best GROUP BY n % 3 HAVING min(total) > 0"),
    "other_aggregates": (
        "keys",
        "SELECT n % 3 AS class, count(*) AS items, mean(total) AS mean, try_sum(total) AS total, every(total > 0) AS e "
        "FROM best GROUP BY n % 3",
    ),
    "every_only": ("keys", "SELECT n % 3 AS class, every(total > 0) AS e FROM best GROUP BY n % 3"),
    "great_mean": ("combined", "SELECT avg(total * 576460752303423488) AS mean, count(*) AS items FROM best"),
    "great_means": (
        "signed",
        "SELECT n > 0 AS some, avg(total * 576460752303423488) AS mean FROM best GROUP BY n > 0 HAVING count(*) > 1",
    ),
    "different": ("combined", "SELECT DISTINCT n FROM best"),
    "different_floats": ("keys", "SELECT DISTINCT CAST(n AS DOUBLE) AS n FROM best"),
    "first_two": ("diff", "SELECT item, total FROM best ORDER BY total DESC, item LIMIT 2"),
    "struct_fields": (
        "changes",
        "SELECT s.* FROM (SELECT item, named_struct('item', n, 'total', total) AS s FROM best) AS x",
    ),
    "field_with_a_name": (
        "changes",
        "WITH x AS (SELECT item, named_struct('item', n) AS s, total FROM best) SELECT s.item, total FROM x",
    ),
    "other_key": ("changes", "SELECT * EXCEPT (item), n AS item FROM (SELECT * FROM best) AS x"),
    "all_of_groups": ("changes", "SELECT * FROM combined WHERE items > 0"),
    "all_and_more": ("changes", "SELECT *, twice + 1 AS odd FROM filtered"),
    "all_of_digests": ("changes", "SELECT * FROM first_two"),
    "column_texts": ("changes", "SELECT to_json(struct(*)) AS j FROM great_means"),
    "texts_of_digests": ("diff", "SELECT to_json(struct(*)) AS j FROM first_two"),
    "counted_columns": ("keys", "SELECT n, count(* EXCEPT (item)) AS known FROM best GROUP BY n"),
}
WITHIN = {
    "above_mean": (
        "diff",
        "SELECT item FROM (SELECT item, total FROM best) AS x WHERE total > (SELECT avg(total) FROM best)",
    ),
    "high_groups": (
        "diff",
        "SELECT n, m FROM (SELECT n, max(total) AS m FROM best GROUP BY n) WHERE m > (SELECT avg(total) FROM best)",
    ),
    "joined_to_top": (
        "diff",
        "SELECT b.item, l.low FROM best AS b LEFT JOIN lowest AS l ON b.n = l.class AND b.total = "
        "(SELECT max(total) FROM best)",
    ),
    "different_joined": ("diff", "SELECT DISTINCT b.n, l.low FROM best AS b LEFT JOIN lowest AS l ON b.n = l.class"),
    "different_tops": ("diff", "SELECT DISTINCT m FROM (SELECT n, max(total) AS m FROM best GROUP BY n) AS x"),
    "named_group": ("keys", "SELECT upper(item) AS u, max(total) AS m FROM best GROUP BY u"),
}
"""Queries with a query inside an expression, over several relations, or with a group that is an item's name."""

AT = "timestamp_seconds(total * 60)"
SEVERAL = {
    "bounds": ("diff", "SELECT n, explode(array(min(total), max(total))) AS bound FROM best GROUP BY n"),
    "members": (
        "diff",
        "SELECT n, explode(items) AS item FROM (SELECT n, collect_set(item) AS items FROM best GROUP BY n) AS x",
    ),
    "slides": (
        "diff",
        "SELECT n, window(at, '4 minutes', '2 minutes').start AS start FROM "
        f"(SELECT n, max({AT}) AS at FROM best GROUP BY n) AS x",
    ),
    "sessions": ("diff", f"SELECT session_window({AT}, '2 minutes') AS w, count(*) AS items FROM best GROUP BY w"),
    "different_sessions": ("diff", f"SELECT DISTINCT session_window({AT}, '2 minutes') AS w FROM best"),
    "of_sessions": ("keys", "SELECT w, max(items) AS items FROM sessions GROUP BY w"),
    "windows": (
        "keys",
        f"SELECT window.start AS t, min(total) AS low FROM best GROUP BY window({AT}, '4 minutes', '2 minutes')",
    ),
    "spelled": ("keys", "SELECT (b.N) AS class, min(total) AS low FROM best AS b GROUP BY n"),
    "spelled_twice": ("combined", "SELECT b.`N`, concat(n, '') AS t, sum(total) AS s FROM best AS b GROUP BY b.n, N"),
    "above": ("signed", "SELECT n * 2 AS n, count(*) AS items FROM best GROUP BY n * 2 HAVING (N * 2) > 3"),
}
"""Queries that return several rows of one group, whose groups depend on several rows, or that spell a group in several
ways."""

JOINED = ("keys", "SELECT b.item, l.low FROM best AS b LEFT JOIN lowest AS l ON b.n = l.class")

_TYPES = {"item": "string", "n": "long", "total": "long"}
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()],
    }
)
ARROW = pa.schema([("item", pa.string()), ("n", pa.int64()), ("total", pa.int64()), (KEEP, pa.bool_())])

COMMITS = (
    [("a", 1, 5, True), ("b", 2, 7, True), (None, 2, None, True)],
    [("a", 2, 6, True), ("c", 4, -1, True), ("b", None, None, False)],
    [(None, None, None, False), ("c", 3, 8, True), ("d", 1, 9, True), ("b", 3, 1, True)],
)
"""The rows of each commit: replaced or new ones, and the keys of deleted ones."""


@dataclass(slots=True)
class Below:
    """The view ``best``, and the jobs of the views over it."""

    context: Context
    spark: SparkSession
    output: JobOutput
    jobs: dict[str, View] = field(default_factory=dict)
    batch: int = 0

    def create(self, name: str, query: str) -> MaterializedViewRecord:
        """Makes a view and starts its job."""
        metastore = self.context.metastore
        snapshot = metastore.snapshot()
        statement = parse_statement(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        plan = lower(statement, snapshot, WarehouseInspector(self.context, snapshot))
        assert plan.operation is not None
        metastore.commit(plan.operation, based_on=snapshot)
        for started, job in list(self.jobs.items()):
            if job.spec != view_spec(metastore.snapshot(), self.record(started)):
                job.stop()
                self.start(started)
        self.start(name)
        return self.record(name)

    def record(self, name: str) -> MaterializedViewRecord:
        found = self.context.metastore.snapshot().find("materialized_view", name)
        assert found is not None
        return found

    def start(self, name: str) -> None:
        """Starts a view's job again."""
        self.jobs[name] = View.start(self.context, view_spec(self.context.metastore.snapshot(), self.record(name)))

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        """One commit."""
        columns = dict(zip(ARROW.names, zip(*rows, strict=True), strict=True))
        self.output.upsert_rows(pa.table(columns, schema=ARROW), ("item",), self.batch)
        self.batch += 1

    def wait(self, name: str) -> None:
        """Waits until a view has read all rows; starts its job again if the job has failed."""
        warehouse, record = self.context.warehouse, self.record(name)

        def has_arrived() -> bool:
            if self.jobs[name].failure() is not None:
                self.jobs[name].stop()
                self.start(name)
            checkpoint = warehouse.view_checkpoint(record.id, record.generation)
            for id_ in record.inputs:
                path = warehouse.data(id_, 1)
                table_id = str(DeltaTable(path).metadata().id)
                reached = committed_versions(warehouse, checkpoint, feeds={table_id: path}).get(table_id, -1)
                if reached <= last_data_version(self.context, path, is_feed=True):
                    return False
            return True

        wait_until(has_arrived, f"{name} has read its inputs")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """A view's rows, as queries see them."""
        record = self.record(name)
        path = self.context.warehouse.data(record.id, record.generation)
        columns = [f"`{column}`" for column, _ in schema_columns(record.schema)]
        return _sorted(self.spark.read.format("delta").load(path).selectExpr(*columns).collect())

    def expected(self, query: str) -> list[tuple[Any, ...]]:
        """The result of a query over the present tables."""
        for record in self.context.metastore.snapshot().all("materialized_view"):
            path = self.context.warehouse.data(record.id, record.generation)
            columns = [f"`{column}`" for column, _ in schema_columns(record.schema)]
            self.spark.read.format("delta").load(path).selectExpr(*columns).createOrReplaceTempView(record.name)
        return _sorted(plain_sql(self.spark, query).collect())


def _sorted(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=lambda row: [(value is not None, value) for value in row])


@pytest.fixture
def below(spark: SparkSession, tmp_path: Path) -> Iterator[Below]:
    warehouse = Warehouse.at(str(tmp_path))
    metastore = Metastore.open(warehouse.uri)
    sessions = SparkSessions(spark)
    context = Context(warehouse=warehouse, metastore=metastore, sessions=sessions, owner="a test")
    record = MaterializedViewRecord(
        id=1, name="best", definition="", query="SELECT 1", inputs=(), schema=_SCHEMA, keys=("item",)
    )
    metastore.commit(
        Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),)),
        based_on=metastore.snapshot(),
    )
    output = JobOutput.open(warehouse, warehouse.data(1, 1), _SCHEMA, job="mv-1", run=1, epoch=1, has_change_feed=True)
    made = Below(context=context, spark=sessions.new(), output=output)
    yield made
    for job in made.jobs.values():
        job.stop()


def test_each_equals_a_batch_query_also_where_its_batches_broke_off(below: Below) -> None:
    below.write(COMMITS[0])
    for name, (strategy, query) in QUERIES.items():
        assert below.create(name, query).maintenance.strategy == strategy, name
    assert below.create("joined", JOINED[1]).maintenance.strategy == JOINED[0]
    queries = {name: query for name, (_, query) in (*QUERIES.items(), ("joined", JOINED))}
    broken: list[str] = []

    def break_off(name: str) -> None:
        broken.append(name)
        raise OSError("broken off")

    for rows, point in zip((None, *COMMITS[1:]), ("", "batch.before_merge@2", "batch.after_merge@3"), strict=True):
        if rows is not None:
            below.write(rows)
            faults.arm(point, tell=break_off)
        for name in queries:
            below.wait(name)
        for name, query in queries.items():
            assert below.rows(name) == below.expected(query), f"{name} after {point or 'the beginning'}"
    assert broken == ["batch.before_merge", "batch.after_merge"]


def test_queries_that_return_several_rows_of_a_group_equal_batch_queries(below: Below) -> None:
    follow(below, SEVERAL)
    for name in ("windows", "spelled", "spelled_twice", "above"):
        assert not any(key.startswith("_rw_") for key in below.record(name).keys), name


def test_queries_that_read_rows_of_other_groups_equal_batch_queries(below: Below) -> None:
    follow(below, WITHIN)


def follow(below: Below, queries: dict[str, tuple[str, str]]) -> None:
    """Compares views with batch queries after each commit. ``queries`` are the strategy and the query of each view."""
    below.write(COMMITS[0])
    below.create("lowest", QUERIES["lowest"][1])
    for name, (strategy, query) in queries.items():
        assert below.create(name, query).maintenance.strategy == strategy, name
    # The last commit changes one row, and by it the mean and the maximum of all.
    for number, rows in enumerate((None, *COMMITS[1:], [("e", 9, 100, True)])):
        if rows is not None:
            below.write(rows)
        for name in ("lowest", *queries):
            below.wait(name)
        for name, (_, query) in queries.items():
            assert below.rows(name) == below.expected(query), f"{name} after commit {number}"


def test_an_overwrite_that_is_read_in_parts_leaves_no_row_out(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_BATCH_BYTES_PER_CORE", 1)
    below.write([(f"i{number}", 2, number, True) for number in range(40)])
    names = ("filtered", "combined", "signed", "lowest")
    for name in names:
        assert below.create(name, QUERIES[name][1]).maintenance.strategy == QUERIES[name][0]
        below.wait(name)
    rows = below.spark.range(10, 50).selectExpr("concat('i', id) AS item", "id % 5 * 2 AS n", "id * 100 AS total")
    rows.repartition(4).write.format("delta").mode("overwrite").save(below.output.path)
    for name in names:
        below.wait(name)
        assert below.rows(name) == below.expected(QUERIES[name][1]), name
    assert len(below.rows("filtered")) == 40
