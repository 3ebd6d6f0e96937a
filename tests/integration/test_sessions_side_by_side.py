"""Several sessions, threads and names of the user beside those of rw_sql in one Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import rw_sql
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.magics import load
from rw_sql.runtime.jobs.groups import owned_groups
from rw_sql.runtime.spark.sessions import plain_sql
from rw_sql.session.attach import attached_to
from tests.integration.attached import wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark

NUMBERS = (
    "CREATE SOURCE {} (id BIGINT) INCLUDE offset AS place WITH (connector = 'datagen', datagen.rows.total = '50', "
    "datagen.split.num = '1', fields.id.kind = 'sequence')"
)
_ROUNDS = 6


def test_threads_of_a_session_that_read_one_source_get_all_of_their_rows(session: AttachedSession) -> None:
    """Each query reads only the offsets that it needs, by a temporary view of the source's name."""
    session.sql(NUMBERS.format("s"))
    both = threading.Barrier(2)

    def count(condition: str) -> set[int]:
        found = set()
        for _ in range(_ROUNDS):
            both.wait(60)
            found.add(session.sql(f"SELECT count(*) AS n FROM s WHERE {condition}")[0].n)
        return found

    with ThreadPoolExecutor(2) as threads:
        some, every = threads.map(count, ["place >= 40", "id IS NOT NULL"])
    assert (some, every) == ({10}, {50})


def test_names_in_braces_in_queries_of_a_source(session: AttachedSession) -> None:
    session.sql(NUMBERS.format("s"))
    text = "SELECT count(*) AS n FROM s WHERE place >= {least}"
    assert session.spark.sql(text, least=40).collect()[0].n == 10


def test_a_mistake_in_a_text_with_arguments_aborts_the_block(session: AttachedSession) -> None:
    session.allow_unsafe()
    session.run(NUMBERS.format("s"), "BEGIN UNSAFE", "PAUSE SOURCE s")
    with pytest.raises((rw_sql.SqlError, PySparkException)):
        session.spark.sql("RESUME SOURCE :name", args={"name": "s"})
    assert session.attached.block_state == "aborted"
    session.sql("ROLLBACK")


@pytest.mark.parametrize("name", ["a`b", "1x", "it's", "a b"])
def test_sources_with_odd_names_are_readable(session: AttachedSession, name: str) -> None:
    word = "`" + name.replace("`", "``") + "`"
    session.sql(NUMBERS.format('"' + name + '"'))
    assert session.sql(f"SELECT count(*) AS n FROM {word}")[0].n == 50
    assert session.sql(f"SELECT count(*) AS n FROM {word[:-1]}$errors`")[0].n == 0


def test_a_view_is_readable_once_nothing_of_the_user_hides_it(session: AttachedSession, made_code: None) -> None:
    session.sql("CREATE TABLE totals USING delta AS SELECT 'mine' AS of")
    try:
        session.run(
            NUMBERS.format("s"),
            "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s",
            "CREATE SCHEMA mart",
            "CREATE MATERIALIZED VIEW mart.sums AS SELECT sum(place) AS n FROM s",
            "FLUSH",
        )
        assert session.rows_of("totals") == [("mine",)]
        session.sql("ALTER TABLE spark_catalog.default.totals RENAME TO default.own_totals")
        assert session.rows_of("totals") == [(50,)]
        assert session.rows_of("own_totals") == [("mine",)]
        session.detach()
        session.sql("CREATE DATABASE mart")
        session.attached = rw_sql.attach(session.spark, session.warehouse)
        with pytest.raises(PySparkException):
            session.rows_of("mart.sums")
        session.sql("DROP DATABASE mart")
        assert session.rows_of("mart.sums") == [(1225,)]
    finally:
        for name in ("totals", "own_totals"):
            plain_sql(session.spark, f"DROP TABLE IF EXISTS {name}")


def test_a_session_that_leaves_takes_nothing_from_the_others(session: AttachedSession) -> None:
    other = session.spark.newSession()
    other.sql("CREATE DATABASE IF NOT EXISTS elsewhere")
    other.sql("USE elsewhere")
    try:
        session.run(
            NUMBERS.format("s"),
            "CREATE SCHEMA mart",
            "CREATE MATERIALIZED VIEW mart.sums AS SELECT sum(place) AS n FROM s",
            "FLUSH",
        )
        rw_sql.attach(other, session.warehouse)
        assert other.sql("SELECT n FROM mart.sums").collect()[0].n == 1225
        rw_sql.detach(other)
        assert session.rows_of("mart.sums") == [(1225,)]
        session.run("DROP MATERIALIZED VIEW mart.sums", "DROP SCHEMA mart")
    finally:
        rw_sql.detach(other)
        other.sql("DROP DATABASE elsewhere CASCADE")


def test_a_statement_returns_its_rows_although_its_views_cannot_be_made(session: AttachedSession) -> None:
    other = session.spark.newSession()
    other.sql("CREATE DATABASE gone")
    other.sql("USE gone")
    rw_sql.attach(other, session.warehouse)
    try:
        other.sql("DROP DATABASE gone CASCADE")
        other.sql(NUMBERS.format("s"))
        other.sql("CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s")
        wait_until(lambda: session.attached.object_names() == ("s", "totals"), "it is committed")
        session.sql("FLUSH")
        assert session.rows_of("totals") == [(50,)]
        assert [row.name for row in other.sql("SHOW MATERIALIZED VIEWS").collect()] == ["totals"]
    finally:
        rw_sql.detach(other)


def test_the_rows_of_a_job_leave_the_users_session_the_active_one(spark: SparkSession) -> None:
    mine, jobs = spark.newSession(), [spark.newSession() for _ in range(4)]
    mine.createDataFrame([(1,)], "n int")
    table = pa.table({"n": [1, 2]})

    def hand_over(job: SparkSession) -> int:
        return sum(local_frame(job, table).count() for _ in range(3))

    with ThreadPoolExecutor(len(jobs)) as threads:
        assert list(threads.map(hand_over, jobs)) == [6] * len(jobs)
    assert SparkSession.getActiveSession() is mine
    spark.createDataFrame([(1,)], "n int")


def test_a_line_of_a_notebook_is_not_changed_by_names_of_python(session: AttachedSession) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    session.sql(NUMBERS.format("s"))
    shell: Any = InteractiveShell()
    shell.user_ns |= {"spark": session.spark, "errors": SimpleNamespace(), "n": 7}
    load(shell)
    for _ in range(2):  # The first run assigns the variable.
        shell.run_line_magic("rw", "errors << SELECT count(*) AS n FROM `s$errors`")
        assert [row.n for row in shell.user_ns["errors"].df.collect()] == [0]
    assert shell.run_line_magic("rw", "SELECT '{n}' AS text, '$n' AS other").df.collect()[0] == ("{n}", "$n")


def test_a_table_that_cannot_be_read_concerns_its_own_view_only(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(written.view(3, "broken"), written.view(4, "whole"))
    written.batch(written.fence("mv-4", 1), "mv-4", 1, 0, 5)
    (log := written.folder / "data" / "3" / "1" / "_delta_log").mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"commitInfo":{}}', encoding="utf-8")
    rw_sql.attach(spark, written.uri, run_jobs=False)
    try:
        assert spark.sql("SELECT count(*) AS n FROM whole").collect()[0].n == 5
        assert len(spark.sql("SHOW MATERIALIZED VIEWS").collect()) == 2
    finally:
        rw_sql.detach(spark)


def test_the_port_of_the_metrics_is_free_after_the_last_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("RW_SQL_METRICS", str(port))
        with pytest.raises(rw_sql.SqlError, match="metrics cannot be served"):
            rw_sql.attach(spark, str(tmp_path / "w"), run_jobs=False)
        assert attached_to(spark) is None
        with pytest.raises(PySparkException):
            spark.sql("SHOW SOURCES")
    for _ in range(2):
        rw_sql.attach(spark, str(tmp_path / "w"), run_jobs=False)
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'rw_sql_owner_present{resource_group="default"} 0.0' in answer.read()
        rw_sql.detach(spark)


PROGRAM = """
import os, signal, threading, time
import rw_sql
spark = rw_sql.connect("warehouse", master="local[1]", config={"spark.ui.enabled": "false"}, run_jobs=False)
spark.sql("CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen', datagen.rows.total = '50')")
attached = rw_sql.attach(spark, "warehouse", run_jobs=False)
pid = attached._runtime.context.sessions.jvm_pid
os.kill(pid, signal.SIGSTOP)
threading.Timer(2.0, os.kill, (pid, signal.SIGKILL)).start()
try:
    spark.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
except rw_sql.SqlError as error:
    print(error.message)
print(attached.object_names())
os._exit(0)
"""


@pytest.mark.long
def test_spark_that_ends_while_a_statement_is_planned(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.splitlines() == [
        "the JVM of this Spark session has ended; nothing was changed",
        "('s',)",
    ], done.stderr


def test_the_name_of_a_resource_group_is_written_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise the process would hold the lease of a group that no object has, and run nothing."""
    attached = rw_sql.attach(spark, str(tmp_path / "warehouse"), resource_group=" Nightly ")
    try:
        wait_until(lambda: "nightly" in owned_groups(attached._runtime.context), "the process owns the group")
    finally:
        rw_sql.detach(spark)
