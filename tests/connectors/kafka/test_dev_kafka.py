"""``rw-sql dev kafka`` on a real broker."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.servers.command import dev_app
from rw_sql.cli.servers.kafka_broker import is_running, start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import create_topic, produce, topics
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.errors import SqlError
from rw_sql.runtime.spark.jar_cache import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = pytest.mark.kafka

runner = CliRunner()


def run(*words: str, text: str | None = None) -> str:
    done = runner.invoke(dev_app, ["kafka", *words], input=text, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.long
def test_a_broker_s_start_and_end(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path / "kafka"))
    first = run("start", "--port", "0", *folder)
    assert "is running: cluster" in first
    info = is_running(tmp_path / "kafka")
    assert info is not None
    assert "was already running" in run("start", "--port", "0", *folder)
    run("produce", "t", "--create", "2", *folder, text='{"id": 1}\n\n{"id": 2}\n')
    assert run("stop", *folder) == "stopped\n"
    assert is_running(tmp_path / "kafka") is None
    assert run("stop", *folder) == "no broker was running\n"
    again = start_broker(tmp_path / "kafka", port=0)
    assert (again.bootstrap, again.cluster_id) == (info.bootstrap, info.cluster_id)
    assert [(topic.name, topic.partitions, topic.records) for topic in topics(again.bootstrap)] == [("t", 2, 2)]
    assert stop_broker(tmp_path / "kafka")


def features(log: bytes) -> dict[str, int]:
    """The levels of a cluster's features, by the records of its metadata log."""
    found = re.finditer(rb"\x01\x0c\x00.([a-z.]+)(\x00[\x00-\x7f])", log)
    return {name.decode(): int.from_bytes(level) for name, level in (record.groups() for record in found)}


@pytest.mark.long
def test_a_later_folder_is_prepared_without_kafkas_program_and_its_cluster_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache := tmp_path / "cache" / "rw_sql").mkdir(parents=True)
    for known in cache_folder().glob("*.classpath"):  # otherwise Ivy resolves the jars again
        shutil.copy(known, cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    for name in ("first", "second"):
        info = start_broker(tmp_path / name, port=0)
        try:
            create_topic(info.bootstrap, "t")
            assert produce(info.bootstrap, "t", [b"x"]) == 1
        finally:
            stop_broker(tmp_path / name)
        data = tmp_path / name / "data"
        assert f"cluster.id={info.cluster_id}\n" in (data / "meta.properties").read_text()
        found.append(features((data / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()))
        # Kafka's program writes the times of its records, so equal bytes are a copy.
        (kept,) = cache.glob("*.checkpoint")
        assert (data / "bootstrap.checkpoint").read_bytes() == kept.read_bytes()
    assert found[0] == found[1]
    assert found[0]["metadata.version"] > 0
    assert found[0]["transaction.version"] > 0


def test_lines_are_placed_by_a_field(broker: BrokerInfo, topic_name: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.json"
    lines.write_text("".join(f'{{"id": {number}, "name": "n{number % 5}"}}\n' for number in range(30)))
    at = ("--bootstrap", broker.bootstrap)
    written = run("produce", topic_name, str(lines), "--create", "3", "--key", "name", "--partition-by", "id", *at)
    assert written == f"30 records written to {topic_name}\n"
    upstream = KafkaConnector().look({"properties.bootstrap.server": broker.bootstrap, "topic": topic_name})
    assert [split.end for split in upstream.splits.values()] == [10, 10, 10]
    listed = run("topics", "--grow", topic_name, "--partitions", "5", *at)
    # The width of the first column follows the longest topic, of whatever test.
    assert f"{topic_name} 5 30" in [" ".join(line.split()) for line in listed.splitlines()]
    assert topic_name not in run("topics", "--delete", topic_name, *at)


@pytest.mark.parametrize(
    ("line", "message"),
    [('{"id": 1}', 'line 1 has no field "name"'), ("[1]", "is not a JSON object"), ("{", "line 1 is not JSON")],
)
def test_lines_without_the_field(broker: BrokerInfo, topic_name: str, line: str, message: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    with pytest.raises(SqlError, match=message):
        run("produce", topic_name, "--key", "name", "--bootstrap", broker.bootstrap, text=line + "\n")


def test_topics_that_are_missing_or_there(broker: BrokerInfo, topic_name: str) -> None:
    with pytest.raises(SqlError, match=f'topic "{topic_name}" does not exist'):
        produce(broker.bootstrap, topic_name, [b"x"])
    create_topic(broker.bootstrap, topic_name)
    with pytest.raises(SqlError, match=f'topic "{topic_name}" already exists'):
        create_topic(broker.bootstrap, topic_name)


def test_a_broker_that_cannot_start_says_why(tmp_path: Path, broker: BrokerInfo) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    with pytest.raises(SqlError, match=f"port {port} is taken by another process"):
        start_broker(tmp_path / "second", port=port)
    with pytest.raises(SqlError) as caught:
        start_broker(tmp_path / "third", port=0, extra={"num.io.threads": "none"})
    assert caught.value.code == "RW401"
    assert caught.value.detail
    assert is_running(tmp_path / "third") is None
