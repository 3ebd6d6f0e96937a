"""The MQTT connector. A source has one split; its offsets number the messages in the order of their arrival."""

from __future__ import annotations

from hashlib import sha256
from shlex import quote
from typing import TYPE_CHECKING
from uuid import uuid4

from rw_sql.connectors.base import EXACTLY, RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream, UpstreamSplit
from rw_sql.connectors.left_objects import HoldingObject
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.errors import INVALID_PROPERTY, MISSING_PROPERTY
from rw_sql.packages import require_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.ranged import Encoding
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.connectors.support.records.range_stream import RangeFeed

_SPLIT = "0"
_SCHEMES = ("tcp", "mqtt", "ssl", "mqtts")


class MqttConnector(RangedConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    offsets_count = EXACTLY
    is_sent_once = True
    immovable = "an MQTT broker discards acknowledged messages, so it has no positions to move to"

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/mqtt.toml``."""
        return load_spec("mqtt")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that the client is installed. Contacts no broker."""
        require_package("mqtt", "paho")
        if options.get("qos", "").strip().lower() == "exactly_once":
            raise OptionError(
                INVALID_PROPERTY,
                "property \"qos\" cannot be 'exactly_once': a client that is killed within the exchange of QoS 2 never "
                "gets the message again",
                key="qos",
                hint="qos = 'at_least_once' loses nothing",
            )
        check_option_values(self.spec, options)
        _check_url(options)
        _check_topics(options)
        for one, other in (("password", "username"), ("tls.client_key", "tls.client_cert")):
            if one in options and other not in options:
                raise OptionError(MISSING_PROPERTY, f'missing property "{other}"', key=one, hint=f"{one} needs {other}")

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options, with a client identifier made from ``unique`` if the options contain none. The broker finds the
        session by this identifier."""
        prefix = options.get("client_prefix") or "rw_sql"
        return {**options, "client_id": options.get("client_id") or f"{prefix}_{unique}"}

    def holding_object(self, options: Mapping[str, str]) -> HoldingObject:
        """The session of the source's reader, for which the broker keeps messages. A client with the same identifier
        that begins a new session ends the old session."""
        url, name = options.get("url", "").strip(), options.get("client_id", "")
        return HoldingObject(
            title=f'session of client "{name}"',
            place=f"broker {url}",
            removal=f"mosquitto_sub -i {quote(name)} -t rw_sql -E, with the address and login of {url}",
        )

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Returns the only split, whose end is not known. If the broker accepts no connection, the result contains the
        error."""
        from rw_sql.connectors.mqtt.session import SESSIONS, MqttError, Session

        running = SESSIONS.get(_client_id(options))
        if running is None or running.error is not None:
            # With the source's own identifier, this connection would end the connection of a reader in another process.
            # A broker may refuse an empty identifier, and identifiers without a known prefix.
            visitor = Session(options, f"{_client_id(options)}_{uuid4().hex[:8]}", is_listening=False)
            try:
                visitor.open(0, timeout)
            except MqttError as error:
                return Upstream(error=str(error))
            visitor.close()
        return Upstream(splits={_SPLIT: UpstreamSplit(split=_SPLIT, start=0, end=0, is_empty=True)})

    def range_feed(
        self, options: Mapping[str, str], positions: Mapping[str, SplitState], *, max_records: int | None
    ) -> RangeFeed:
        """Opens a session, and returns a feed of the messages that the session receives. Raises OSError."""
        from rw_sql.connectors.mqtt.session import SESSIONS, MqttError, MqttFeed, Session

        session = Session(dict(options), _client_id(options))
        try:
            session.open(positions[_SPLIT].offset)
        except MqttError as error:
            raise OSError(str(error)) from error
        SESSIONS.put(session)
        return MqttFeed(session, options, positions)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """Returns no ranges, because only the session of a run receives messages."""
        return ()

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Returns the messages of these ranges, which the session in this process holds. Raises OSError if the session
        does not hold all of these messages."""
        from rw_sql.connectors.mqtt.session import SESSIONS
        from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA

        start, end = ranges.get(_SPLIT, (0, 0))
        if end <= start:
            return local_frame(spark, RECORD_SCHEMA.empty_table())
        session = SESSIONS.get(_client_id(options))
        table = session.table(start, end) if session is not None else None
        if table is None:
            raise OSError(f"messages {start} to {end - 1} are not in this process: the broker sends them again")
        return local_frame(spark, table)


def _client_id(options: Mapping[str, str]) -> str:
    """The client's identifier. CREATE stores an identifier in the definition of a source. If the options have no
    identifier, such as the options of a connection, the function makes an identifier from the broker and the topics."""
    if (given := options.get("client_id")) is not None:
        return given
    read = f"{options.get('url')} {options.get('topic')}"
    return f"{options.get('client_prefix') or 'rw_sql'}_{sha256(read.encode()).hexdigest()[:16]}"


def _check_url(options: Mapping[str, str]) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(options["url"].strip())
        is_address = parts.scheme.lower() in _SCHEMES and bool(parts.hostname) and not parts.path.strip("/")
        is_address = is_address and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise OptionError(
            INVALID_PROPERTY,
            # An address may contain a password.
            'property "url" must be tcp://host:port or ssl://host:port'
            + ("" if "@" in options["url"] else f", not '{options['url']}'"),
            key="url",
            hint="url = 'tcp://host:1883'; write a login as username and password",
        )


def _check_topics(options: Mapping[str, str]) -> None:
    topics = [part.strip() for part in options["topic"].split(",")]
    for topic in topics:
        levels = topic.split("/")
        is_valid = bool(topic) and "\0" not in topic and "#" not in levels[:-1]
        if not is_valid or any(len(level) > 1 and ("#" in level or "+" in level) for level in levels):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"topic\" names '{topic}', which is not a topic",
                key="topic",
                hint="slashes separate the levels of a topic; + matches one level, and # at the end matches all "
                "further levels",
            )
