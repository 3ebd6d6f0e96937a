"""Several processes on one warehouse: one owns its jobs, all can use it, and none reads a row twice."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.integration.processes import Server, owner_pid
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Starts servers of a warehouse, and ends them."""
    servers: list[Server] = []

    def start(warehouse: str) -> Server:
        servers.append(Server(warehouse, tmp_path))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def wait_for_owner(warehouse: str, pids: set[int]) -> int:
    """The owner, once it is one of these processes."""
    wait_until(lambda: owner_pid(warehouse) in pids, f"one of {pids} owns the warehouse")
    owner = owner_pid(warehouse)
    assert owner is not None
    return owner


def produce(broker: BrokerInfo, topic: str, ids: range) -> None:
    produce_json(broker.bootstrap, topic, [{"id": id_} for id_ in ids])


def create(session: AttachedSession, broker: BrokerInfo, topic: str) -> None:
    session.run(
        "SET statement_timeout = '3min'",
        f"""CREATE SOURCE s (id INT) WITH (
            connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{broker.bootstrap}'
        ) FORMAT PLAIN ENCODE JSON""",
        "CREATE MATERIALIZED VIEW how_often AS SELECT id, count(*) AS n FROM s GROUP BY id",
        "CREATE MATERIALIZED VIEW every_row AS SELECT id FROM s",
    )


def look_at_page(server: Server) -> None:
    """The endpoints of a server that runs the jobs, without any earlier request."""
    found = re.search(r"status page at (http://127\.0\.0\.1:\d+/)", server.said())
    assert found is not None, server.said()

    def get(path: str) -> str:
        with urllib.request.urlopen(found[1] + path, timeout=LAST_RESORT_SECONDS) as answer:
            text: str = answer.read().decode()
            return text

    assert get("healthz") == "alive\n"
    assert get("readyz") == "ready\n"
    assert "how_often" in get("")
    metrics = get("metrics")
    assert re.search(r'rw_sql_job_rows_total\{job="ingest-\d+",object="s"\} 100\.0', metrics), metrics
    assert re.search(r'rw_sql_job_last_batch_duration_seconds\{job="mv-\d+",object="how_often"\}', metrics), metrics
    assert "event=job job=" in server.said()


def test_the_workflow_from_a_process_that_does_not_own(
    spark: SparkSession,
    serve: Callable[[str], Server],
    broker: BrokerInfo,
    topic_name: str,
    tmp_path: Path,
) -> None:
    warehouse = str(tmp_path / "warehouse")
    old, new = f"{topic_name}.old", f"{topic_name}.new"
    create_topic(broker.bootstrap, old, 2)
    create_topic(broker.bootstrap, new, 3)
    produce(broker, old, range(100))
    produce(broker, new, range(1000, 1100))
    server = serve(warehouse)
    wait_until(server.is_serving, "the server serves")
    session = AttachedSession(spark, warehouse, run_jobs=False)
    try:
        assert not session.attached.is_owner
        create(session, broker, old)
        assert session.flushed_rows_of("how_often") == [(id_, 1) for id_ in range(100)]
        look_at_page(server)
        session.allow_unsafe()
        session.run("PAUSE SOURCE s", f"ALTER SOURCE s UNSAFE SET (topic = '{new}')")

        server.kill()
        # No process runs the jobs now; the desired state is committed all the same.
        session.run("SET statement_timeout = '1s'", "RESET SOURCE SPLITS s")
        resumed = [tuple(row) for row in session.sql("RESUME SOURCE s")]
        assert ("s", "NOTICE", "committed, not yet applied") in resumed
        start = f"rw-sql serve --warehouse {warehouse}"
        assert ("s", "NOTICE", f"no process runs the jobs: {start} applies the statement") in resumed
        assert len(session.rows_of("every_row")) == 100

        server = serve(warehouse)
        wait_for_owner(warehouse, {server.pid})
        produce(broker, new, range(1100, 1150))
        session.run("SET statement_timeout = '3min'")
        expected = [*range(100), *range(1000, 1150)]
        assert session.flushed_rows_of("how_often") == [(id_, 1) for id_ in expected]
        assert session.rows_of("every_row") == [(id_,) for id_ in expected]

        # The view's state is kept too: the count of an id that the killed server counted continues.
        produce(broker, new, range(1150, 1200))
        produce(broker, new, range(5))
        counts = dict.fromkeys([*range(100), *range(1000, 1200)], 1) | dict.fromkeys(range(5), 2)
        assert dict(session.flushed_rows_of("how_often")) == counts
        assert {job.state for job in session.jobs().values()} == {"RUNNING"}
        assert server.terminate() == 0
        assert "stopping" in server.said()
        assert owner_pid(warehouse) is None
        assert {job.state for job in session.jobs().values()} == {"STOPPED"}
    finally:
        session.detach()


def test_of_processes_that_attach_at_once_one_owns_and_the_others_stand_by(
    spark: SparkSession,
    serve: Callable[[str], Server],
    broker: BrokerInfo,
    topic_name: str,
    tmp_path: Path,
) -> None:
    warehouse = str(tmp_path / "warehouse")
    create_topic(broker.bootstrap, topic_name, 2)
    produce(broker, topic_name, range(100))
    servers = {server.pid: server for server in (serve(warehouse), serve(warehouse))}
    first = wait_for_owner(warehouse, set(servers))
    (standing_by,) = (server for pid, server in servers.items() if pid != first)
    for server in servers.values():
        wait_until(server.is_serving, "the server serves or stands by")
    assert "standing by" in standing_by.said()
    assert "serving" not in standing_by.said()
    session = AttachedSession(spark, warehouse, run_jobs=True)
    try:
        assert not session.attached.is_owner
        session.let_no_job_rest()
        create(session, broker, topic_name)
        assert session.flushed_rows_of("every_row") == [(id_,) for id_ in range(100)]
        assert {job.run for job in session.jobs().values()} == {1}

        produce(broker, topic_name, range(100, 200))
        servers.pop(first).kill()
        (second,) = servers
        # Either the other server or this process takes over, depending on which looks first.
        wait_until(lambda: session.attached.is_owner or owner_pid(warehouse) == second, "somebody took over")
        produce(broker, topic_name, range(200, 300))
        assert session.flushed_rows_of("every_row") == [(id_,) for id_ in range(300)]
        assert {job.run for job in session.jobs().values()} == {2}

        if not session.attached.is_owner:
            servers.pop(second).kill()
            wait_until(lambda: session.attached.is_owner, "this process took over")
        produce(broker, topic_name, range(300, 400))
        assert session.flushed_rows_of("every_row") == [(id_,) for id_ in range(400)]
        assert session.rows_of("how_often") == [(id_, 1) for id_ in range(400)]
    finally:
        session.detach()
