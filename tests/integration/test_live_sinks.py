"""Running sinks: the rows that arrive in topics, tables and files, once or in order, across pauses, restarts and
kills."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.connectors.jdbc.writer import JdbcWriter
from rw_sql.connectors.sink import SinkError
from rw_sql.errors import SqlError
from rw_sql.metastore.records import SinkRecord, TableRecord
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def consumed(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """All records of a topic with one partition, in order: (key, value) as JSON, None for a missing part."""
    from confluent_kafka import Consumer, TopicPartition

    made: Any = Consumer
    consumer = made({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[Any, Any]] = []
        while len(found) < end:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            found.append(tuple(None if raw is None else json.loads(raw) for raw in (message.key(), message.value())))  # type: ignore[arg-type]
        return found
    finally:
        consumer.close()


def source(name: str, topic: str, broker: BrokerInfo) -> str:
    return (
        f"CREATE SOURCE {name} (id INT, word VARCHAR) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
    )


def to_kafka(name: str, of: str, topic: str, broker: BrokerInfo, form: str, *options: str) -> str:
    more = "".join(f", {option}" for option in options)
    return (
        f"CREATE SINK {name} {of} WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}'{more}) FORMAT {form} ENCODE JSON"
    )


def test_kafka(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    """Rows, changes by key and Debezium's records, existing rows first; paused, resumed, dropped."""
    topics = {name: f"{topic_name}.{name}" for name in ("in", "plain", "upsert", "debezium", "late", "recent")}
    for topic in topics.values():
        create_topic(broker.bootstrap, topic, 1)
    rows = [{"id": number, "word": word} for number, word in enumerate("abcab", start=1)]
    produce_json(broker.bootstrap, topics["in"], rows[:3])
    session.run(
        source("s", topics["in"], broker),
        "CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM s GROUP BY word",
        "FLUSH",
        to_kafka("recent", "FROM counts", topics["recent"], broker, "UPSERT", "snapshot = 'false'"),
        to_kafka("plain", "FROM s", topics["plain"], broker, "PLAIN", "primary_key = 'id'"),
        to_kafka("upserts", "FROM counts", topics["upsert"], broker, "UPSERT"),
        to_kafka("debezium", "FROM counts", topics["debezium"], broker, "DEBEZIUM", "primary_key = 'word'"),
        to_kafka("late", "FROM s", topics["late"], broker, "PLAIN", "snapshot = 'false'"),
        "FLUSH",
    )
    assert {job.state for job in session.jobs().values()} == {"RUNNING"}
    session.run("PAUSE SINK plain REASON 'a test'")
    produce_json(broker.bootstrap, topics["in"], rows[3:])
    session.run("FLUSH")
    assert consumed(broker.bootstrap, topics["plain"]) == [({"id": row["id"]}, row) for row in rows[:3]]
    assert session.job("plain").state == "PAUSED"
    session.run("RESUME SINK plain", "FLUSH")
    assert consumed(broker.bootstrap, topics["plain"]) == [({"id": row["id"]}, row) for row in rows]
    assert consumed(broker.bootstrap, topics["late"]) == [(None, row) for row in rows[3:]]
    recent = consumed(broker.bootstrap, topics["recent"])
    assert sorted((key["word"], value["n"]) for key, value in recent) == [("a", 2), ("b", 2)]
    changes = consumed(broker.bootstrap, topics["upsert"])
    assert {key["word"]: value["n"] for key, value in changes} == {"a": 2, "b": 2, "c": 1}
    assert sorted(value["n"] for key, value in changes if key["word"] == "a") == [1, 2]
    records = [
        (key["payload"]["word"], value["payload"]) for key, value in consumed(broker.bootstrap, topics["debezium"])
    ]
    assert [(word, payload["op"], payload["after"]["n"]) for word, payload in records if word == "a"] == [
        ("a", "c", 1),
        ("a", "u", 2),
    ]
    assert [payload["before"] for word, payload in records if word == "b"] == [None, {"word": "b", "n": 1}]
    assert [(row.name, row.state, row.inputs) for row in session.sql("SHOW SINKS")] == [
        ("debezium", "RUNNING", "counts"),
        ("late", "RUNNING", "s"),
        ("plain", "RUNNING", "s"),
        ("recent", "RUNNING", "counts"),
        ("upserts", "RUNNING", "counts"),
    ]
    depends = "SELECT count(*) AS n FROM rw_catalog.rw_depend d JOIN rw_catalog.rw_sinks k ON d.objid = k.id"
    assert session.sql(depends)[0].n == 5
    session.run(*(f"DROP SINK {name}" for name in ("plain", "upserts", "debezium", "late", "recent")))
    assert set(session.jobs()) == {"s", "counts"}


@pytest.mark.postgres
def test_tables_and_files(
    spark: SparkSession,
    broker: BrokerInfo,
    topic_name: str,
    tmp_path: Path,
    warehouse: str,
    postgres: PostgresInfo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Delta, files and PostgreSQL, across a restart of the jobs; a target that becomes unreachable and returns."""
    monkeypatch.setenv("SINK_TEST_PASSWORD", PASSWORD)
    create_topic(broker.bootstrap, topic_name, 1)
    postgres.run("CREATE TABLE counts (word TEXT PRIMARY KEY, n BIGINT, note TEXT DEFAULT 'kept')")
    rows = [{"id": number, "word": word} for number, word in enumerate("abcabd", start=1)]
    produce_json(broker.bootstrap, topic_name, rows[:3])

    def written() -> tuple[list[Any], list[Any], list[Any]]:
        archive = DeltaTable(str(tmp_path / "archive")).to_pyarrow_table().to_pylist()
        files = (tmp_path / "files").glob("*.parquet")
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        counts = postgres.run("SELECT word, n, note FROM counts ORDER BY word")
        return sorted(archive, key=str), sorted(found, key=str), counts

    session = AttachedSession(spark, warehouse)
    session.run(
        source("s", topic_name, broker),
        "CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM s GROUP BY word",
        "CREATE SECRET pw WITH (backend = 'env', name = 'SINK_TEST_PASSWORD')",
        f"CREATE SINK archive FROM s WITH (connector = 'deltalake', location = '{tmp_path}/archive')",
        f"CREATE SINK files AS SELECT id, upper(word) AS word FROM s WHERE id > 1 "
        f"WITH (connector = 'fs', fs.path = '{tmp_path}/files') FORMAT PLAIN ENCODE PARQUET",
        f"CREATE SINK pg FROM counts WITH (connector = 'jdbc', jdbc.url = '{postgres.url}', user = 'postgres', "
        "password = SECRET pw, table.name = 'counts', type = 'upsert', primary_key = 'word')",
        "FLUSH",
    )
    upper = [{"id": row["id"], "word": str(row["word"]).upper()} for row in rows]
    assert written() == (rows[:3], upper[1:3], [("a", 1, "kept"), ("b", 1, "kept"), ("c", 1, "kept")])
    with pytest.raises(SqlError, match="has no PRIMARY KEY or UNIQUE constraint"):
        session.sql(
            f"CREATE SINK other AS SELECT word, id AS n FROM s WITH (connector = 'jdbc', "
            f"jdbc.url = '{postgres.url}', user = 'postgres', password = SECRET pw, table.name = 'counts', "
            "type = 'upsert', primary_key = 'n')"
        )
    before = session.job("archive").run
    session.detach()
    produce_json(broker.bootstrap, topic_name, rows[3:])
    session = AttachedSession(spark, warehouse)
    session.run("FLUSH")
    everything = (rows, upper[1:], [("a", 2, "kept"), ("b", 2, "kept"), ("c", 1, "kept"), ("d", 1, "kept")])
    assert written() == everything
    assert (session.job("archive").run or 0) > (before or 0)
    # The table is renamed away: the sink stalls with the reason, and continues by itself when the table is back.
    postgres.run("ALTER TABLE counts RENAME TO away")
    produce_json(broker.bootstrap, topic_name, [{"id": 7, "word": "d"}])
    wait_until(lambda: session.job("pg").state == "STALLED", "the sink stands still")
    assert "counts" in session.job("pg").reason
    postgres.run("ALTER TABLE away RENAME TO counts")
    wait_until(lambda: ("d", 2, "kept") in postgres.run("SELECT * FROM counts"), "the sink continues")
    session.detach()


@pytest.mark.postgres
def test_rows_that_the_target_refuses(
    session: AttachedSession,
    broker: BrokerInfo,
    topic_name: str,
    postgres: PostgresInfo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused row stops a sink with a message about the row, goes to a separate table, or is written with replaced
    characters."""
    monkeypatch.setenv("SINK_TEST_PASSWORD", PASSWORD)
    create_topic(broker.bootstrap, topic_name, 1)
    postgres.run("CREATE TABLE refusing (id INT PRIMARY KEY, word VARCHAR(5))")
    produce_json(
        broker.bootstrap, topic_name, [{"id": 1, "word": "a"}, {"id": 2, "word": "b\0c"}, {"id": 3, "word": "d"}]
    )
    session.run(
        source("s", topic_name, broker),
        "CREATE SECRET pw WITH (backend = 'env', name = 'SINK_TEST_PASSWORD')",
        f"CREATE SINK pg FROM s WITH (connector = 'jdbc', jdbc.url = '{postgres.url}', user = 'postgres', "
        "password = SECRET pw, table.name = 'refusing', type = 'upsert', primary_key = 'id')",
    )
    wait_until(lambda: session.job("pg").state == "STALLED", "the sink stands still")
    told, _, way = session.job("pg").reason.partition(": ALTER")
    assert told == 'REFUSED column "word" of row (id = 2): PostgreSQL\'s text cannot contain the character NUL (U+0000)'
    session.sql(f"ALTER{way}")
    session.sql("FLUSH")
    assert postgres.run("SELECT * FROM refusing ORDER BY id") == [(1, "a"), (3, "d")]
    rejected = "SELECT id, word, _rw_op, _rw_column, _rw_reason FROM `pg$rejected` ORDER BY id"
    why = "PostgreSQL's text cannot contain the character NUL (U+0000)"
    assert session.sql(rejected) == [(2, "b\0c", "insert", "word", why)]
    assert (session.job("pg").state, session.job("pg").reason) == (
        "RUNNING",
        "1 rows rejected: SELECT * FROM `pg$rejected`",
    )
    session.sql("ALTER SINK pg CONNECTOR WITH (on_error = 'replace')")
    produce_json(broker.bootstrap, topic_name, [{"id": 4, "word": "\0"}, {"id": 5, "word": "longer"}])
    wait_until(lambda: "(id = 5): value too long" in session.job("pg").reason, "the sink stands still again")
    postgres.run("ALTER TABLE refusing ALTER word TYPE VARCHAR(6)")
    # After a repair in the target, a statement retries at once; otherwise the sink retries by itself.
    session.run("PAUSE SINK pg", "RESUME SINK pg", "FLUSH")
    assert postgres.run("SELECT * FROM refusing WHERE id > 3 ORDER BY id") == [(4, "\ufffd"), (5, "longer")]
    figures = {row.name: row.value for row in session.sql("SHOW METRICS") if "object=pg" in row.labels}
    assert figures["rw_sql_sink_rejected_rows_total"] == 1
    session.sql("DROP SINK pg")
    assert not session.spark.catalog.tableExists("`pg$rejected`")


@pytest.mark.postgres
def test_a_row_that_a_later_attempt_writes_is_not_among_the_rejected_ones(
    session: AttachedSession,
    broker: BrokerInfo,
    topic_name: str,
    postgres: PostgresInfo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINK_TEST_PASSWORD", PASSWORD)
    create_topic(broker.bootstrap, topic_name, 1)
    postgres.run("CREATE TABLE widened (id INT PRIMARY KEY, word VARCHAR(2))")
    produce_json(broker.bootstrap, topic_name, [{"id": 1, "word": "a"}, {"id": 2, "word": "long"}])
    write, is_away = JdbcWriter.write, True

    def write_unless_away(writer: JdbcWriter, rows: pa.Table, batch: int) -> None:
        if is_away and rows.num_rows == 1:  # the batch without the refused row
            raise SinkError("it is away")
        write(writer, rows, batch)

    monkeypatch.setattr(JdbcWriter, "write", write_unless_away)
    session.run(
        source("s", topic_name, broker),
        "CREATE SECRET pw WITH (backend = 'env', name = 'SINK_TEST_PASSWORD')",
        f"CREATE SINK pg FROM s WITH (connector = 'jdbc', jdbc.url = '{postgres.url}', user = 'postgres', "
        "password = SECRET pw, table.name = 'widened', type = 'upsert', primary_key = 'id', on_error = 'skip')",
    )
    wait_until(lambda: session.job("pg").reason == "UNREACHABLE it is away", "the rest of the batch fails")
    assert session.sql("SELECT id FROM `pg$rejected`") == [(2,)]
    session.run("PAUSE SINK pg")  # Otherwise, an attempt may refuse the row before ALTER, and write the rest after it.
    postgres.run("ALTER TABLE widened ALTER word TYPE TEXT")
    is_away = False
    session.run("RESUME SINK pg", "FLUSH")
    assert postgres.run("SELECT * FROM widened ORDER BY id") == [(1, "a"), (2, "long")]
    assert session.sql("SELECT id FROM `pg$rejected`") == []
    assert (session.job("pg").state, session.job("pg").reason) == ("RUNNING", "")


def test_a_sink_without_a_snapshot_starts_again_after_its_first_version_was_cleaned_up(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    target = f"{tmp_path}/target"
    produce_json(broker.bootstrap, topic_name, [{"id": 0, "word": "before"}])
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "FLUSH",
        f"CREATE SINK k FROM t WITH (connector = 'deltalake', location = '{target}', type = 'upsert', "
        "snapshot = 'false')",
    )
    for number in (1, 2, 3):
        produce_json(broker.bootstrap, topic_name, [{"id": number, "word": "a"}])
        session.run("FLUSH")
    context = session.attached._runtime.context
    snapshot = context.metastore.snapshot()
    table, sink = snapshot.find("table", "t"), snapshot.find("sink", "k")
    assert isinstance(table, TableRecord)
    assert isinstance(sink, SinkRecord)
    path = context.warehouse.data(table.id, table.generation)
    session.run("PAUSE SINK k")
    begin = sink.starts[0][1]
    DeltaTable(path, version=begin + 1).create_checkpoint()
    for version in range(begin + 1):
        (Path(path) / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)
    session.run("ALTER TABLE t ADD COLUMN more VARCHAR", "RESUME SINK k")
    produce_json(broker.bootstrap, topic_name, [{"id": 4, "word": "b", "more": "m"}])
    session.run("FLUSH")
    assert session.job("k").state == "RUNNING", session.job("k").reason
    assert sorted(DeltaTable(target).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]
