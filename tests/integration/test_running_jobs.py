"""A running warehouse with new partitions, pauses, large batches, failures, and sessions that start and end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import InheritableThread

import rw_sql
from rw_sql.cli.servers.kafka_topics import add_partitions, create_topic
from rw_sql.metastore import Metastore
from rw_sql.runtime.control import job_slot, reconciler
from rw_sql.runtime.delta import held_rows
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.spark.work_progress import work_of
from tests.integration.attached import AttachedSession, produce_json, wait_until, writers
from tests.integration.processes import Server
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.long]

GENERATED = "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '1000')"


@pytest.mark.kafka
def test_flush_finds_partitions_that_nobody_has_found_yet(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    assert session.flushed_rows_of("v") == []
    add_partitions(broker.bootstrap, topic_name, 3)
    for partition in range(3):
        produce_json(broker.bootstrap, topic_name, [{"id": partition}], partition)
    assert session.flushed_rows_of("v") == [(0,), (1,), (2,)]


def test_a_pause_applies_at_once_even_if_nothing_runs(session: AttachedSession) -> None:
    session.run(GENERATED, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s", "FLUSH", "DROP MATERIALIZED VIEW v")
    session.allow_unsafe()
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "RESUME SOURCE s")


def test_a_large_keyed_batch_is_merged_by_spark(session: AttachedSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_rows, "SMALL_ROWS", -1)
    monkeypatch.setattr(held_rows, "LARGE_ROWS", -1)
    session.run(GENERATED, "CREATE MATERIALIZED VIEW v AS SELECT id % 7 AS k, count(*) AS n FROM s GROUP BY id % 7")
    rows = dict(session.flushed_rows_of("v"))
    assert (len(rows), sum(rows.values())) == (7, 1000)
    history = session.sql(f"DESCRIBE HISTORY delta.`{session.warehouse}/data/2/1`")
    assert "MERGE" in {row.operation for row in history}


@pytest.mark.kafka
def test_a_view_of_a_paused_source_rests_and_goes_on_with_it(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    session.run("ALTER SYSTEM SET idle_job_timeout = '200ms'")
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": number} for number in range(3)])
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id % 2 AS odd, count(*) AS n FROM s GROUP BY id % 2",
        "CREATE MATERIALIZED VIEW w AS SELECT n FROM v WHERE odd = 0",
    )
    assert session.flushed_rows_of("v") == [(0, 2), (1, 1)]
    session.run("PAUSE SOURCE s")
    wait_until(lambda: not writers(session), "no query and no thread writes batches any more")
    assert session.job("v").state == session.job("w").state == "RUNNING"
    assert session.flushed_rows_of("w") == [(2,)]
    produce_json(broker.bootstrap, topic_name, [{"id": 4}])
    session.run("RESUME SOURCE s")
    assert session.flushed_rows_of("v") == [(0, 3), (1, 1)]
    assert session.rows_of("w") == [(3,)]


def test_a_view_that_fails_shows_the_cause(session: AttachedSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (reconciler, job_slot):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.05)
    session.run(
        GENERATED,
        "CREATE MATERIALIZED VIEW v AS "
        "SELECT CASE WHEN id >= 0 THEN CAST(raise_error('no such tariff') AS INT) END AS tariff FROM s",
    )
    wait_until(lambda: session.job("v").state == "STALLED", "the view is stalled")
    reason = session.job("v").reason
    assert "no such tariff" in reason
    assert "STREAM_FAILED" not in reason
    assert "\n" not in reason
    wait_until(lambda: "FLAPPING: restarted" in session.job("v").reason, "it has failed again and again")
    job = session.job("v")
    assert job.state == "STALLED"
    assert "no such tariff" in job.reason
    session.sql("CREATE MATERIALIZED VIEW after AS SELECT tariff FROM v")
    answers = {row.object: (row.change, row.detail) for row in session.sql("FLUSH")}
    change, detail = answers["v"]
    assert change == "NOTICE"
    assert detail.startswith("stalled, not waited for: FLAPPING: restarted ")
    assert answers["after"] == ("FLUSHED", "except for rows missing in v")


def test_what_spark_does_for_a_batch_is_seen_task_by_task(spark: SparkSession, tmp_path: Path) -> None:
    """No table shows anything of a batch before its commit, but its progress is visible."""
    folder = str(tmp_path)

    def wait_for_its_file(number: int) -> None:
        while not (Path(folder) / str(number)).exists():
            time.sleep(0.01)

    def work() -> None:
        spark.sparkContext.setJobGroup("a batch", "a batch")
        spark.sparkContext.parallelize(range(4), 4).foreach(wait_for_its_file)

    assert work_of("a batch") == ()
    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: bool(work_of("a batch")), "it has begun")
    before = work_of("a batch")
    assert work_of("a batch") == before
    for number in range(4):
        (tmp_path / str(number)).touch()
        wait_until(lambda before=before: work_of("a batch") != before, "a task has ended")  # type: ignore[misc]
        before = work_of("a batch")
    thread.join()


def test_what_one_session_did_not_ask_for_another_may(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    first = AttachedSession(spark, warehouse, run_jobs=False)
    second = AttachedSession(spark.newSession(), warehouse, run_jobs=False)
    try:
        assert not second.attached.is_owner
        third = AttachedSession(second.spark, warehouse)
        assert third.attached is second.attached
        assert first.attached.is_owner
        first.run(GENERATED, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
        assert len(second.flushed_rows_of("v")) == 1000
        second.detach()
        assert len(first.rows_of("v")) == 1000
    finally:
        second.detach()
        first.detach()


@pytest.mark.usefixtures("made_code")
def test_the_next_warehouse_does_not_show_the_rows_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    for name, total in (("one", 3), ("other", 5)):
        session = AttachedSession(spark, str(tmp_path / name))
        session.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '{total}')",
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        )
        assert len(session.flushed_rows_of("v")) == total
        session.detach()
        assert "v" not in {table.name for table in spark.catalog.listTables()}


def test_a_plain_statement_needs_no_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    session = AttachedSession(spark, str(warehouse), run_jobs=False)
    gone = tmp_path / "gone"
    try:
        warehouse.rename(gone)
        assert session.sql("SELECT 1 AS one")[0].one == 1
        gone.rename(warehouse)
    finally:
        rw_sql.detach(spark)


def test_serve_ends_with_its_spark(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    server = Server(warehouse, tmp_path)
    try:
        wait_until(server.is_serving, "the server serves")
        lease = Metastore.open(warehouse).jobs.lease()
        assert lease is not None
        os.kill(lease.jvm_pid, signal.SIGKILL)
        assert server.process.wait(LAST_RESORT_SECONDS) == 1
        assert "Spark has ended: this process cannot run the jobs any more" in server.said()
        assert (now := Metastore.open(warehouse).jobs.lease()) is not None
        assert now.is_released
    finally:
        server.close()
