"""Large batches in an object store: Spark writes them, the first process to commit wins, and a fenced run never
commits, wherever it was suspended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.runtime.delta.delta_log import commit_versions, job_commits
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.session.attach import DELTA_SETTINGS
from rw_sql.spark_jars import installed_jars
from tests.integration.attached import produce_json, wait_until
from tests.support.s3_store import S3_JARS, unconditional_commits
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.support.s3_store import Request, S3Store

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.crash, pytest.mark.long]

SCHEMA = "k long, v string"
ODD_SCHEMA = "k long, `a b` string, at timestamp_ntz, hour int"


def _without(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(prefix)}


class Child:
    """The process with Spark, and the warehouse that it writes into."""

    def __init__(self, store: S3Store, warehouse: str | None = None) -> None:
        self.store = store
        self.warehouse = Warehouse.at(warehouse or store.warehouse())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.object_store_child", self.warehouse.uri],
            env=_without(os.environ, "AWS_") | dict(store.environment()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == {"ready": True}

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process ended: {self._process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told

    def tell(self, do: str, table: str, *rows: tuple[Any, ...], schema: str = SCHEMA, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "table": table, "rows": rows, "schema": schema, **more}) + "\n")
        self._process.stdin.flush()

    def do(self, do: str, table: str, *rows: tuple[Any, ...], **more: Any) -> str:
        self.tell(do, table, *rows, **more)
        return str(self.hear()["done"])

    def make(self, table: str, *, feed: bool = False, partition: tuple[str, ...] = (), schema: str = SCHEMA) -> None:
        assert self.do("open", table, schema=schema, feed=feed, partition=partition) == "committed"

    def feed(self, table: str, since: int) -> list[list[Any]]:
        self.tell("feed", table, since=since)
        rows: list[list[Any]] = self.hear()["rows"]
        assert self.hear()["done"] == "committed"
        return rows

    def sql(self, *texts: str) -> list[tuple[Any, ...]]:
        """Runs statements in a session that is attached to its own warehouse and runs its jobs; returns the last
        statement's rows."""
        rows: list[tuple[Any, ...]] = []
        for text in texts:
            self.tell("sql", "", text=text)
            rows = sorted(tuple(row) for row in self.hear()["rows"])
        return rows

    def kill(self) -> None:
        """SIGKILL; its JVM ends with it, a moment later."""
        self._process.kill()
        self._process.wait(LAST_RESORT_SECONDS)

    def path(self, table: str) -> str:
        return f"{self.warehouse.uri}/{table}"

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = DeltaTable(self.path(table)).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def take_over(self, table: str) -> JobOutput:
        """Another process's run of the same job."""
        return JobOutput.reopen(self.warehouse, self.path(table), job="mv-1", run=2, epoch=2)

    def end(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            assert self._process.wait(LAST_RESORT_SECONDS) == 0


@pytest.fixture(scope="module")
def child(s3_store: S3Store) -> Iterator[Child]:
    """The process, which every test of this module sends tasks to."""
    started = Child(s3_store)
    yield started
    started.end()


def some(*keys: int, value: str = "a") -> list[tuple[int, str]]:
    return [(key, value) for key in keys]


def test_a_large_append_is_what_spark_wrote_and_delta_rs_committed(child: Child) -> None:
    child.make("odd", partition=("hour",), schema=ODD_SCHEMA)
    rows = [(1, "x y", None), (2, None, None)]
    given = {"schema": "k long, `a b` string, at timestamp_ntz", "values": {"hour": 7}}
    assert child.do("append", "odd", *rows, batch=0, **given) == "committed"
    assert child.rows("odd") == [(1, "x y", None, 7), (2, None, None, 7)]
    assert child.do("append", "odd", batch=1, **given) == "committed"
    table = DeltaTable(child.path("odd"))
    assert (table.transaction_version("mv-1"), len(table.partitions())) == ((1 << 32) + 2, 1)
    # Spark's working files are gone, and files that the table does not list do not belong to it.
    found = child.warehouse.files.find(child.path("odd"))
    assert {path.rpartition("/")[2] for path in found if path.endswith(".parquet")} == {
        uri.rpartition("/")[2] for uri in table.file_uris()
    }
    assert not [path for path in found if "/written/" in path and "_delta_log" in path]


@pytest.mark.parametrize("feed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_large_merge_replaces_deletes_and_adds(child: Child, feed: bool) -> None:
    table = f"merged-{feed}"
    child.make(table, feed=feed)
    since = DeltaTable(child.path(table)).version() + 1
    child.do("append", table, *some(1, 2, 3), batch=0)
    child.do("append", table, *some(10, 11), (None, "a"), batch=1)
    before = set(DeltaTable(child.path(table)).file_uris())
    change = [(2, "b", True), (3, "gone", False), (7, "b", True), (8, "never", False)]
    with_keep = "k long, v string, _rw_keep boolean"
    assert child.do("merge", table, *change, batch=2, keys=["k"], schema=with_keep) == "committed"
    # A file that contains none of the keys stays unchanged.
    assert len(before & set(DeltaTable(child.path(table)).file_uris())) == 1
    assert child.do("merge", table, (None, "b"), batch=3, keys=["k"]) == "committed"
    kept = {(1, "a"), (2, "b"), (7, "b"), (10, "a"), (11, "a"), (None, "b")}
    assert {(row["k"], row["v"]) for row in DeltaTable(child.path(table)).to_pyarrow_table().to_pylist()} == kept
    if feed:
        by_version: dict[int, set[tuple[Any, ...]]] = {}
        for k, v, change, version in child.feed(table, since):
            by_version.setdefault(version, set()).add((k, v, change))
        assert [by_version[version] for version in sorted(by_version)[2:]] == [
            {(2, "a", "delete"), (3, "a", "delete"), (2, "b", "insert"), (7, "b", "insert")},
            {(None, "a", "delete"), (None, "b", "insert")},
        ]


CASES = [("append", False), ("merge", False), ("merge", True)]


@pytest.mark.parametrize(("do", "feed"), CASES)
def test_a_paused_run_that_wakes_commits_nothing(child: Child, do: str, feed: bool) -> None:
    table = f"paused-{do}-{feed}"
    child.make(table, feed=feed)
    child.do("append", table, *some(1, 2), batch=0)
    child.tell(do, table, *some(2, 3, value="late"), batch=1, keys=["k"], pause="batch.written")
    pids = child.hear()["paused"]
    wait_until(lambda: all(state_of(pid) == "T" for pid in pids), "both processes stand still")
    second = child.take_over(table)
    second.append_rows(pa.table({"k": [9], "v": ["second"]}), 1)
    versions = commit_versions(child.warehouse, child.path(table))
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert child.hear() == {"done": "fenced"}
    assert child.rows(table) == [(1, "a"), (2, "a"), (9, "second")]
    assert commit_versions(child.warehouse, child.path(table)) == versions


@pytest.mark.parametrize(("do", "feed"), CASES)
def test_a_commit_that_was_on_its_way_takes_no_ones_place(child: Child, do: str, feed: bool) -> None:
    table = f"sent-{do}-{feed}"
    child.make(table, feed=feed)
    child.do("append", table, *some(1, 2), batch=0)
    with child.store.holding(rf"/{table}/_delta_log/\d+\.json$") as is_waiting:
        child.tell(do, table, *some(2, 3, value="late"), batch=1, keys=["k"])
        wait_until(is_waiting, "the commit is on its way")
        second = child.take_over(table)
        second.append_rows(pa.table({"k": [9], "v": ["second"]}), 1)
    assert child.hear() == {"done": "fenced"}
    assert child.rows(table) == [(1, "a"), (2, "a"), (9, "second")]
    first = [commit for _, commit in job_commits(child.warehouse, child.path(table)) if commit.run == 1]
    assert [commit.batch for commit in first] == [0, -1]


def test_every_commit_is_a_conditional_write(child: Child) -> None:
    """Includes the commits of the earlier tests of this process, if they ran."""
    child.make("conditional")
    child.do("append", "conditional", *some(1, 2), batch=0)
    child.do("merge", "conditional", *some(2, 3, value="b"), batch=1, keys=["k"])
    requests = child.store.requests()
    assert any(request.is_commit for request in requests)
    assert unconditional_commits(requests) == []


def test_an_idle_warehouse_sends_few_requests(child: Child, broker: BrokerInfo, topic_name: str) -> None:
    """A store charges for each request; the page on object stores tells the number."""
    create_topic(broker.bootstrap, topic_name)
    produce_json(broker.bootstrap, topic_name, [{"id": 1}, {"id": 2}])
    child.sql(
        "ALTER SYSTEM SET idle_job_timeout = '1s'",
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        "FLUSH",
    )

    def sent(heartbeats: int) -> float:
        """The requests per heartbeat, in the time of the next heartbeats."""
        before = child.store.requests()
        wait_until(lambda: _heartbeats(child.store.requests()[len(before) :]) >= heartbeats, "the owner is alive")
        return (len(child.store.requests()) - len(before)) / heartbeats

    wait_until(lambda: sent(2) <= 40, "the source and its view are at rest")
    # 30 on average (15 heartbeats and 450 requests a minute), and 42 while the lease's table is maintained.
    assert sent(15) <= 45
    produce_json(broker.bootstrap, topic_name, [{"id": 3}])
    assert child.sql("FLUSH", "SELECT id FROM v") == [(1,), (2,), (3,)]


def _heartbeats(requests: list[Request]) -> int:
    return sum(request.is_commit and "/runtime_lease/" in request.path for request in requests)


def state_of(pid: int) -> str:
    """A process's state: T if it is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


_OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
import rw_sql
from rw_sql.errors import SqlError

builder = SparkSession.builder.master("local[1]")
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
try:
    rw_sql.attach(spark, sys.argv[1])
    spark.range(3).write.parquet(sys.argv[1] + "/own")
    print(len(spark.sql("SHOW SOURCES").collect()), spark.read.parquet(sys.argv[1] + "/own").count())
except SqlError as error:
    print(error.code, error.message, error.hint)
"""


@pytest.mark.parametrize("has_s3a", [True, False])
def test_a_session_of_ones_own_is_completed_or_told_what_it_needs(s3_store: S3Store, has_s3a: bool) -> None:
    jars = S3_JARS if has_s3a else {"spark.jars.packages": installed_jars().delta}
    settings = [f"{key}={value}" for key, value in {**DELTA_SETTINGS, **jars}.items()]
    warehouse = s3_store.warehouse()
    done = subprocess.run(
        [sys.executable, "-c", _OWN_SESSION, warehouse, *settings],
        env=_without(os.environ, "AWS_") | dict(s3_store.environment()),
        stdout=subprocess.PIPE,
        text=True,
        timeout=LAST_RESORT_SECONDS,
        check=True,
    )
    if has_s3a:
        assert done.stdout.splitlines()[-1] == "0 3"
    else:
        assert done.stdout.startswith(f"RW414 this Spark session cannot read {warehouse}")
        assert "--exclude-packages software.amazon.awssdk:bundle" in done.stdout
