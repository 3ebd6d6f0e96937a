"""A planned batch reads its versions, however old they have become and whatever was committed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.delta import reader as delta_reader
from rw_sql.connectors.delta.commits import read_commit
from rw_sql.connectors.delta.versions import BY_AGE, table_at
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.inputs import frame_at, path_of
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views import recomputed
from tests.integration.attached import wait_until
from tests.integration.old_histories import OldHistory
from tests.support.ageing import HOUR, WEEK, age_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEED = 5
"""This history has a pause and two stops, one of them with unread records."""

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_a_version_of_our_tables_is_read_however_old_it_is(tmp_path: Path, spark: SparkSession) -> None:
    output = JobOutput.open(Warehouse.at(str(tmp_path)), str(tmp_path / "t"), SCHEMA, job="mv-1", run=1, epoch=1)
    for batch in range(3):
        output.upsert_rows(pa.table({"id": pa.array([batch], pa.int64())}), ["id"], batch)
    old = output.table.version() - 1
    age_files(tmp_path, WEEK)
    with pytest.raises(PySparkException, match="BEYOND_DELETED_FILE_RETENTION"):
        spark.read.format("delta").option("versionAsOf", old).load(output.path).collect()
    job_session = SparkSessions(spark).new()
    assert ids(job_session.read.format("delta").option("versionAsOf", old).load(output.path)) == [0, 1]
    # A query that reads a source runs in the user's session, whose own time travel setting stays unchanged.
    assert ids(table_at(spark, output.path, old)) == [0, 1]
    with pytest.raises(PySparkException, match="BEYOND_DELETED_FILE_RETENTION"):
        spark.read.format("delta").option("versionAsOf", old).load(output.path).collect()
    spark.conf.set(BY_AGE, "false")
    assert ids(table_at(spark, output.path, old)) == [0, 1]
    assert spark.conf.get(BY_AGE) == "false"
    spark.conf.unset(BY_AGE)


def test_a_table_of_somebody_else_is_read_from_the_position_of_its_reader(tmp_path: Path, spark: SparkSession) -> None:
    """Its source was paused for longer than the table's deleted files are kept, and more rows arrived than one batch
    reads."""
    path = str(tmp_path / "theirs")
    for number in range(4):
        write_deltalake(path, pa.table({"id": pa.array([number], pa.int64())}), mode="append")
    age_files(tmp_path, 2 * WEEK)
    write_deltalake(path, pa.table({"id": pa.array([4], pa.int64())}), mode="append")
    commits = tuple(commit for version in (1, 2) if (commit := read_commit(path, version)) is not None)

    def read(upto: int | None) -> list[tuple[int, int]]:
        chosen = commits if upto is None else ()
        found = delta_reader.read(spark, path, "theirs", "id BIGINT", commits=chosen, upto=upto)
        return sorted((row.at, row.id) for row in found.selectExpr("_rw_offset AS at", "_rw_row.id AS id").collect())

    assert read(None) == [(1, 1), (2, 2)]
    assert read(2) == [(0, 0), (0, 1), (0, 2)]
    assert ids(delta_reader.snapshot(spark, path, {"id": "BIGINT"}, 3)) == [0, 1, 2, 3]


@pytest.mark.kafka
def test_a_view_that_joins_two_tables_goes_on_after_a_quiet_hour(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"{topic_name}.{name}" for name in ("a", "b")]

    def put(topic: str, value: int) -> None:
        produce(broker.bootstrap, topic, [Record(key=b'{"k":1}', value=json.dumps({"k": 1, "v": value}).encode())])

    for topic in topics:
        create_topic(broker.bootstrap, topic, 1)
        put(topic, 1)
    for name, topic in zip("ab", topics, strict=True):
        session.run(
            f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT UPSERT ENCODE JSON"
        )
    session.run("CREATE MATERIALIZED VIEW joined AS SELECT a.k, a.v AS x, b.v AS y FROM a JOIN b ON a.k = b.k")
    assert session.flushed_rows_of("joined") == [(1, 1, 1)]
    age_files(Path(session.warehouse), HOUR)

    # A batch is planned for the new rows of one table; by the time it reads them, the other table has changed too.
    moved: list[int] = []

    def moving(context: Context, spark: SparkSession, given: ViewInput, version: int) -> DataFrame:
        if given.name == "b" and not moved:
            moved.append(version)
            put(topics[1], 2)
            path = path_of(context.warehouse, given)
            wait_until(lambda: latest_version(context.warehouse, path) > version, "the other table has it")
        return frame_at(context, spark, given, version)

    monkeypatch.setattr(recomputed, "frame_at", moving)
    put(topics[0], 2)
    session.sql("FLUSH")
    assert len(moved) == 1
    assert session.flushed_rows_of("joined") == [(1, 2, 2)]
    assert session.job("joined").restarts == 0


@pytest.mark.alone
@pytest.mark.kafka
def test_a_history_with_pauses_in_it(session: AttachedSession, broker: BrokerInfo) -> None:
    """One of the histories that the proof ``old-histories`` covers."""
    facts = OldHistory(session, broker.bootstrap, seed=SEED).run(steps=4)
    assert facts["pauses"] > 0
    assert facts["restarts"] > 0
