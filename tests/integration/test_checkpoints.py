"""Checkpoints of plain Structured Streaming, made without rw_sql: moved, continued, and restored."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.errors import SqlError
from rw_sql.runtime.spark.sessions import SparkSessions
from tests.checkpoints.made import checksums_hold, tree
from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    "spark.sql.streaming.fileSource.log.compactInterval": "2",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
}
"""Spark 4's newer formats: named sources in offset log v2, and state whose versions the commit log names.

Lists of files are compacted after two lists, instead of ten by default.
"""


SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}


@dataclass(slots=True)
class Job:
    """A plain streaming job of the user's own: ``read`` makes its result from a session."""

    spark: SparkSession
    checkpoint: Path
    read: Callable[[SparkSession], DataFrame]
    mode: str = "update"
    settings: Mapping[str, str] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)

    def run(self, *, once: bool = False, fails: bool = False) -> list[tuple[Any, ...]]:
        """Starts the job, lets it read all records (or its planned batch alone), and returns the rows that it wrote."""
        rows: list[tuple[Any, ...]] = []

        def write(batch: DataFrame, number: int) -> None:
            if fails:
                raise ValueError("the sink is down")
            self.batches.append(number)
            rows.extend(tuple(row) for row in batch.collect())

        session = self.spark.newSession()
        for key, value in {**SETTINGS, **self.settings}.items():
            session.conf.set(key, value)
        writer = self.read(session).writeStream.outputMode(self.mode).foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = (writer.trigger(once=True) if once else writer.trigger(availableNow=True)).start()
        with pytest.raises(StreamingQueryException, match="the sink is down") if fails else nullcontext():
            query.awaitTermination(60)
        return sorted(rows)

    def newest(self) -> dict[tuple[Any, ...], Any]:
        """Runs the job; returns the newest value of each key that it wrote."""
        return {row[:-1]: row[-1] for row in self.run()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The command's output, and the error with which it ended."""

    out: str
    error: str | None


def rw_sql(*arguments: str) -> Told:
    """The command, without a terminal. Like any other process, it sees only the files of the jobs of this process."""
    done = CliRunner().invoke(app, ["checkpoint", *arguments])
    assert done.exception is None or isinstance(done.exception, SqlError), done.exception
    return Told(out=done.stdout, error=str(done.exception) if done.exception is not None else None)


def set_offsets(job: Job, *arguments: str, allow: str = "duplicates") -> dict[str, str]:
    """Moves a job, restores it, and moves it again; returns the predicted verdict for each moved split."""
    options = ["--assume-stopped", "--yes", "--output", "json", "--watch", "50ms", "--allow", allow]
    command = ["set-offsets", str(job.checkpoint), *arguments, *options]
    before = tree(job.checkpoint)
    assert rw_sql(*command).error is None
    assert tree(job.checkpoint) != before
    undo(job)
    assert tree(job.checkpoint) == before
    done = rw_sql(*command)
    assert done.error is None, done.error
    assert checksums_hold(job.checkpoint)
    told = json.loads(done.out)
    assert told["is_done"]
    return {split["split"]: split["verdict"] for split in told["splits"] if split["verdict"] != "NONE"}


def undo(job: Job) -> None:
    assert rw_sql("undo", str(job.checkpoint), "--assume-stopped", "--yes", "--watch", "50ms").error is None


@pytest.fixture
def spark_with_kafka(spark: SparkSession) -> SparkSession:
    SparkSessions(spark).load(KafkaConnector().spark_packages())
    return spark


def topic(broker: BrokerInfo, name: str, partitions: int = 1) -> str:
    create_topic(broker.bootstrap, name, partitions)
    return name


def send(broker: BrokerInfo, name: str, values: Sequence[str], partition: int = 0) -> None:
    produce(broker.bootstrap, name, [Record(value=value.encode(), partition=partition) for value in values])


def values_of(broker: BrokerInfo, *topics: str) -> Callable[[SparkSession], DataFrame]:
    def read(session: SparkSession) -> DataFrame:
        reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
        return reader.load().select(f.col("value").cast("string").alias("value"))

    return read


def counted(read: Callable[[SparkSession], DataFrame]) -> Callable[[SparkSession], DataFrame]:
    return lambda session: read(session).groupBy("value").count()


def test_a_running_count(spark_with_kafka: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path) -> None:
    """Moved back, undone, moved back for good, and forward: the counts are the previous ones plus the predicted
    ones."""
    topic(broker, topic_name, 2)
    send(broker, topic_name, list("aabbb"), 0)
    send(broker, topic_name, list("cccc"), 1)
    job = Job(spark_with_kafka, tmp_path / "c", counted(values_of(broker, topic_name)))
    assert job.newest() == {("a",): 2, ("b",): 3, ("c",): 4}

    bootstrap = ("--bootstrap", broker.bootstrap)
    assert set_offsets(job, "--set", f"{topic_name}:0=1", *bootstrap) == {f"{topic_name}:0": "DUPLICATES 4"}
    undo(job)
    send(broker, topic_name, ["a"], 0)
    assert job.newest() == {("a",): 3}

    assert set_offsets(job, "--shift-by", "-2", "--split", f"{topic_name}:0", *bootstrap) == {
        f"{topic_name}:0": "DUPLICATES 2"
    }
    assert job.newest() == {("a",): 4, ("b",): 4}

    send(broker, topic_name, list("xyz"), 1)
    assert set_offsets(job, "--set", f"{topic_name}:1=6", *bootstrap, allow="gaps") == {f"{topic_name}:1": "GAP 2"}
    assert job.newest() == {("z",): 1}
    assert job.batches == list(range(4)), "a batch number that a sink has seen came again"
    refused = rw_sql("undo", str(job.checkpoint), "--assume-stopped", "--yes")
    assert "the job continued after operation 6" in str(refused.error)


def test_a_count_moves_to_another_topic(
    spark_with_kafka: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    old, new = topic(broker, f"{topic_name}.old"), topic(broker, f"{topic_name}.new", 2)
    send(broker, old, list("aab"))
    send(broker, new, list("ab"), 0)
    send(broker, new, list("bb"), 1)
    job = Job(spark_with_kafka, tmp_path / "c", counted(values_of(broker, old)))
    job.run()
    offsets = tmp_path / "offsets.csv"
    offsets.write_text(f"{new},0,1\n{new},1,0\n", encoding="utf-8")
    verdicts = set_offsets(job, "--file", str(offsets), "--exactly", "--bootstrap", broker.bootstrap)
    assert verdicts[f"{new}:0"] == "UNKNOWN (other topic)"
    job.read = counted(values_of(broker, new))
    assert job.newest() == {("b",): 4}


def test_a_windowed_aggregate_with_a_watermark(
    spark_with_kafka: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    """Records before the watermark are dropped, as predicted; those of the open window count again."""
    topic(broker, topic_name)

    def read(session: SparkSession) -> DataFrame:
        events = values_of(broker, topic_name)(session).select(f.col("value").cast("timestamp").alias("at"))
        windows = events.withWatermark("at", "10 minutes").groupBy(f.window("at", "1 hour"))
        return windows.count().select(f.date_format("window.start", "HH").alias("hour"), "count")

    job = Job(spark_with_kafka, tmp_path / "c", read)
    send(
        broker,
        topic_name,
        [f"2026-01-31 {time}Z" for time in ("08:10:00", "08:20:00", "09:05:00", "09:15:00", "10:30:00")],
    )
    assert job.newest() == {("08",): 2, ("09",): 2, ("10",): 1}
    send(broker, topic_name, ["2026-01-31 10:40:00Z"])
    assert job.newest() == {("10",): 2}

    shown = json.loads(rw_sql("show", str(job.checkpoint), "--output", "json").out)
    assert shown["state"] == ["aggregation"]
    assert shown["watermark_ms"] > 0
    done = rw_sql("set-offsets", str(job.checkpoint), "--set", "0=0", "--dry-run", "--output", "json")
    assert any(
        "LATE: records before the watermark 2026-01-31 10:30" in note for note in json.loads(done.out)["notices"]
    )

    assert set_offsets(job, "--to-earliest", "--bootstrap", broker.bootstrap) == {f"{topic_name}:0": "DUPLICATES 6"}
    assert job.newest() == {("10",): 4}


def test_a_stream_stream_join(
    spark_with_kafka: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    """One of the two sources moves back: its records join the other's in the kept state."""
    left, right = topic(broker, f"{topic_name}.left"), topic(broker, f"{topic_name}.right")

    def read(session: SparkSession) -> DataFrame:
        ours = values_of(broker, left)(session)
        theirs = values_of(broker, right)(session).withColumnRenamed("value", "other")
        return ours.join(theirs, f.substring("value", 1, 1) == f.substring("other", 1, 1))

    job = Job(spark_with_kafka, tmp_path / "c", read, mode="append")
    send(broker, left, ["a1", "b1"])
    send(broker, right, ["a9", "b9"])
    assert job.run() == [("a1", "a9"), ("b1", "b9")]
    assert set_offsets(job, "--set", f"{right}:0=1", "--bootstrap", broker.bootstrap) == {f"{right}:0": "DUPLICATES 1"}
    send(broker, left, ["a2"])
    # a9 is still in the state once; b9 is read again and joins b1 of the state.
    assert job.run() == [("a2", "a9"), ("b1", "b9")]


def test_a_delta_source(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    for version in range(3):
        _append(table, version, 10 * (version + 1))
    job = Job(
        spark,
        tmp_path / "c",
        lambda session: session.readStream.format("delta").load(table).groupBy("version").count(),
    )
    assert job.newest() == {(0,): 10, (1,): 20, (2,): 30}
    _append(table, 3, 40)
    assert job.newest() == {(3,): 40}

    assert set_offsets(job, "--set", "version=2", "--table", table) == {"version": "DUPLICATES 70"}
    undo(job)
    assert job.run() == []
    assert set_offsets(job, "--set", "version=2", "--table", table) == {"version": "DUPLICATES 70"}
    assert job.newest() == {(2,): 60, (3,): 80}
    _append(table, 4, 5)
    _append(table, 5, 6)
    assert set_offsets(job, "--set", "version=5", "--table", table, allow="gaps") == {"version": "GAP 5"}
    assert job.newest() == {(5,): 6}


def _append(table: str, version: int, rows: int) -> None:
    """One version of a table, in one file, by delta-rs."""
    write_deltalake(table, pa.table({"version": [version] * rows, "id": list(range(rows))}), mode="append")


def test_a_named_file_source_on_rocksdb(spark: SparkSession, tmp_path: Path) -> None:
    """Offset log v2, and state whose checkpoints the commit log names."""
    folder = tmp_path / "in"
    folder.mkdir()

    def read(session: SparkSession) -> DataFrame:
        named: Any = session.readStream
        files = named.name("arrivals").schema("value string").option("maxFilesPerTrigger", 1)
        counted: DataFrame = files.text(str(folder)).groupBy("value").count()
        return counted

    job = Job(spark, tmp_path / "c", read, settings=ROCKS)
    for number, value in enumerate("abc"):
        (folder / f"{number}.txt").write_text(value, encoding="utf-8")
        job.run()
    assert (job.checkpoint / "offsets" / "2").read_text(encoding="utf-8").startswith("v2\n")
    assert set_offsets(job, "--set", "list=2") == {"list": "UNKNOWN (reads 1 file again)"}
    assert job.newest() == {("c",): 2}
    assert set_offsets(job, "--to-earliest") == {"list": "UNKNOWN (reads 3 files again)"}
    (folder / "3.txt").write_text("d", encoding="utf-8")
    assert job.newest() == {("a",): 2, ("b",): 2, ("c",): 3, ("d",): 1}


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[StreamingQuery, Path]]:
    """A query that commits a batch five times a second."""
    checkpoint = tmp_path / "live"
    table = str(tmp_path / "t")
    _append(table, 0, 10)
    numbers = spark.newSession().readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = spark.newSession().readStream.format("delta").load(table).select(f.lit(None).cast("timestamp"), "id")
    writer = numbers.union(rows).writeStream.format("noop").queryName("live")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="200 milliseconds").start()
    wait_until(lambda: (checkpoint / "commits" / "1").exists(), "it committed two batches")
    yield query, checkpoint
    query.stop()


def test_a_live_checkpoint(session: AttachedSession, live: tuple[StreamingQuery, Path]) -> None:
    """The process that runs it gets a refusal with its name, and any other process a refusal because its files change.
    Once stopped, the checkpoint is moved."""
    query, checkpoint = live
    session.allow_unsafe()
    statement = f"INJECT CHECKPOINT OFFSETS '{checkpoint}' VALUES ('version' = 0) WITH (watch = '100ms')"
    with pytest.raises(SqlError, match='query "live" uses checkpoint') as caught:
        session.sql(statement)
    assert caught.value.code == "RW321"
    meanwhile = rw_sql(
        "set-offsets", str(checkpoint), "--set", "version=0", "--yes", "--assume-stopped", "--allow", "duplicates"
    )
    assert any(told in str(meanwhile.error) for told in ("RW321: a job is using", "planned but not committed"))
    assert query.exception() is None
    assert not session.questions

    query.stop()
    _settle(checkpoint)
    before = session.epoch()
    session.answer(False)
    with pytest.raises(SqlError, match="was not confirmed"):
        session.sql(statement)
    assert "confirming also asserts that the job that uses this checkpoint is stopped" in session.questions[-1].preview
    session.answer(True)
    (injected,) = session.sql(statement)
    assert (injected.change, injected.detail) == ("INJECTED", "version at 0 (was 1)")
    assert session.epoch() == before + 1
    shown = {row.split: row.next for row in session.sql(f"SHOW CHECKPOINT '{checkpoint}'")}
    assert shown["version"] == 0
    newest = session.sql("SHOW UNSAFE OPERATIONS")[0]
    assert (newest.kind, newest.outcome) == ("INJECT CHECKPOINT OFFSETS", "applied")


def _settle(checkpoint: Path) -> None:
    """A query that was stopped within a batch leaves it planned; this helper marks it as committed."""
    planned = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdigit())
    for file in ("commits/{}", "commits/.{}.crc"):
        source = checkpoint / file.format(planned - 1)
        target = checkpoint / file.format(planned)
        if not target.exists():
            target.write_bytes(source.read_bytes())


def test_an_uncommitted_batch_is_finished_first(
    spark_with_kafka: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    topic(broker, topic_name)
    send(broker, topic_name, list("ab"))
    job = Job(spark_with_kafka, tmp_path / "c", counted(values_of(broker, topic_name)))
    job.run()
    send(broker, topic_name, list("c"))
    job.run(fails=True)
    refused = rw_sql("set-offsets", str(job.checkpoint), "--set", "0=0", "--yes", "--assume-stopped")
    assert "RW322: batch 1 of checkpoint" in str(refused.error)
    send(broker, topic_name, list("d"))
    assert job.run(once=True) == [("c", 1)]
    set_offsets(job, "--set", "0=2", "--bootstrap", broker.bootstrap)
    assert job.newest() == {("c",): 2, ("d",): 1}
