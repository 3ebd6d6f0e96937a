"""Readers in a real Spark: exactly the given splits, from the given positions, over every kind of connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.kafka.source import KafkaConnector
from tests.support.certificates import issue
from tests.support.secured import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

READER_TYPES = {
    "_rw_split": "string",
    "_rw_offset": "bigint",
    "key": "binary",
    "value": "binary",
    "partition": "string",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}


class Read(Protocol):
    """Reads all there is through a connector."""

    def __call__(self, connector: str, options: dict[str, str], positions: dict[str, int], **more: Any) -> Any: ...


@pytest.fixture(scope="module")
def read() -> Iterator[Read]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("spark_reads.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    to, back = process.stdin, process.stdout
    assert to is not None
    assert back is not None

    def ask(connector: str, options: dict[str, str], positions: dict[str, int], **more: Any) -> Any:
        return _asked(
            to,
            back,
            {
                "connector": connector,
                "options": options,
                "positions": positions,
                "max_records": None,
                "with_headers": False,
                "columns": None,
                **more,
            },
        )

    yield ask
    to.close()
    process.wait(60)


def _asked(to: IO[str], back: IO[str], request: dict[str, Any]) -> Any:
    to.write(json.dumps(request) + "\n")
    to.flush()
    return json.loads(back.readline())


@pytest.mark.long
def test_where_a_reader_begins_is_said_as_spark_says_it(read: Read, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, [Record(value=str(n).encode(), partition=n % 2) for n in range(8)])
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    positions = {f"{topic_name}:0": 3, f"{topic_name}:1": 1}
    told = KafkaConnector().beginning(positions)
    assert told is not None
    of_spark = read("kafka", options, positions)["beginning"]
    assert of_spark.splitlines()[0] == told.splitlines()[0]
    assert json.loads(of_spark.splitlines()[1]) == json.loads(told.splitlines()[1])
    # Spark begins there, and does not query the start again.
    answer = read("kafka", options, dict.fromkeys(positions, 0), beginning=told)
    rows = sorted((row["_rw_split"], row["_rw_offset"]) for batch in answer["batches"] for row in batch)
    assert rows == [(f"{topic_name}:0", 3), *((f"{topic_name}:1", offset) for offset in (1, 2, 3))]


@pytest.mark.long
def test_kafka_reads_the_given_splits_from_their_positions(read: Read, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 3)
    records = [
        Record(value=str(n).encode(), key=b"k", partition=n % 3, headers=(("h", b"x"),), timestamp_ms=1_700_000_000_000)
        for n in range(30)
    ]
    produce(broker.bootstrap, topic_name, records)
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    positions = {f"{topic_name}:0": 8, f"{topic_name}:2": 5}
    answer = read("kafka", options, positions, with_headers=True, max_records=3)
    rows = [row for batch in answer["batches"] for row in batch]
    assert max(len(batch) for batch in answer["batches"]) <= 3
    assert answer["types"] == READER_TYPES
    assert answer["end"] == {f"{topic_name}:0": 10, f"{topic_name}:2": 10}
    assert sorted((row["_rw_split"], row["_rw_offset"], row["value"]) for row in rows) == sorted(
        [(f"{topic_name}:0", n, str(3 * n)) for n in (8, 9)]
        + [(f"{topic_name}:2", n, str(3 * n + 2)) for n in range(5, 10)]
    )
    assert rows[0] | {"_rw_split": "", "_rw_offset": 0, "value": "", "partition": ""} == {
        "_rw_split": "",
        "_rw_offset": 0,
        "key": "k",
        "value": "",
        "partition": "",
        "timestamp": "2023-11-14 22:13:20",
        "headers": [{"key": "h", "value": "x"}],
    }
    (plain,) = read("kafka", options, {f"{topic_name}:0": 9})["batches"][0]
    assert (plain["partition"], plain["headers"]) == ("0", None)


def test_a_reader_that_reaches_no_broker_ends_by_itself(read: Read) -> None:
    options = {"properties.bootstrap.server": "127.0.0.1:1", "topic": "t", "properties.sync.call.timeout": "500ms"}
    began = time.monotonic()
    answer = read("kafka", options, {"t:0": 0})
    assert "Timed out" in answer["error"]
    assert time.monotonic() - began < 60


@pytest.mark.long
def test_datagen_makes_its_rows_in_spark(read: Read) -> None:
    options = {"datagen.rows.total": "1000", "datagen.split.num": "4", "fields.id.kind": "sequence"}
    answer = read("datagen", options, {"4-0": 0, "4-3": 100}, max_records=90, columns={"id": "BIGINT"})
    rows = [row for batch in answer["batches"] for row in batch]
    assert answer["types"] == READER_TYPES
    assert answer["end"] == {"4-0": 250, "4-3": 250}
    assert all(len(batch) <= 90 for batch in answer["batches"])
    assert [
        json.loads(row["value"])["id"] for row in sorted(rows, key=lambda row: (row["_rw_split"], row["_rw_offset"]))
    ] == [
        *range(0, 1000, 4),
        *range(403, 1000, 4),
    ]
    again = read("datagen", options, {"4-3": 200}, columns={"id": "BIGINT"})["batches"]
    assert [row for batch in again for row in batch] == sorted(
        (row for row in rows if row["_rw_split"] == "4-3" and row["_rw_offset"] >= 200),
        key=lambda row: row["_rw_offset"],
    )


def _login(secured: Secured, how: str) -> dict[str, str]:
    authority = {"properties.ssl.ca.pem": secured.authority.certificate_pem, "topic": "events"}
    by_password = {
        "properties.bootstrap.server": secured.by_password,
        "properties.security.protocol": "sasl_ssl",
        "properties.sasl.password": PASSWORD,
    }
    by_certificate = {
        **authority,
        "properties.bootstrap.server": secured.by_certificate,
        "properties.security.protocol": "ssl",
    }
    match how:
        case "scram":
            return {
                **authority,
                **by_password,
                "properties.sasl.mechanism": "SCRAM-SHA-512",
                "properties.sasl.username": "scram",
            }
        case "plain":
            return {
                **by_password,
                "topic": "events",
                "properties.ssl.ca.location": str(secured.authority_file),
                "properties.sasl.mechanism": "PLAIN",
                "properties.sasl.username": "plain",
            }
        case "certificate with a locked key":
            one = issue(secured.authority, "client")
            return {
                **by_certificate,
                "properties.ssl.certificate.pem": one.certificate_pem,
                "properties.ssl.key.pem": one.key_pem(password="locked"),
                "properties.ssl.key.password": "locked",
            }
        case _:
            one = issue(secured.authority, "client")
            return {
                **by_certificate,
                "properties.ssl.certificate.pem": one.certificate_pem,
                "properties.ssl.key.pem": one.key_pem(is_traditional=True),
            }


@pytest.mark.parametrize(
    "how", ["scram", "plain", "certificate with a locked key", "certificate with a traditional key"]
)
def test_both_clients_log_in(read: Read, secured: Secured, how: str) -> None:
    options = _login(secured, how)
    kafka = KafkaConnector()
    kafka.check_options(options)
    upstream = kafka.look(options)
    assert upstream.error is None
    assert {split: found.end for split, found in upstream.splits.items()} == {"events:0": 5, "events:1": 5}
    answer = read("kafka", options, {"events:0": 3, "events:1": 0})
    assert answer.get("error") is None
    assert sorted(int(row["value"]) for batch in answer["batches"] for row in batch) == [1, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("how", "changes", "said"),
    [
        ("scram", {"properties.sasl.password": "no"}, "Authentication failed"),
        ("scram", {"properties.ssl.ca.pem": None}, "certificate verify failed"),
        ("certificate", {"properties.ssl.key.pem": None, "properties.ssl.certificate.pem": None}, "alert"),
        (
            "certificate",
            {
                "properties.security.protocol": None,
                "properties.ssl.ca.pem": None,
                "properties.ssl.key.pem": None,
                "properties.ssl.certificate.pem": None,
            },
            "closed at once: check properties.security.protocol",
        ),
    ],
)
def test_what_keeps_a_client_out_is_reported(
    secured: Secured, how: str, changes: dict[str, str | None], said: str
) -> None:
    options = {key: value for key, value in {**_login(secured, how), **changes}.items() if value is not None}
    error = KafkaConnector().look(options).error
    assert error is not None
    assert said in error
    assert PASSWORD not in error


def test_tls_where_the_broker_has_none_is_reported(secured: Secured) -> None:
    error = KafkaConnector().look({**_login(secured, "scram"), "properties.bootstrap.server": secured.plain}).error
    assert error == f"{secured.plain}: Broker does not support SSL connections: check properties.security.protocol"
