"""SELECT … FROM source in plain Spark reads the records that are upstream at that moment, and no more of them than the
query needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.errors import SqlError
from tests.integration.attached import noted_ranges, produce_json

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.mark.long
def test_a_source_is_read_once_and_nothing_is_kept(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    for partition in range(2):
        produce_json(broker.bootstrap, topic_name, [{"id": id_} for id_ in range(10)], partition)
    session.sql(
        f"""CREATE SOURCE s (id INT) INCLUDE partition AS part INCLUDE offset AS place INCLUDE timestamp AS at WITH (
            connector = 'kafka', topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}'
        ) FORMAT PLAIN ENCODE JSON"""
    )
    read = noted_ranges(monkeypatch)
    assert session.sql("SELECT count(*) AS n FROM s")[0].n == 20
    assert read[-1] == {"0": (0, 10), "1": (0, 10)}
    found = session.sql("SELECT id FROM s WHERE part = '1' AND place::bigint BETWEEN 3 AND 4")
    assert sorted(row.id for row in found) == [3, 4]
    assert read[-1] == {"1": (3, 5)}
    # A predicate on the whole, not on one of the two reads, bounds neither.
    both = "SELECT a.id FROM s a JOIN s b ON a.id = b.id WHERE a.part = '0' AND a.place = '7' AND b.part = '1'"
    assert [row.id for row in session.sql(both)] == [7]
    assert read[-1] == {"0": (0, 10), "1": (0, 10)}
    assert session.sql("SELECT count(*) AS n FROM s WHERE at >= TIMESTAMP '2001-01-01 00:00:00'")[0].n == 20
    assert session.sql("SELECT count(*) AS n FROM s WHERE at >= TIMESTAMP '2101-01-01 00:00:00'")[0].n == 0
    assert read[-1] == {}
    produce(
        broker.bootstrap, topic_name, [Record(value=b"no json", partition=0), Record(value=b'{"id":10}', partition=0)]
    )
    assert sorted(row.id for row in session.spark.table("s").where("part = '0'").collect())[-1] == 10
    assert session.sql("SELECT count(*) AS n FROM s")[0].n == 21
    assert not [table for table in session.spark.catalog.listTables() if table.name == "s"]
    assert session.job("s").state == "IDLE"
    assert session.warehouse not in session.spark.sql("SELECT * FROM s")._jdf.queryExecution().toString()


def test_a_source_without_an_end_is_refused_and_a_table_of_ones_own_is_read(session: AttachedSession) -> None:
    session.sql("CREATE SOURCE g (id INT) WITH (connector = 'datagen', datagen.split.num = '1')")
    with pytest.raises(SqlError) as refused:
        session.sql("SELECT * FROM g")
    assert refused.value.code == "RW301"
    with pytest.raises(SqlError):
        session.sql("EXPLAIN SELECT * FROM G")
    # Words that are not names of relations do not matter.
    assert session.sql("SELECT 'g' AS g, max(g) AS n FROM (SELECT id AS g FROM range(3))")[0].n == 2
    assert session.sql("EXPLAIN SELECT 1 AS one")
    session.sql("CREATE SOURCE h (id BIGINT) WITH (connector = 'datagen', datagen.rows.total = '50')")
    assert session.sql("SELECT count(DISTINCT id) AS n FROM h")[0].n > 0
    session.spark.createDataFrame([(1,)], "id int").createOrReplaceTempView("g")
    try:
        assert session.sql("SELECT id FROM g")[0].id == 1
    finally:
        session.spark.catalog.dropTempView("g")


def test_empty_batches_between_others_lose_no_row(session: AttachedSession) -> None:
    schema = pa.schema([("id", pa.int64())])
    parts = [pa.table([list(range(rows))], schema=schema) for rows in (0, 3, 0, 0, 8, 1, 0)]
    assert local_frame(session.spark, pa.concat_tables(parts)).count() == 12
    assert local_frame(session.spark, pa.concat_tables(parts[2:4])).count() == 0
