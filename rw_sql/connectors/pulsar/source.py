"""The Pulsar connector. A split is a partition. A position is the message id of the next message, or the id directly
after the message id of the last message that was read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import sha256
from shlex import quote
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream
from rw_sql.connectors.left_objects import HoldingObject
from rw_sql.connectors.pulsar import bounds
from rw_sql.connectors.pulsar import client as pulsar_client
from rw_sql.connectors.pulsar.ids import is_offset, offset_from_text
from rw_sql.connectors.pulsar.names import full_name, is_topic, short_name, topic_of
from rw_sql.connectors.ranged import MOST_RECORDS, RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support import split_state_json as codec
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.connectors.support.wide_offsets import MOST
from rw_sql.errors import (
    INVALID_PROPERTY,
    INVALID_SPLIT_STATE,
    UNKNOWN_SPLIT,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    SqlError,
)
from rw_sql.packages import require_package

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState, UpstreamSplit
    from rw_sql.connectors.ranged import Encoding
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.connectors.support.records.range_stream import RangeFeed

_TIME, _MODE = "scan.startup.timestamp.millis", "scan.startup.mode"
_NAME = "subscription.name"
_OAUTH = "oauth."
_AGAIN = "run the statement again once the brokers answer"
_UNKNOWN = "message ids do not count messages"
_TIMES_SECONDS = 2.0
_CREATE = "create it: pulsar-admin topics create {name}"


class PulsarConnector(RangedConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    executor_packages = ("rw_sql", "pulsar", "pyarrow")

    other_targets = "TO EARLIEST, TO LATEST or TO TIMESTAMP"
    has_wide_offsets = True
    included_offset = "message_id"
    # The difference of two message ids is not a number of messages. With this value, every range counts as one message.
    offsets_per_record = MOST
    poll_seconds = 0.1

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/pulsar.toml``."""
        return load_spec("pulsar")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that the client is installed. Contacts no broker."""
        require_package("pulsar", "pulsar")
        for key in options:
            if key.startswith(_OAUTH):
                raise OptionError(
                    INVALID_PROPERTY,
                    f'property "{key}" is not supported: the connector authenticates by auth.token only',
                    key=key,
                    hint="give a token: auth.token = SECRET …",
                )
        check_option_values(self.spec, options)
        _check_url(options)
        _check_topic(options)
        if _TIME in options and (options.get(_MODE) or "").strip():
            raise OptionError(
                INVALID_PROPERTY,
                f'property "{_TIME}" has no meaning together with "{_MODE}"',
                key=_TIME,
                hint=f"omit {_MODE} or {_TIME}",
            )

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options, with a name for the durable subscription made from ``unique`` if the options contain no such
        name."""
        return {**options, _NAME: options.get(_NAME) or f"{self._prefix(options)}-{unique}"}

    def _prefix(self, options: Mapping[str, str]) -> str:
        return (self.spec.value(options, "subscription.name.prefix") or "rw-consumer").strip()

    def _subscription(self, options: Mapping[str, str]) -> str:
        """The subscription's name. CREATE stores a name in the definition of a source. If the options contain no name,
        the method makes a name from the service's URL and the topic."""
        if (given := options.get(_NAME)) is not None:
            return given
        read = f"{options.get('service.url')} {options.get('topic')}"
        return f"{self._prefix(options)}-{sha256(read.encode()).hexdigest()[:16]}"

    def release(
        self,
        options: Mapping[str, str],
        *,
        slot: bool,
        publication: bool,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[str, ...]:
        """Removes the subscription. Raises OSError if the brokers do not respond or refuse the request."""
        from rw_sql.connectors.pulsar import subscriptions

        try:
            topic, name = options.get("topic", ""), self._subscription(options)
            subscriptions.remove(pulsar_client.address_of(options), short_name(topic), name)
        except pulsar_client.PulsarError as error:
            raise OSError(str(error)) from error
        return ()

    def holding_object(self, options: Mapping[str, str]) -> HoldingObject:
        """The durable subscription of the source's reader, for which the brokers keep messages."""
        name, topic = self._subscription(options), full_name(short_name(options.get("topic", "")))
        return HoldingObject(
            title=f'subscription "{name}"',
            place=f"topic {topic} at {options.get('service.url', '')}",
            removal=f"pulsar-admin topics unsubscribe {quote(topic)} --subscription {quote(name)}",
        )

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Discards the open client. Later requests use a new client with new connections."""
        pulsar_client.CLIENTS.renew(pulsar_client.address_of(options))

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The partitions, each with the offset of its first message and the offset after its last message."""
        address, topic = pulsar_client.address_of(options), options.get("topic", "")
        try:
            if not topic or topic == "unset":  # The options of a connection name no topic.
                pulsar_client.partitions_of(address, full_name("connection-check"))
                return Upstream()
            try:
                partitions = pulsar_client.partitions_of(address, full_name(short_name(topic)))
                names = [short_name(name) for name in partitions]
                return Upstream(splits=bounds.bounds(address, names))
            except pulsar_client.TopicMissingError:
                return Upstream(missing=(short_name(topic),), remedy=_CREATE)
        except pulsar_client.PulsarError as error:
            return Upstream(error=str(error))

    def range_feed(
        self, options: Mapping[str, str], positions: Mapping[str, SplitState], *, max_records: int | None
    ) -> RangeFeed:
        """Returns a feed of the ranges of offsets that a run reads. The feed finds these ranges by reading messages.
        Raises OSError."""
        from rw_sql.connectors.pulsar.poller import PulsarFeed

        return PulsarFeed(
            options,
            positions,
            subscription=self._subscription(options),
            max_records=max_records or MOST_RECORDS,
            is_compacted=_is_compacted(options),
            poll_seconds=self.poll_seconds or 0.1,
        )

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The next range of each partition, which a new poller finds. A run uses :meth:`range_feed` instead, which
        keeps one poller for the run."""
        from rw_sql.connectors.pulsar.poller import Poller

        poller = Poller(max_records=MOST_RECORDS, is_compacted=_is_compacted(options))
        try:
            return poller.stretches(options, positions)
        finally:
            poller.close()

    def record_count(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int:
        """The number of messages in these ranges, if this process has the messages of all ranges in memory; otherwise
        MOST_RECORDS."""
        from rw_sql.connectors.pulsar.reader import FETCHED

        count = 0
        for split, (start, end) in ranges.items():
            found = FETCHED.count(_fetched_key(options, split), start, end)
            if found is None:
                return MOST_RECORDS
            count += found
        return count

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Returns, for each partition, the offset of the first message that was published at or after ``milliseconds``.
        If a partition has no such message, returns the partition's end.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if the topic does not exist.
        """
        address = pulsar_client.address_of(options)
        try:
            found = {split: bounds.first_at(address, split, milliseconds) for split in splits}
            late = [split for split, offset in found.items() if offset is None]
            ends = bounds.bounds(address, late) if late else {}
        except pulsar_client.TopicMissingError as error:
            raise SqlError(UPSTREAM_MISSING, str(error), hint=_AGAIN) from error
        except pulsar_client.PulsarError as error:
            raise SqlError(
                UPSTREAM_UNREACHABLE, f"cannot find the offsets of that time: {error}", hint=_AGAIN
            ) from error
        return {split: ends[split].end if offset is None else offset for split, offset in found.items()}

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns every topic, because message ids do not count messages."""
        return dict.fromkeys(self.named_topics(options), _UNKNOWN)

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the publish time of the first message at or after each partition's offset. The result omits a
        partition without such a message, and the partitions that are left after _TIMES_SECONDS or after an error."""
        address = pulsar_client.address_of(options)
        deadline = time.monotonic() + _TIMES_SECONDS
        found: dict[str, int] = {}
        try:
            for split, offset in offsets.items():
                if time.monotonic() > deadline:
                    break
                at = bounds.time_of(address, split, offset)
                found |= {} if at is None else {split: at}
        except pulsar_client.PulsarError:
            pass
        return found

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which reading begins in a partition without a state. ``scan.startup.timestamp.millis`` or
        ``scan.startup.mode`` determines this offset."""
        if _TIME in options:
            return at_times.get(split.split, split.end)
        is_latest = (options.get(_MODE) or "").strip().lower() == "latest"
        return split.end if is_latest else split.start

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time in ``scan.startup.timestamp.millis``, in milliseconds since 1970; None if the option is not set."""
        return int(options[_TIME]) if _TIME in options else None

    def split_topic(self, split: str) -> str:
        """The topic of a partition."""
        return topic_of(split)

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The topic in the option ``topic``. If the option names a partition, returns the topic of this partition."""
        return (topic_of(short_name(options.get("topic", ""))),)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """Returns the partition's name. A bare number denotes the partition with that number. Raises SqlError
        UNKNOWN_SPLIT."""
        text, topic = written.strip(), short_name(options.get("topic", ""))
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return f"{topic}-partition-{int(text)}"
        if not is_topic(text):
            raise SqlError(
                UNKNOWN_SPLIT,
                f'"{written}" is not a split of a Pulsar source',
                hint=f"a split is named as its partition: '{topic}-partition-0', or '0' for short; a topic without "
                f"partitions is one split: '{topic}'",
            )
        return short_name(text)

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON, a bare number, or a message id, ``ledger:entry:partition:batch``. Raises SqlError
        INVALID_SPLIT_STATE."""
        offset = offset_from_text(text.strip().strip('"'))
        state = codec.decode_state(split, text if offset is None else str(offset), MOST)
        # Stored states are JSON; they must remain readable so that INJECT can replace them.
        if text.strip().isdecimal() and not is_offset(state.offset):
            raise SqlError(
                INVALID_SPLIT_STATE,
                f'invalid state of split "{split}": the offset {state.offset} does not encode a valid message id',
                hint="give the offset or the message id of the next message to read: 'ledger:entry'",
            )
        return state

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
        """The messages of these ranges. If this process no longer has all of these messages in memory, Spark's
        processes read them from the broker again."""
        import pyarrow as pa

        from rw_sql.connectors.pulsar import reader
        from rw_sql.connectors.support.table_reader import read_parts

        kept = {split: bounds for split, bounds in ranges.items() if bounds[1] > bounds[0]}
        tables = [reader.FETCHED.get(_fetched_key(options, split), *bounds) for split, bounds in kept.items()]
        known = [table for table in tables if table is not None]
        if len(known) == len(tables):
            return local_frame(spark, pa.concat_tables([reader.SCHEMA.empty_table(), *known]))
        parts = [(split, str(start), str(end)) for split, (start, end) in kept.items()]
        return read_parts(spark, PulsarPartReader(), options, parts, reader.RECORDS)


@dataclass(frozen=True, slots=True)
class PulsarPartReader:
    """Reads parts of the form ``(partition, start, end)``. The numbers in a part are strings. See
    :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the messages of one part."""
        from rw_sql.connectors.pulsar import reader

        split, start, end = part
        address = pulsar_client.address_of(options)
        try:
            yield from reader.read_range(address, split, int(start), int(end), is_compacted=_is_compacted(options))
        except pulsar_client.PulsarError as error:
            raise OSError(str(error)) from error


def _fetched_key(options: Mapping[str, str], split: str) -> Hashable:
    from rw_sql.connectors.pulsar.reader import fetched_key

    return fetched_key(pulsar_client.address_of(options), split, is_compacted=_is_compacted(options))


def _is_compacted(options: Mapping[str, str]) -> bool:
    return options.get("pulsar.read_compacted", "").strip().lower() == "true"


def _check_url(options: Mapping[str, str]) -> None:
    url = options["service.url"].strip()
    try:
        is_address = url.startswith(("pulsar://", "pulsar+ssl://")) and bool(pulsar_client.hosts_of(url))
    except ValueError:
        is_address = False
    if not is_address:
        raise OptionError(
            INVALID_PROPERTY,
            # An address may contain a password.
            'property "service.url" must be pulsar://host:port or pulsar+ssl://host:port'
            + ("" if "@" in url else f", not '{url}'"),
            key="service.url",
            hint="service.url = 'pulsar://host:6650'; write a token as auth.token",
        )


def _check_topic(options: Mapping[str, str]) -> None:
    topic = options["topic"].strip()
    if topic == "unset":
        return
    if topic.startswith("non-persistent://"):
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"topic\" names '{topic}', whose messages are not stored, so a source could not continue "
            "after a restart",
            key="topic",
            hint="read a persistent topic",
        )
    if not is_topic(topic):
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"topic\" names '{topic}', which is not a topic",
            key="topic",
            hint="a topic is named as 'orders', 'tenant/namespace/orders' or 'persistent://tenant/namespace/orders'",
        )
