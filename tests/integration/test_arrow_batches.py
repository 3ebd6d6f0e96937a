"""Large batches that Arrow decodes and writes have the same rows as those that Spark decodes and writes."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.runtime.backfill import direct_table, staging_table
from rw_sql.runtime.decoding.block_files import BlockFiles
from rw_sql.runtime.jobs import arrow_batches
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from tests.integration.attached import READER, wait_until
from tests.integration.json_reference import Texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.runtime.decoding.block_files import TaskFiles
    from rw_sql.runtime.support.warehouse import Warehouse
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = (
    "id BIGINT, name VARCHAR, userid INT, ratio DOUBLE, ison BOOLEAN, no SMALLINT, day DATE, bare TIMESTAMP, "
    "zoned TIMESTAMPTZ, addr STRUCT<zipcode VARCHAR, no INT>, lines STRUCT<sku VARCHAR, qty INT>[]"
)
INCLUDED = 'INCLUDE key AS "key" INCLUDE partition AS "partition" INCLUDE offset AS o INCLUDE timestamp AS "timestamp"'
"""Two of them have the names of columns of the records, with other values."""


@pytest.fixture(autouse=True)
def _every_batch_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in READER:
        monkeypatch.setattr(place, "SMALL_ROWS", -1)
    monkeypatch.setattr(arrow_batches, "SMALL_ROWS", -1)
    monkeypatch.setattr(arrow_batches, "LARGE_ROWS", 0)


def create(session: AttachedSession, broker: BrokerInfo, topic: str, name: str) -> None:
    session.run(
        f"CREATE SOURCE {name} ({COLUMNS}) {INCLUDED} WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW {name}_rows AS SELECT * FROM {name}",
    )
    session.sql("FLUSH")


def shown(session: AttachedSession, view: str) -> list[str]:
    """The rows of a view as text, sorted; nested values with NULLs could not be sorted."""
    return sorted(map(repr, session.spark.sql(f"SELECT * FROM {view}").collect()))


def writers(session: AttachedSession, name: str) -> set[str]:
    """The programs that wrote the files of a source's log: ``parquet-cpp-arrow``, ``parquet-mr``."""
    (row,) = session.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = '{name}'")
    files = DeltaTable(f"{session.warehouse}/data/{row.id}/1").file_uris()
    return {str(pq.read_metadata(file).created_by).split()[0] for file in files}


def test_the_rows_are_those_of_spark(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = Texts(Random("batches"))
    plain = [
        b'{"id":%d,"name":"n%d","ratio":%d.5,"no":%d,"day":"2024-02-%02d","bare":"0%03d-01-02T03:04:05.%d",'
        b'"zoned":"2024-03-31 0%d:59:59.25+0%d:00","addr":{"zipcode":"z%d","no":%d},'
        b'"lines":[{"sku":"s"},null,{"qty":%d}]}'
        % (at, at, at, at % 99, 30 if at % 700 == 9 else at % 29 + 1, at % 999, at, at % 10, at % 10, at, at, at)
        for at in range(2_000)
    ]
    create_topic(broker.bootstrap, topic_name, 3)
    records = [*plain, *(texts.draw() for _ in range(200)), None]
    produce(broker.bootstrap, topic_name, [Record(value=value, key=b"k") for value in records])
    create(session, broker, topic_name, "by_arrow")
    monkeypatch.setattr(arrow_batches, "LARGE_ROWS", 10**9)
    create(session, broker, topic_name, "by_spark")
    assert writers(session, "by_arrow") == {"parquet-cpp-arrow", "parquet-mr"}
    assert writers(session, "by_spark") == {"parquet-mr"}
    wanted = shown(session, "by_spark_rows")
    assert len(wanted) > 2_000
    assert shown(session, "by_arrow_rows") == wanted
    errors = session.rows_of("`by_spark$errors`")
    assert errors
    assert session.rows_of("`by_arrow$errors`") == errors


def test_a_spark_without_python_decodes_itself(
    session: AttachedSession,
    broker: BrokerInfo,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = session.spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "no-such-python")
    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, [b'{"id":%d}' % at for at in range(300)])
    try:
        with caplog.at_level(logging.WARNING):
            create(session, broker, topic_name, "s")
        assert context in arrow_batches._without
    finally:
        arrow_batches._without.discard(context)
    assert "so Spark decodes" in caplog.text
    assert [row[0] for row in session.rows_of("s_rows", "id")] == list(range(300))
    assert session.job("s").restarts == 0


def test_a_task_whose_files_the_driver_does_not_see(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine, where the folder is another one."""
    with monkeypatch.context() as elsewhere:
        write = BlockFiles.write

        def write_and_lose(files: BlockFiles, records: DataFrame) -> list[TaskFiles]:
            written = write(files, records)
            for each in written:
                for name in each.rows:
                    Path(files.folder, name).unlink()
            return written

        elsewhere.setattr(BlockFiles, "write", write_and_lose)
        create_topic(broker.bootstrap, topic_name, 1)
        produce(broker.bootstrap, topic_name, [b'{"id":%d}' % at for at in range(300)])
        session.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
            "SET background_ddl = true",
            "CREATE MATERIALIZED VIEW s_rows AS SELECT * FROM s",
        )
        wait_until(lambda: session.job("s").reason.startswith("MISCOUNT Spark's tasks report 1 files"), "it stalls")
        assert session.rows_of("s_rows") == []
    wait_until(lambda: len(session.rows_of("s_rows")) == 300, "all rows are there")


HISTORIES = {
    "every": ("SELECT * FROM s", "table"),
    "renamed": ("SELECT userid AS id, id AS userid, `key` AS k, zoned, id AS again, o, lines AS l FROM s", "table"),
    "nested": ("SELECT b, a FROM (SELECT day AS b, id AS a, name FROM s) AS inner_rows", "table"),
    "filtered": ("SELECT id, name FROM s WHERE id > 1000", "folder"),
    "computed": ("SELECT upper(name) AS name, id FROM s", "folder"),
    "counted": ("SELECT no, count(*) AS n, min(id) AS least FROM s GROUP BY no", "table"),
}
"""Queries of views, and where Arrow writes the rows of a backfill: into the table's files, or into a folder that Spark
reads. A view with groups reads a staging table, whose rows are those of the log."""


@pytest.mark.long
def test_a_backfill_has_the_rows_of_spark(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (staging_table, direct_table):
        monkeypatch.setattr(place, "SMALL_ROWS", -1)
    written: list[str] = []
    decoded: list[str] = []
    save, read = ArrowBatches.save, ArrowBatches.decoded

    def noted_save(batches: ArrowBatches, warehouse: Warehouse, folder: str, *rest: Any, **given: Any) -> Any:
        written.append(folder)
        return save(batches, warehouse, folder, *rest, **given)

    def noted_read(batches: ArrowBatches, warehouse: Warehouse, folder: str, **given: Any) -> Any:
        decoded.append(folder)
        return read(batches, warehouse, folder, **given)

    monkeypatch.setattr(ArrowBatches, "save", noted_save)
    monkeypatch.setattr(ArrowBatches, "decoded", noted_read)
    texts = Texts(Random("histories"))
    plain = [
        b'{"id":%d,"name":"n%d","userid":%d,"no":%d,"day":"2024-02-%02d","zoned":"2024-03-31T0%d:59:59.25+0%d:00",'
        b'"lines":[{"sku":"s","qty":%d}]}' % (at, at, 2 * at, at % 9, at % 29 + 1, at % 10, at % 10, at)
        for at in range(2_000)
    ]
    create_topic(broker.bootstrap, topic_name, 2)
    records = [*plain, *(texts.draw() for _ in range(200)), None]
    produce(broker.bootstrap, topic_name, [Record(value=value, key=b"k") for value in records])
    session.run(
        f"CREATE SOURCE s ({COLUMNS}) {INCLUDED} WITH (connector = 'kafka', topic = '{topic_name}', "
        f"scan.startup.mode = 'latest', properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
    )
    for name, (query, written_to) in HISTORIES.items():
        written.clear()
        decoded.clear()
        session.run(f"CREATE MATERIALIZED VIEW {name} WITH (scan.startup.mode = 'earliest') AS {query}")
        assert written, name
        assert bool(decoded) == (written_to == "folder"), name
        for folder in (*written, *decoded):
            assert not Path(folder.removeprefix("file://")).exists(), name
    monkeypatch.setattr(arrow_batches, "LARGE_ROWS", 10**9)
    written.clear()
    for name, (query, _) in HISTORIES.items():
        session.run(f"CREATE MATERIALIZED VIEW {name}_by_spark WITH (scan.startup.mode = 'earliest') AS {query}")
        wanted = shown(session, f"{name}_by_spark")
        assert wanted
        assert shown(session, name) == wanted, name
    assert not written


def test_a_backfill_with_more_rows_than_records(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk whose tasks report more records than it has offsets is not committed."""
    for place in (staging_table, direct_table):
        monkeypatch.setattr(place, "SMALL_ROWS", -1)
    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, [b'{"id":%d}' % at for at in range(300)])
    with monkeypatch.context() as twice:
        write = BlockFiles.write
        twice.setattr(BlockFiles, "write", lambda files, records: write(files, records.union(records)))
        session.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
            f"scan.startup.mode = 'latest', properties.bootstrap.server = '{broker.bootstrap}') "
            "FORMAT PLAIN ENCODE JSON",
            "SET background_ddl = true",
            "CREATE MATERIALIZED VIEW every WITH (scan.startup.mode = 'earliest') AS SELECT id FROM s",
        )
        wait_until(lambda: session.job("every").reason.startswith("MISCOUNT 600 rows were read"), "it stalls")
        assert session.rows_of("every") == []
    wait_until(lambda: len(session.rows_of("every")) == 300, "all rows are there")
