"""Messages that an MQTT broker forwards, although paho's client cannot read them. Without a real broker and Spark."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.mqtt.client import without_properties
from rw_sql.connectors.mqtt.source import MqttConnector
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MQTT = MqttConnector()
POSITIONS = {"0": SplitState(split="0", offset=0)}
USER_PROPERTY = b"\x26"


def number(value: int) -> bytes:
    """A number of variable length."""
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2) + value


def message(packet: int, topic: bytes, properties: bytes, payload: bytes) -> bytes:
    """A PUBLISH packet of QoS 1."""
    body = text(topic) + packet.to_bytes(2) + number(len(properties)) + properties + payload
    return b"\x32" + number(len(body)) + body


class Broker:
    """Sends packets to its clients, the first ones when they subscribe, and notes which messages are acknowledged."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self.packets = packets
        self.acknowledged: list[int] = []
        self._clients: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self._server.close()

    def send(self, packet: bytes) -> None:
        for client in self._clients:
            client.sendall(packet)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as read:
            while kind := read.read(1):
                size = shift = 0
                while True:
                    (digit,) = read.read(1)
                    size, shift = size | (digit & 127) << shift, shift + 7
                    if digit < 128:
                        break
                body = read.read(size)
                match kind[0] >> 4:
                    case 1:
                        client.sendall(b"\x20\x03\0\0\0")
                    case 4:
                        self.acknowledged.append(int.from_bytes(body[:2]))
                    case 8:
                        client.sendall(b"\x90\x04" + body[:2] + b"\0\x01" + b"".join(self.packets))
                    case 10:
                        client.sendall(b"\xb0\x04" + body[:2] + b"\0\0")


@contextmanager
def reading(*packets: bytes) -> Iterator[tuple[Broker, dict[str, str], Any]]:
    """A broker that sends these packets, the options of a source, and the feed of its reader."""
    broker = Broker(packets)
    options = MQTT.filled_in({"url": f"tcp://127.0.0.1:{broker.port}", "topic": "t/#"}, "odd")
    MQTT.check_options(options)
    feed: Any = MQTT.range_feed(options, POSITIONS, max_records=None)
    try:
        yield broker, options, feed
    finally:
        feed.close()
        broker.stop()


def test_messages_with_other_texts_are_read_and_acknowledged() -> None:
    sent = [
        (b"t/\xff", b""),
        (b"t/mark", USER_PROPERTY + text(b"name") + text("\ufeff".encode())),
        (b"t/latin", USER_PROPERTY + text(b"name") + text(b"\xe9")),
        (b"t/unknown", b"\x7f\x01"),
        (b"t/twice", b"\x01\0\x01\0"),
        (b"t/long", USER_PROPERTY + text(b"name") + text(b"x" * 300)),
        (b"t/plain", b""),
    ]
    packets = [message(at + 1, topic, more, b"v%d" % at) for at, (topic, more) in enumerate(sent)]
    with reading(*packets) as (broker, options, feed):
        wait_until(lambda: feed._session.end == len(sent) or feed._session.error is not None, "all messages come")
        (stretch,) = feed.stretches(options, POSITIONS)
        table = feed._session.table(stretch.start, stretch.end)
        feed.committed({"0": (stretch.start, stretch.end)})
        wait_until(lambda: len(broker.acknowledged) == len(sent), "all messages are acknowledged")
    assert table["value"].to_pylist() == [b"v%d" % at for at in range(len(sent))]
    assert table["partition"].to_pylist() == [topic.decode(errors="replace") for topic, _ in sent]
    assert broker.acknowledged == list(range(1, len(sent) + 1))


def test_a_packet_that_cannot_be_read_ends_the_run_with_a_reason() -> None:
    cut = b"\x32\x09" + text(b"t/cut") + b"\0\x02"
    with reading(message(1, b"t/a", b"", b"good")) as (broker, options, feed):
        wait_until(lambda: feed._session.end == 1, "the first message comes")
        broker.send(cut)
        wait_until(lambda: feed._session.error is not None, "the reason is known")
        # What came before is read first.
        (stretch,) = feed.stretches(options, POSITIONS)
        assert (stretch.start, stretch.end) == (0, 1)
        with pytest.raises(OSError, match=r"^the MQTT client failed: a message ends before its properties$"):
            feed.stretches(options, {"0": SplitState(split="0", offset=1)})


def test_properties_are_left_out() -> None:
    for properties in (b"", b"\x01\x01", USER_PROPERTY + text(b"name") + text(b"x" * 300)):
        for qos, packet in ((0, b""), (1, b"\0\x07")):
            content = text(b"t") + packet + number(len(properties)) + properties + b"payload"
            assert without_properties(bytearray(content), qos) == text(b"t") + packet + b"\0payload"
    for cut in (b"", b"\0", text(b"t"), text(b"t") + b"\x05ab", text(b"t") + b"\xff\xff\xff\xff\x01"):
        with pytest.raises(ValueError, match="ends before its properties"):
            without_properties(bytearray(cut), 0)
