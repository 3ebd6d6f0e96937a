"""The MQTT connector on a real broker, without Spark: nothing is lost, and acknowledged only after a commit."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.mqtt.session import SESSIONS, MqttError, Session
from rw_sql.connectors.mqtt.source import MqttConnector
from rw_sql.errors import SqlError
from tests.support.mqtt_broker import MqttBroker, mqtt_running
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.mqtt

MQTT = MqttConnector()


def options(broker: MqttBroker, topic: str, **more: str) -> dict[str, str]:
    made = {"url": broker.url, "topic": topic, **more}
    MQTT.check_options(made)
    return MQTT.filled_in(made, uuid4().hex[:12])


class Reader:
    """A source's reader: it takes what came, commits it, and acknowledges it. ``die`` is a kill."""

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        self.offset = 0
        self.rows: list[dict[str, Any]] = []
        self.feed: Any = None

    def start(self) -> None:
        self.feed = MQTT.range_feed(self.given, {"0": SplitState(split="0", offset=self.offset)}, max_records=None)

    @property
    def session(self) -> Session:
        found: Session = self.feed._session
        return found

    def read(self, count: int, *, is_acknowledged: bool = True) -> None:
        """Commits the next messages, at least so many."""
        wait_until(lambda: self.session.end >= self.offset + count, f"{count} messages come")
        (stretch,) = self.feed.stretches(self.given, {"0": SplitState(split="0", offset=self.offset)})
        table = self.session.table(stretch.start, stretch.end)
        assert table is not None
        self.rows += table.to_pylist()
        self.offset = stretch.end
        if is_acknowledged:
            self.feed.committed({"0": (stretch.start, stretch.end)})

    def die(self) -> None:
        """Ends the connection without a word, as a kill does."""
        self.session._is_closed = True
        self.session._client._sock_close()
        self.session._client.loop_stop()
        SESSIONS.drop(self.session)

    def stop(self) -> None:
        self.feed.close()

    @property
    def values(self) -> list[bytes]:
        return [row["value"] for row in self.rows]


@pytest.fixture
def topic() -> str:
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
def reader(mqtt_broker: MqttBroker, topic: str) -> Iterator[Reader]:
    made = Reader(options(mqtt_broker, f"{topic}/#", inflight_messages="1000"))
    made.start()
    yield made
    made.stop()


def test_each_message_is_acknowledged_after_its_commit(mqtt_broker: MqttBroker, topic: str, reader: Reader) -> None:
    mqtt_broker.publish(f"{topic}/a", [b"%d" % number for number in range(50)])
    reader.read(50)
    mqtt_broker.publish(f"{topic}/b/c", [b"%d" % number for number in range(50, 80)])
    # A kill after the commit and before the acknowledgement: these messages come again.
    reader.read(30, is_acknowledged=False)
    reader.die()
    reader.start()
    reader.read(30)
    assert reader.values == [b"%d" % number for number in [*range(80), *range(50, 80)]]
    # A kill before the commit: nothing is lost, nothing doubled.
    mqtt_broker.publish(f"{topic}/a", [b"%d" % number for number in range(80, 100)])
    wait_until(lambda: reader.session.end == reader.offset + 20, "they come")
    reader.die()
    # While nobody reads, the broker keeps what comes.
    mqtt_broker.publish(f"{topic}/a", [b"%d" % number for number in range(100, 120)])
    reader.start()
    reader.read(40)
    assert reader.values[110:] == [b"%d" % number for number in range(80, 120)]
    assert [row["_rw_offset"] for row in reader.rows] == list(range(150))
    assert {row["partition"] for row in reader.rows} == {f"{topic}/a", f"{topic}/b/c"}
    # Acknowledged messages never come again.
    reader.stop()
    reader.start()
    mqtt_broker.publish(f"{topic}/a", [b"last"])
    reader.read(1)
    assert reader.values[150:] == [b"last"]


def test_topics_with_wildcards(mqtt_broker: MqttBroker, topic: str) -> None:
    reader = Reader(options(mqtt_broker, f"{topic}/+/x, {topic}/only"))
    reader.start()
    for name in ("a/x", "only", "a/y", "a/b/x", "b/x"):
        mqtt_broker.publish(f"{topic}/{name}", [name.encode()])
    reader.read(3)
    reader.stop()
    assert reader.values == [b"a/x", b"only", b"b/x"]


def test_topics_that_are_no_longer_named_are_left_out(mqtt_broker: MqttBroker, topic: str) -> None:
    given = options(mqtt_broker, f"{topic}/old, {topic}/both")
    reader = Reader(given)
    reader.start()
    mqtt_broker.publish(f"{topic}/old", [b"1"])
    reader.read(1)
    reader.stop()
    reader.given = given | {"topic": f"{topic}/both, {topic}/new, $share/group/{topic}/+/shared"}
    reader.start()
    mqtt_broker.publish(f"{topic}/old", [b"2"])
    mqtt_broker.publish(f"{topic}/x/shared", [b"3"])
    mqtt_broker.publish(f"{topic}/both", [b"4"])
    mqtt_broker.publish(f"{topic}/new", [b"5"])
    reader.read(3)
    reader.stop()
    assert sorted(reader.values) == [b"1", b"3", b"4", b"5"]
    # They were acknowledged: a source that names the old topic again does not get them.
    reader.given = given
    reader.start()
    mqtt_broker.publish(f"{topic}/old", [b"6"])
    reader.read(1)
    reader.stop()
    assert reader.values[-1:] == [b"6"]


def test_retained_messages_come_once(mqtt_broker: MqttBroker, topic: str) -> None:
    mqtt_broker.publish(topic, [b"kept"], retain=True)
    reader = Reader(options(mqtt_broker, topic))
    reader.start()
    reader.read(1)
    reader.stop()
    reader.start()
    mqtt_broker.publish(topic, [b"new"])
    reader.read(1)
    reader.stop()
    assert reader.values == [b"kept", b"new"]


def _has_end(reader: Reader, end: int) -> bool:
    return reader.session.end == end


def _has_ended(reader: Reader) -> bool:
    return reader.session.error is not None


def test_what_a_broker_loses(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    for is_persistent in (True, False):
        with mqtt_running(is_persistent=is_persistent) as broker:
            reader = Reader(options(broker, topic))
            reader.start()
            broker.publish(topic, [b"1"])
            reader.read(1)
            broker.publish(topic, [b"2"])
            wait_until(partial(_has_end, reader, 2), "it comes")
            broker.stop()
            wait_until(partial(_has_ended, reader), "the end is noticed")
            # What came is still read; then the run ends.
            reader.read(1, is_acknowledged=False)
            with pytest.raises(OSError, match="the connection ended"):
                reader.feed.stretches(reader.given, {"0": SplitState(split="0", offset=reader.offset)})
            reader.stop()
            with pytest.raises(OSError, match="connection refused"):
                reader.start()
            broker.start()
            with caplog.at_level(logging.WARNING, "rw_sql"):
                caplog.clear()
                reader.start()
            broker.publish(topic, [b"3"])
            reader.read(2 if is_persistent else 1)
            reader.stop()
            assert reader.values == ([b"1", b"2", b"2", b"3"] if is_persistent else [b"1", b"2", b"3"])
            assert ("has lost the session" in caplog.text) is not is_persistent


def test_a_second_client_takes_the_session(mqtt_broker: MqttBroker, topic: str) -> None:
    given = options(mqtt_broker, topic)
    first, second = Reader(given), Reader(given)
    first.start()
    second.start()
    wait_until(lambda: first.session.error is not None, "the first one is told")
    with pytest.raises(OSError, match="the connection ended"):
        first.feed.stretches(given, {"0": SplitState(split="0", offset=0)})
    mqtt_broker.publish(topic, [b"1"])
    second.read(1)
    first.stop()
    assert SESSIONS.get(given["client_id"]) is second.session
    second.stop()


def test_a_clean_start_forgets(mqtt_broker: MqttBroker, topic: str) -> None:
    reader = Reader(options(mqtt_broker, topic, clean_start="true"))
    reader.start()
    reader.stop()
    mqtt_broker.publish(topic, [b"1"])
    reader.start()
    mqtt_broker.publish(topic, [b"2"])
    reader.read(1)
    reader.stop()
    assert reader.values == [b"2"]


def test_a_look(mqtt_broker: MqttBroker, topic: str) -> None:
    seen = MQTT.look(options(mqtt_broker, topic))
    assert seen.is_reachable
    assert list(seen.splits) == ["0"]
    away = MQTT.look({"url": "tcp://127.0.0.1:1", "topic": topic})
    assert away.error == "cannot connect to 127.0.0.1:1 (connection refused)"


def test_a_login() -> None:
    with mqtt_running(login=("u", "right")) as broker:
        right = options(broker, "t", username="u", password="right")
        assert MQTT.look(right).is_reachable
        wrong = MQTT.look({**right, "client_id": "x", "password": "wrong"}).error
        assert wrong is not None
        assert "not authorized" in wrong
        assert "wrong" not in wrong.replace("not authorized", "")
        reader = Reader(right)
        reader.start()
        broker.publish("t", [b"1"])
        reader.read(1)
        reader.stop()


def test_encrypted_connections(tmp_path: Any) -> None:
    import subprocess

    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        check=True,
        capture_output=True,
    )  # fmt: skip
    with mqtt_running() as plain:
        port = plain.port
    config = f"listener {port} 127.0.0.1\ncertfile {tmp_path / 'cert'}\nkeyfile {tmp_path / 'key'}\n"
    with mqtt_running(config=config):
        url = f"ssl://127.0.0.1:{port}"
        for ca in (str(tmp_path / "cert"), f"fs://{tmp_path / 'cert'}", (tmp_path / "cert").read_text()):
            assert MQTT.look({"url": url, "topic": "t", "tls.ca": ca}).error is None
        error = MQTT.look({"url": url, "topic": "t"}).error
        assert error is not None
        assert "certificate" in error


def test_a_session_that_cannot_be_had(mqtt_broker: MqttBroker) -> None:
    session = Session({"url": "tcp://127.0.0.1:1", "topic": "t"}, "x")
    with pytest.raises(MqttError):
        session.open(0)
    assert session.table(0, 1) is None


def test_a_broker_without_qos_1_is_refused(topic: str) -> None:
    with mqtt_running(config="max_qos 0") as broker:
        given = options(broker, topic)
        assert "the broker offers only QoS 0" in str(MQTT.look(given).error)
        # A connection serves sources of both kinds.
        assert MQTT.look({"url": broker.url, "topic": "unset"}).error is None
        with pytest.raises(OSError, match="the broker offers only QoS 0, with which messages can be lost"):
            Reader(given).start()
        some = Reader(options(broker, topic, qos="at_most_once"))
        some.start()
        broker.publish(topic, [b"1"], qos=0)
        some.read(1)
        some.stop()
        assert some.values == [b"1"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "http://b:1883"}, "must be tcp://host:port or ssl://host:port, not 'http://b:1883'"),
        ({"url": "tcp://u:secret@b"}, "must be tcp://host:port or ssl://host:port"),
        ({"topic": "a/#/b"}, "names 'a/#/b', which is not a topic"),
        ({"topic": "a, b+"}, "names 'b\\+', which is not a topic"),
        ({"topic": ","}, "names '', which is not a topic"),
        ({"qos": "exactly_once"}, "cannot be 'exactly_once'"),
        ({"qos": "2"}, "must be at_most_once or at_least_once"),
        ({"password": "p"}, 'missing property "username"'),
    ],
)
def test_options_that_do_not_fit(change: dict[str, str], told: str) -> None:
    with pytest.raises(SqlError, match=told) as error:
        MQTT.check_options({"url": "tcp://b:1883", "topic": "t", **change})
    assert "secret" not in error.value.render()
