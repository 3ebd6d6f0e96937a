"""A Kafka source's options: valid combinations, and their names in librdkafka and in Spark's reader."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rw_sql.connectors.base import SplitState, UpstreamSplit
from rw_sql.connectors.kafka.properties import admin_properties, call_timeout, producer_properties, spark_options
from rw_sql.connectors.kafka.secrets import hide
from rw_sql.connectors.kafka.sink import KafkaSink
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.connectors.kafka.spark_reader import REQUEST_TIMEOUT, assignment, fetching
from rw_sql.connectors.spec import OptionError, load_sink_spec, load_spec
from rw_sql.errors import SqlError

KAFKA = KafkaConnector()
SPEC = load_spec("kafka")
PLAIN = {"properties.bootstrap.server": "a:9092, b:9093", "topic": "orders"}
LOGIN = {
    **PLAIN,
    "properties.security.protocol": "SASL_SSL",
    "properties.sasl.mechanism": "scram-sha-512",
    "properties.sasl.username": "reader",
    "properties.sasl.password": 'a"b\\c',
}


def test_plain_options_in_both_languages() -> None:
    options = {**PLAIN, "properties.client.id": "x", "group.id.prefix": "g", "properties.message.max.bytes": "2000000"}
    assert admin_properties(SPEC, options) == {
        "bootstrap.servers": "a:9092, b:9093",
        "client.id": "x",
        "message.max.bytes": "2000000",
    }
    assert spark_options(SPEC, options) == {
        "kafka.bootstrap.servers": "a:9092, b:9093",
        "kafka.client.id": "x",
        "groupIdPrefix": "g",
        "kafka.max.partition.fetch.bytes": "2000000",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "1",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.request.timeout.ms": "5000",
        "kafka.default.api.timeout.ms": "5000",
        "kafkaConsumer.pollTimeoutMs": "30000",
    }


def test_a_fixed_group_takes_the_place_of_the_prefix() -> None:
    made = spark_options(SPEC, {**PLAIN, "group.id": "one", "group.id.prefix": "g"})
    assert made["kafka.group.id"] == "one"
    assert "groupIdPrefix" not in made


def test_every_option_of_the_consumer_alone_is_kept_from_the_administrative_client() -> None:
    options = {
        **PLAIN,
        "properties.fetch.wait.max.ms": "5",
        "properties.queued.min.messages": "1",
        "properties.isolation.level": "read_uncommitted",
        "properties.enable.auto.commit": "false",
    }
    KAFKA.check_options(options)
    assert admin_properties(SPEC, options) == {"bootstrap.servers": "a:9092, b:9093"}
    assert spark_options(SPEC, options)["kafka.isolation.level"] == "read_uncommitted"
    assert spark_options(SPEC, options)["kafka.fetch.max.wait.ms"] == "5"


def test_log_in_becomes_a_jaas_line() -> None:
    KAFKA.check_options(LOGIN)
    made = spark_options(SPEC, LOGIN)
    assert made["kafka.security.protocol"] == "SASL_SSL"
    assert made["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert made["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="reader" password="a\\"b\\\\c";'
    )
    assert admin_properties(SPEC, LOGIN)["security.protocol"] == "sasl_ssl"


@pytest.mark.parametrize("password", [" p", "p ", "\tp \t", "p p"])
def test_both_clients_get_the_same_password_with_its_blanks(password: str) -> None:
    options = LOGIN | {"properties.sasl.password": password, "properties.sasl.username": " reader "}
    KAFKA.check_options(options)
    for made in (admin_properties(SPEC, options), producer_properties(load_sink_spec("kafka"), options)):
        assert (made["sasl.username"], made["sasl.password"]) == ("reader", password)
    assert f'username="reader" password="{password}";' in spark_options(SPEC, options)["kafka.sasl.jaas.config"]


def test_the_password_of_a_key_keeps_its_blanks() -> None:
    options = {**PLAIN, "properties.security.protocol": "ssl", "properties.ssl.key.password": " p "}
    assert admin_properties(SPEC, options)["ssl.key.password"] == " p "


@pytest.mark.parametrize("key", ["properties.sasl.username", "properties.sasl.password"])
@pytest.mark.parametrize("value", ["p\n", "p\r\n", "a\nb"])
def test_a_line_end_in_a_login_is_refused(key: str, value: str) -> None:
    """Options are checked before their secrets are read, so a look at the brokers checks the values too."""
    options, message = LOGIN | {key: value}, f'property "{key}" contains a line break'
    for refuses in (KAFKA.check_options, partial(spark_options, SPEC)):
        with pytest.raises(OptionError) as caught:
            refuses(options)
        assert (caught.value.key, caught.value.message) == (key, message)
    for look in (KAFKA.look(options, timeout=1), KafkaSink().look(options, None, timeout=1)):
        assert (look.refused_key, look.error) == (key, message)
        assert "on one line" in (look.hint or "")


def test_kerberos_becomes_a_jaas_line() -> None:
    options = {
        **PLAIN,
        "properties.security.protocol": "sasl_plaintext",
        "properties.sasl.mechanism": "GSSAPI",
        "properties.sasl.kerberos.keytab": "/etc/k",
        "properties.sasl.kerberos.principal": "p@R",
    }
    KAFKA.check_options(options)
    made = spark_options(SPEC, options)
    assert 'keyTab="/etc/k" principal="p@R";' in made["kafka.sasl.jaas.config"]
    assert made["kafka.sasl.kerberos.service.name"] == "kafka"


def test_certificates_become_pem_stores(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("AUTHORITY")
    private = ec.generate_private_key(ec.SECP256R1())
    locked = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "key").write_bytes(locked)
    options = {
        **PLAIN,
        "properties.security.protocol": "ssl",
        "properties.ssl.ca.location": str(tmp_path / "ca"),
        "properties.ssl.certificate.pem": "CERTIFICATE",
        "properties.ssl.key.location": str(tmp_path / "key"),
        "properties.ssl.key.password": "secret",
        "properties.ssl.endpoint.identification.algorithm": "none",
    }
    KAFKA.check_options(options)
    made = spark_options(SPEC, options)
    assert {key: value for key, value in made.items() if ".ssl." in key} == {
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "AUTHORITY",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CERTIFICATE",
        "kafka.ssl.keystore.key": private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    }
    with pytest.raises(OptionError, match="its password is wrong or missing") as caught:
        spark_options(SPEC, {**options, "properties.ssl.key.password": "wrong"})
    assert "wrong'" not in str(caught.value)


def test_secrets_are_references_to_files_for_the_user_alone() -> None:
    hidden = hide(spark_options(SPEC, LOGIN))
    assert "c;" not in str(hidden)
    assert hide(spark_options(SPEC, LOGIN)) == hidden
    assert hide(spark_options(SPEC, PLAIN)) == spark_options(SPEC, PLAIN)
    reference = re.fullmatch(r"\$\{rw_sql:(.+):([0-9a-f]{32})\}", hidden["kafka.sasl.jaas.config"])
    assert reference is not None
    folder = Path(reference[1])
    assert (folder / reference[2]).read_text() == spark_options(SPEC, LOGIN)["kafka.sasl.jaas.config"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / reference[2])] == [0o700, 0o600]
    assert hidden["kafka.config.providers"] == "rw_sql"


def test_secrets_of_killed_processes_are_removed_by_the_next() -> None:
    make = """
import os, signal, sys
from rw_sql.connectors.kafka.secrets import hide
print(hide({"kafka.sasl.jaas.config": "x"})["kafka.sasl.jaas.config"].split(":")[1], flush=True)
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""

    def folder_of(how: str) -> Path:
        done = subprocess.run([sys.executable, "-c", make, how], capture_output=True, text=True, check=False)
        return Path(done.stdout.strip())

    killed = folder_of("die")
    assert killed.is_dir()
    ended = folder_of("end")
    assert not killed.exists()
    assert not ended.exists()


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    options = {**PLAIN, "properties.security.protocol": "ssl", "properties.ssl.ca.location": "/nowhere/ca"}
    with pytest.raises(OptionError) as caught:
        spark_options(SPEC, options)
    assert caught.value.key == "properties.ssl.ca.location"


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"properties.bootstrap.server": "a"}, "properties.bootstrap.server", "must be a list of host:port, not 'a'"),
        ({"properties.bootstrap.server": "a:99999"}, "properties.bootstrap.server", "not 'a:99999'"),
        ({"properties.bootstrap.server": "a:9092,"}, "properties.bootstrap.server", "not ''"),
        ({"topic": "a b"}, "topic", "which is not a topic's name"),
        ({"topic": ".."}, "topic", "which is not a topic's name"),
        ({"scan.startup.mode": "timestamp"}, "scan.startup.mode", 'missing property "scan.startup.timestamp.millis"'),
        ({"scan.startup.timestamp.millis": "5"}, "scan.startup.timestamp.millis", "has no meaning"),
        ({"properties.sasl.username": "u"}, "properties.sasl.username", "has no meaning"),
        ({"properties.ssl.ca.pem": "x"}, "properties.ssl.ca.pem", "has no meaning"),
        (
            {"properties.security.protocol": "sasl_ssl", "properties.sasl.mechanism": "PLAIN"},
            "properties.sasl.mechanism",
            'property "properties.sasl.username" is needed to log in by PLAIN',
        ),
        (
            {"properties.security.protocol": "ssl", "properties.ssl.ca.pem": "x", "properties.ssl.ca.location": "y"},
            "properties.ssl.ca.location",
            "can only set one of properties.ssl.ca.location, properties.ssl.ca.pem",
        ),
        (
            {"properties.security.protocol": "ssl", "properties.ssl.key.pem": "x"},
            "properties.ssl.key.pem",
            'property "properties.ssl.key.pem" needs the client\'s certificate too',
        ),
        (
            {"properties.enable.ssl.certificate.verification": "false"},
            "properties.enable.ssl.certificate.verification",
            "must be true",
        ),
    ],
)
def test_options_that_do_not_fit_together(changes: dict[str, str], key: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        KAFKA.check_options({**PLAIN, **changes})
    assert caught.value.key == key
    assert message in caught.value.message


@pytest.mark.parametrize("server", ["a:1", "10.0.0.1:9092,b-c.d:65535", "[::1]:9092", "SASL_SSL://a:1"])
def test_addresses_that_are_accepted(server: str) -> None:
    KAFKA.check_options({**PLAIN, "properties.bootstrap.server": server})


def test_a_look_takes_no_longer_than_its_timeout() -> None:
    assert call_timeout(SPEC, PLAIN, 10) == 10
    assert call_timeout(SPEC, {"properties.sync.call.timeout": "2s"}, 10) == 2
    assert call_timeout(SPEC, {"properties.sync.call.timeout": "60s"}, 10) == 10


def test_a_request_may_take_longer_than_a_broker_waits_for_records() -> None:
    slow = {**PLAIN, "properties.fetch.wait.max.ms": "20000", "properties.sync.call.timeout": "3s"}
    made = spark_options(SPEC, slow)
    assert (made["kafka.request.timeout.ms"], made["kafka.default.api.timeout.ms"]) == ("21000", "21000")
    assert made["kafkaConsumer.pollTimeoutMs"] == "42000"


@pytest.mark.parametrize("partitions", [1, 2, 8, 64, 500])
@pytest.mark.parametrize("timeout", ["1s", "5s", "8s", "30s"])
def test_a_response_arrives_in_time_at_a_mebibyte_per_second_and_task(partitions: int, timeout: str) -> None:
    limit_ms = int(spark_options(SPEC, {**PLAIN, "properties.sync.call.timeout": timeout})[REQUEST_TIMEOUT])
    fetch = int(fetching(partitions, timeout_ms=limit_ms)["kafka.max.partition.fetch.bytes"])
    assert 1 << 20 <= fetch <= (1 << 20) * limit_ms / 1000


def test_a_response_has_a_minimum_size() -> None:
    assert fetching(1, timeout_ms=600)["kafka.max.partition.fetch.bytes"] == str(1 << 20)


def test_five_seconds_are_enough_for_five_mebibytes_on_any_machine() -> None:
    limit_ms = int(spark_options(SPEC, PLAIN)[REQUEST_TIMEOUT])
    assert fetching(8, timeout_ms=limit_ms)["kafka.max.partition.fetch.bytes"] == str(5 << 20)


def test_where_a_split_begins() -> None:
    split = UpstreamSplit(split="orders:0", start=3, end=9)
    assert KAFKA.start_offset(PLAIN, split, {}) == 3
    assert KAFKA.start_offset({**PLAIN, "scan.startup.mode": "Latest"}, split, {}) == 9
    by_time = {**PLAIN, "scan.startup.mode": "timestamp", "scan.startup.timestamp.millis": "1700000000000"}
    assert KAFKA.start_offset(by_time, split, {"orders:0": 5}) == 5
    assert KAFKA.startup_time(by_time) == 1700000000000
    assert KAFKA.startup_time(PLAIN) is None


@pytest.mark.parametrize(
    ("topic", "written", "split"),
    [
        ("orders", "0", "orders:0"),
        ("orders", "007", "orders:7"),
        ("orders", "orders:12", "orders:12"),
        ("orders", "other.topic:1", "other.topic:1"),
        ("a,b", "b:1", "b:1"),
    ],
)
def test_splits_as_statements_write_them(topic: str, written: str, split: str) -> None:
    assert KAFKA.resolve_split({**PLAIN, "topic": topic}, written) == split
    assert KAFKA.split_topic(split) == split.split(":")[0]


@pytest.mark.parametrize(
    ("topic", "written", "hint"),
    [
        ("a,b", "1", "write the topic too: 'a:1'"),
        ("orders", "x", "a split is named topic:partition, such as 'orders:0'"),
        ("orders", "orders:-1", "a split is named topic:partition, such as 'orders:0'"),
        ("orders", "orders:٣", "a split is named topic:partition, such as 'orders:0'"),
        ("orders", "", "a split is named topic:partition, such as 'orders:0'"),
    ],
)
def test_what_is_no_split(topic: str, written: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        KAFKA.resolve_split({**PLAIN, "topic": topic}, written)
    assert (caught.value.code, caught.value.hint) == ("RW209", hint)


def test_positions_go_to_spark_and_back() -> None:
    positions = {split: SplitState(split=split, offset=at) for split, at in {"b:10": 7, "b:2": 0, "a.b-c:0": 5}.items()}
    assign, starting = assignment(positions)
    assert assign == '{"a.b-c": [0], "b": [2, 10]}'
    assert KAFKA.read_positions(starting) == {"b:10": 7, "b:2": 0, "a.b-c:0": 5}


def test_what_is_fetched_at_a_time_is_shared_by_the_partitions() -> None:
    made = {count: fetching(count, timeout_ms=60_000) for count in (1, 8, 16, 500)}
    bytes_of = {count: options["kafka.max.partition.fetch.bytes"] for count, options in made.items()}
    assert bytes_of == {1: "8388608", 8: "8388608", 16: "4194304", 500: "1048576"}
    polled = {count: options["kafka.max.poll.records"] for count, options in made.items()}
    assert polled == {1: "5000", 8: "5000", 16: "2500", 500: "500"}
    assert "kafka.max.partition.fetch.bytes" not in spark_options(SPEC, PLAIN)
