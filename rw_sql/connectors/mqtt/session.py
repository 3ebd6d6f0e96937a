"""Manages a session at an MQTT broker. The session receives messages and numbers them. It acknowledges a message after
a batch has committed the message.

If a run loses its connection, the run ends. The next run receives all unacknowledged messages again.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from rw_sql.connectors.base import Stretch
from rw_sql.connectors.mqtt.client import client_class
from rw_sql.connectors.support.connections.tls import tls_context
from rw_sql.connectors.support.records.range_stream import RangeFeed
from rw_sql.connectors.support.records.record_columns import HEADERS, RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.connectors.base import SplitState

logger = logging.getLogger(__name__)

SPLIT = "0"
"""The only split of a source."""

CONNECT_SECONDS = 10.0
NEVER = 0xFFFFFFFF
"""The session expiry interval with which a session never expires."""

_KEEPALIVE_SECONDS = 30
_PORTS = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}
_NO_QOS = "the broker offers only QoS 0, with which messages can be lost; qos = 'at_most_once' accepts this"


_CONFIRM_SECONDS = 2.0
"""The maximum time in seconds that :meth:`Session.close` waits for the broker to read all acknowledgements."""


class MqttError(Exception):
    """Raised if the broker does not respond or refuses a request. The error's message contains no secret."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message. ``packet`` is the number with which the message is acknowledged; 0 if it needs no acknowledgement."""

    topic: str
    payload: bytes
    packet: int
    qos: int
    at_us: int


@dataclass(slots=True)
class Session:
    """A session at a broker, over one connection.

    The client's own thread receives messages; other threads read and acknowledge them. If ``is_listening`` is false,
    the session only checks that the broker accepts a connection. The session then subscribes to no topic, and the
    broker discards the session at the end of the connection.
    """

    options: Mapping[str, str]
    client_id: str
    is_listening: bool = True
    error: str | None = None
    _client: Any = None
    _answered: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _first: int = 0
    _messages: list[_Message] = field(default_factory=list)
    _is_closed: bool = False
    _has_acknowledged: bool = False
    _confirmed: threading.Event = field(default_factory=threading.Event)

    def open(self, offset: int, timeout: float = CONNECT_SECONDS) -> None:
        """Connects and, if ``is_listening`` is true, subscribes. The first message gets the number ``offset``. Raises
        MqttError."""
        from paho.mqtt.client import MQTTv5
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self._first = offset
        client: Any = client_class()(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            protocol=MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._client = client
        if (user := self.options.get("username")) is not None:
            client.username_pw_set(user, self.options.get("password"))
        scheme, host, port = address_of(self.options)
        if scheme in ("ssl", "mqtts"):
            try:
                client.tls_set_context(tls_context(self.options))
            except OSError as error:
                raise MqttError(str(error)) from error
        client.connect_timeout = timeout
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_failed = self._on_failed
        client.on_unsubscribe = self._on_unsubscribe
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = NEVER if self.is_listening else 0
        properties.ReceiveMaximum = int(self.options.get("inflight_messages", 100))
        if (most := self.options.get("max_packet_size")) is not None:
            properties.MaximumPacketSize = int(most)
        is_clean = not self.is_listening or self.options.get("clean_start", "false").lower() == "true"
        try:
            client.connect(host, port, keepalive=_KEEPALIVE_SECONDS, clean_start=is_clean, properties=properties)
        except (OSError, ValueError) as error:
            self.close()
            raise MqttError(f"cannot connect to {host}:{port} ({_why(error)})") from error
        client.loop_start()
        if not self._answered.wait(timeout):
            self.error = self.error or "no answer within " + f"{timeout:g} seconds"
        if self.error is not None:
            self.close()
            raise MqttError(f"{host}:{port}: {self.error}")

    @property
    def end(self) -> int:
        """The number of the next message."""
        with self._lock:
            return self._first + len(self._messages)

    def table(self, start: int, end: int) -> pa.Table | None:
        """Returns the messages ``[start, end)``; None if the session does not hold all of these messages."""
        with self._lock:
            if start < self._first or end > self._first + len(self._messages):
                return None
            return _table(start, self._messages[start - self._first : end - self._first])

    def acknowledge(self, offset: int) -> None:
        """Acknowledges the messages before ``offset``, which the caller must have committed. A repeated call has no
        effect."""
        with self._lock:
            done = self._messages[: max(0, offset - self._first)]
            del self._messages[: len(done)]
            self._first += len(done)
        for message in done:
            if message.qos:
                self._client.ack(message.packet, message.qos)
                self._has_acknowledged = True

    def close(self) -> None:
        """Ends the connection. If ``is_listening`` is true, the broker keeps the session. Raises no error."""
        self._is_closed = True
        if self._client is not None:
            self._confirm()
            self._client.disconnect()
            self._client.loop_stop()

    def _confirm(self) -> None:
        """Waits until the broker has read all acknowledgements.

        When the connection ends, the broker may discard acknowledgements that it has not read, and would then send the
        acknowledged messages again. The broker does not respond to these acknowledgements, but it reads the packets of
        a connection in their order. Its response to a later request therefore shows that it has read all earlier
        acknowledgements.
        """
        if not self._has_acknowledged or self.error is not None or not self._client.is_connected():
            return
        code, _ = self._client.unsubscribe(f"rw_sql/{self.client_id}/none")
        if not code:
            self._confirmed.wait(_CONFIRM_SECONDS)

    def _on_unsubscribe(self, client: Any, data: Any, packet: int, reasons: Any, properties: Any) -> None:
        self._confirmed.set()

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.error = f"the broker refuses the connection: {str(reason).lower()}"
            self._answered.set()
        elif getattr(properties, "MaximumQoS", 2) < self._qos:
            self.error = _NO_QOS
            self._answered.set()
        elif not self.is_listening:
            self._answered.set()
        else:
            if self._first and not flags.session_present:
                logger.warning(
                    "the broker has lost the session of MQTT client %s: messages that it received since then are lost",
                    self.client_id,
                )
            self._subscribe(client)

    @property
    def _qos(self) -> int:
        """The quality of service that the source needs; 0 if the options belong to a connection and not to a source."""
        if self.options.get("topic", "unset") == "unset":
            return 0
        return 0 if self.options.get("qos", "at_least_once").strip().lower() == "at_most_once" else 1

    def _subscribe(self, client: Any) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # With this ``retainHandling``, the broker sends a retained message only when a session begins, not at each
        # reconnect.
        how = SubscribeOptions(qos=self._qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, how) for topic in topics_of(self.options)])

    def _on_subscribe(self, client: Any, data: Any, packet: int, reasons: Sequence[Any], properties: Any) -> None:
        for topic, reason in zip(topics_of(self.options), reasons, strict=False):
            if reason.is_failure:
                self.error = f'the broker refuses topic "{topic}": {str(reason).lower()}'
            elif reason.value < self._qos:
                self.error = f'topic "{topic}": {_NO_QOS}'
        self._answered.set()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self._is_closed:
            self.error = self.error or f"the connection ended: {str(reason).lower()}"
            self._answered.set()

    def _on_failed(self, error: Exception) -> None:
        """The client calls this method if an error ends the client's thread. The connection is still open at that time,
        but no thread reads from the connection."""
        if not self._is_closed:
            self.error = self.error or f"the MQTT client failed: {_why(error)}"
            self._answered.set()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        # Not all brokers check that topics are UTF-8.
        topic = message._topic.decode(errors="replace")
        if not self._is_wanted(topic):
            # The broker keeps the subscriptions of a session, so the message may belong to a topic that the source no
            # longer names.
            if message.qos:
                client.ack(message.mid, message.qos)
            return
        found = _Message(topic, bytes(message.payload), message.mid, message.qos, time.time_ns() // 1000)
        with self._lock:
            self._messages.append(found)

    def _is_wanted(self, topic: str) -> bool:
        from paho.mqtt.client import topic_matches_sub

        return any(topic_matches_sub(_filter_of(each), topic) for each in topics_of(self.options))


class MqttFeed(RangeFeed):
    """The ranges of a run, which contain the messages that the run's session has received. The feed acknowledges the
    messages of a batch after the batch has been committed."""

    def __init__(self, session: Session, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> None:
        super().__init__(self, options, positions, (), most_offsets=1_000_000, poll_seconds=0.02)
        self._session = session

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The range of the messages from the position on. Raises OSError if there are none and the connection has
        ended."""
        start, end = positions[SPLIT].offset, self._session.end
        if end > start:
            return (Stretch(split=SPLIT, start=start, end=end),)
        if self._session.error is not None:
            raise OSError(self._session.error)
        return ()

    def committed(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Acknowledges the messages of a committed batch."""
        for _, end in ranges.values():
            self._session.acknowledge(end)

    def close(self) -> None:
        """Ends the thread and the connection."""
        super().close()
        SESSIONS.drop(self._session)
        self._session.close()


class _Sessions:
    """The sessions of this process, one per client identifier. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Session] = {}

    def get(self, client_id: str) -> Session | None:
        with self._lock:
            return self._known.get(client_id)

    def put(self, session: Session) -> None:
        with self._lock:
            self._known[session.client_id] = session

    def drop(self, session: Session) -> None:
        with self._lock:
            if self._known.get(session.client_id) is session:
                del self._known[session.client_id]


SESSIONS = _Sessions()


def address_of(options: Mapping[str, str]) -> tuple[str, str, int]:
    """Scheme, host and port of ``url``. Raises ValueError."""
    parts = urlsplit(options["url"].strip())
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.username is not None:
        raise ValueError("it is not scheme://host:port")
    return scheme, parts.hostname, parts.port or _PORTS[scheme]


def topics_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a source's options name, each once, in the order in which the options name them."""
    return tuple(dict.fromkeys(part.strip() for part in options.get("topic", "").split(",") if part.strip()))


def _filter_of(topic: str) -> str:
    """Returns the topic filter of a subscription. For a shared subscription ``$share/group/filter``, the topic filter
    is the last part."""
    return topic.split("/", 2)[2] if topic.startswith("$share/") and topic.count("/") > 1 else topic


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (str(error) or type(error).__name__).splitlines()[0]


def _table(start: int, messages: Sequence[_Message]) -> pa.Table:
    count = len(messages)
    return pa.Table.from_arrays(
        [
            pa.array([SPLIT] * count, pa.string()),
            pa.array(range(start, start + count), pa.int64()),
            pa.nulls(count, pa.binary()),
            pa.array([message.payload for message in messages], pa.binary()),
            pa.array([message.topic for message in messages], pa.string()),
            pa.array([message.at_us for message in messages], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.nulls(count, HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )
