"""Sources, views and sinks at rest: what wakes them, what statements on them do, and what the next process does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import add_partitions, create_topic
from tests.integration.attached import AttachedSession, produce_json, wait_until, writers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def _reach_rest(session: AttachedSession) -> None:
    wait_until(lambda: not writers(session), "no query and no thread writes batches any more")
    wait_until(lambda: all(job.reason.startswith("idle: ") for job in session.jobs().values()), "all jobs are idle")


def test_what_rests_is_exact_whatever_wakes_it(
    spark: SparkSession, warehouse: str, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    session = AttachedSession(spark, warehouse)
    session.allow_unsafe()
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": number} for number in range(3)])
    session.run(
        "ALTER SYSTEM SET idle_job_timeout = '500ms'",
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id % 2 AS odd, count(*) AS n FROM s GROUP BY id % 2",
        f"CREATE SINK f AS SELECT id FROM s WITH (connector = 'fs', fs.path = '{tmp_path}/out', type = 'append-only') "
        "FORMAT PLAIN ENCODE JSON",
    )
    assert session.flushed_rows_of("v") == [(0, 2), (1, 1)]
    _reach_rest(session)
    jobs = session.jobs()
    assert {name: job.state for name, job in jobs.items()} == {"s": "RUNNING", "v": "RUNNING", "f": "RUNNING"}
    assert all(job.reason.startswith("idle: ") for job in jobs.values())
    # A record wakes all of them without a statement.
    produce_json(broker.bootstrap, topic_name, [{"id": 3}])
    wait_until(lambda: session.rows_of("v") == [(0, 2), (1, 2)], "the view has the record")
    _reach_rest(session)
    # FLUSH does not wait for the watcher, and a new partition is found.
    produce_json(broker.bootstrap, topic_name, [{"id": 4}])
    assert session.flushed_rows_of("v") == [(0, 3), (1, 2)]
    _reach_rest(session)
    add_partitions(broker.bootstrap, topic_name, 2)
    produce_json(broker.bootstrap, topic_name, [{"id": 5}], 1)
    assert session.flushed_rows_of("v") == [(0, 3), (1, 3)]
    _reach_rest(session)
    # Moves and pauses of a source at rest.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO EARLIEST", "RESUME SOURCE s")
    assert session.flushed_rows_of("v") == [(0, 6), (1, 6)]
    _reach_rest(session)
    session.run("PAUSE SOURCE s")
    produce_json(broker.bootstrap, topic_name, [{"id": 6}], 0)
    session.run("RESUME SOURCE s")
    assert session.flushed_rows_of("v") == [(0, 7), (1, 6)]
    _reach_rest(session)
    runs = {name: job.run for name, job in session.jobs().items()}
    session.detach()
    # The next process leaves them at rest, and wakes what has something to read.
    session = AttachedSession(spark, warehouse)
    wait_until(lambda: session.job("v").state == "RUNNING", "the jobs run")
    assert {name: job.run for name, job in session.jobs().items()} == runs
    assert not writers(session)
    produce_json(broker.bootstrap, topic_name, [{"id": 8}], 0)
    wait_until(lambda: session.rows_of("v") == [(0, 8), (1, 6)], "the view has the record")
    session.run("FLUSH")
    written = [json.loads(line)["id"] for path in (tmp_path / "out").rglob("*.json") for line in path.open()]
    assert sorted(written) == sorted([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 8])
    session.detach()
