"""The process ends and another one attaches: all jobs continue at their positions."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def test_positions_states_and_pauses_survive(
    spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    warehouse = str(tmp_path / "warehouse")
    left, right = f"{topic_name}.left", f"{topic_name}.right"
    for topic in (left, right):
        create_topic(broker.bootstrap, topic, 2)
        produce_json(broker.bootstrap, topic, [{"id": id_} for id_ in range(10)])

    session = AttachedSession(spark, warehouse)
    session.let_no_job_rest()
    for name, topic in (("l", left), ("r", right)):
        session.run(
            f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
        )
    session.run(
        "CREATE MATERIALIZED VIEW counted AS SELECT id, count(*) AS n FROM l GROUP BY id",
        "CREATE MATERIALIZED VIEW joined AS SELECT l.id FROM l JOIN r ON l.id = r.id",
        "FLUSH",
        "PAUSE SOURCE r REASON 'over night'",
    )
    session.allow_unsafe()
    session.run(f"INJECT SOURCE OFFSETS r TO EARLIEST FOR SPLITS ('{right}:0')")
    injected = session.positions("r")
    session.detach()
    # Records that arrive while no process runs are read by the next one, in addition to the earlier counts.
    produce_json(broker.bootstrap, left, [{"id": id_} for id_ in range(5, 15)])

    session = AttachedSession(spark, warehouse)
    assert session.job("r").state == "PAUSED"
    assert session.job("r").reason == "over night"
    assert session.positions("r") == injected
    assert dict(session.flushed_rows_of("counted")) == {id_: 2 if 5 <= id_ < 10 else 1 for id_ in range(15)}
    assert {name: job.run for name, job in session.jobs().items()} == {"l": 2, "r": None, "counted": 2, "joined": 2}
    again = produced_again(session, injected)
    session.run("RESUME SOURCE r", "FLUSH")
    # The left side now contains ids 5 to 9 twice; the right side contains the injected split's ids once more.
    joined = [row[0] for row in session.rows_of("joined")]
    for id_ in range(10):
        copies = (2 if id_ >= 5 else 1) * (2 if id_ in again else 1)
        assert joined.count(id_) == copies, id_
    session.detach()


def produced_again(session: AttachedSession, injected: dict[str, int | None]) -> set[int]:
    """The ids in the splits of r that were moved back."""
    back = [split for split, position in injected.items() if position == 0]
    (source,) = session.sql("SELECT id FROM rw_catalog.rw_sources WHERE name = 'r'")
    log = f"delta.`{session.warehouse}/data/{source.id}/1`"
    names = ", ".join(f"'{split}'" for split in back)
    return {row.id for row in session.sql(f"SELECT id FROM {log} WHERE _rw_split IN ({names})")}


def test_a_start_that_was_interrupted_while_its_first_batch_was_planned(
    spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    create_topic(broker.bootstrap, topic_name, 1)
    session = AttachedSession(spark, str(warehouse))
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW counted AS SELECT id % 2 AS odd, count(*) AS n FROM s GROUP BY id % 2",
        "CREATE MATERIALIZED VIEW copied AS SELECT id FROM s",
    )
    session.detach()
    # The state after a kill between writing and renaming the files of each query's first batch.
    for name in ("mv-2", "mv-3"):
        (checkpoint,) = (warehouse / "checkpoints" / name).iterdir()
        shutil.rmtree(checkpoint)
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True)
            (checkpoint / folder / ".0.8a51.tmp").write_text("v1")
    produce_json(broker.bootstrap, topic_name, [{"id": id_} for id_ in range(3)])
    session = AttachedSession(spark, str(warehouse))
    assert session.flushed_rows_of("counted") == [(0, 2), (1, 1)]
    assert session.flushed_rows_of("copied") == [(0,), (1,), (2,)]
    assert {job.restarts for job in session.jobs().values()} == {0}
    session.detach()
