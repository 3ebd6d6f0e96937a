"""The RabbitMQ connector. A split is a stream, or a partition of a super stream. A position is the offset of the next
message."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import AT_MOST, RESOLVE_TIMEOUT_SECONDS, GroupOffsets, Upstream, UpstreamSplit
from rw_sql.connectors.rabbitmq import client as rabbit_client
from rw_sql.connectors.rabbitmq.names import (
    MOST_BYTES,
    is_split,
    listed,
    part_of,
    partition_split,
    split_of,
    stream_of,
)
from rw_sql.connectors.ranged import MOST_RECORDS, RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.connectors.support.startup_mode import check_startup, first_offset, startup_time
from rw_sql.errors import (
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    UNKNOWN_SPLIT,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    SqlError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState, Stretch, UpstreamWatch
    from rw_sql.connectors.ranged import Encoding
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.connectors.support.records.range_stream import RangeFeed

SMALL_OFFSETS = 10_000
"""A batch with at most this number of offsets is read in this process, over an open connection.

Larger reads run in Spark's processes.
"""

SMALL_BYTES = 32 * 1024 * 1024
"""The maximum size, in bytes, of the messages that are read in this process. This process holds all of them in memory.

Larger reads run in Spark's processes.
"""

_PART_OFFSETS = 50_000
_TIMES_SECONDS = 2.0
_AGAIN = "run the statement again once the servers answer"
_STREAM, _SUPER = "stream", "super_stream"
_CREATE = 'create it: rabbitmqadmin declare queue name={name} durable=true arguments=\'{"x-queue-type": "stream"}\''
_CREATE_SUPER = "create it: rabbitmq-streams add_super_stream {name} --partitions 3"
_OFFSETS_OF_CONSUMERS = "the stored offsets of consumers occupy offsets of the stream too"
_TLS_KEYS = ("tls.ca", "tls.client_cert", "tls.client_key")


class RabbitConnector(RangedConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    executor_packages = ("rw_sql", "pyarrow")

    other_targets = "TO EARLIEST, TO LATEST, TO OFFSET or TO TIMESTAMP"
    # The chunks that the server writes for itself have offsets too.
    offsets_count = AT_MOST
    poll_seconds = 0.1
    connection_stand_ins = MappingProxyType({_STREAM: "unset"})

    @property
    def spec(self) -> ConnectorSpec:
        """The connector's spec, from ``sources/rabbitmq.toml``."""
        return load_spec("rabbitmq")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options do not contradict each other. Sends no request to a server."""
        check_option_values(self.spec, options)
        _check_servers(options)
        _check_names(options)
        _check_login(options)
        check_startup(self.spec, options)

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Closes the idle connections to the source's servers. Later requests open new connections."""
        address = rabbit_client.address_of(options)
        rabbit_client.POOL.renew(lambda target: target[0] == address)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The source's streams, each with the offsets of its first message and of its end."""
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        deadline = time.monotonic() + timeout
        is_super = _is_super(options)
        part, remedy = ("super stream", _CREATE_SUPER) if is_super else ("stream", _CREATE)
        splits, missing = {}, []
        try:
            try:
                names = _splits(options, timeout)
            except rabbit_client.StreamMissingError as error:
                return Upstream(missing=(str(error),), part=part, remedy=remedy)
            for split in names:
                left = max(0.1, deadline - time.monotonic())
                try:
                    bounds = reader.bounds_of(address, stream_of(split), left)
                except rabbit_client.StreamMissingError as error:
                    missing.append(str(error))
                    continue
                splits[split] = UpstreamSplit(
                    split=split,
                    start=bounds.start,
                    end=bounds.end,
                    # All partitions of a super stream share one incarnation, which is not known.
                    incarnation=None if is_super else bounds.birth,
                    is_empty=bounds.is_empty,
                    term=bounds.term,
                )
        except rabbit_client.RabbitError as error:
            return Upstream(error=str(error))
        if missing and is_super:
            # A missing partition is an error, because a partition cannot be reset like a missing stream.
            return Upstream(error=f"the super stream {options[_SUPER]} lacks the streams {', '.join(missing)}")
        return Upstream(splits=splits, missing=tuple(missing), part=part, remedy=remedy)

    def range_feed(
        self, options: Mapping[str, str], positions: Mapping[str, SplitState], *, max_records: int | None
    ) -> RangeFeed:
        """Returns a feed that distributes the unread messages after these positions over the batches of a run."""
        from rw_sql.connectors.rabbitmq.poller import Poller
        from rw_sql.connectors.support.records.range_stream import RangeFeed

        poller = Poller()
        first = poller.stretches(options, positions)
        most = max_records or MOST_RECORDS
        return RangeFeed(poller, options, positions, first, most_offsets=most, poll_seconds=self.poll_seconds)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The range of unread messages of each stream. Raises OSError if a stream is missing, has lost unread messages,
        or ends before its position."""
        from rw_sql.connectors.rabbitmq.poller import Poller

        return Poller().stretches(options, positions)

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The offset of each stream's first message at or after ``milliseconds``; the stream's end if there is no such
        message.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if a stream does not exist.
        """
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        return _asked(
            lambda: {split: reader.first_at(address, stream_of(split), milliseconds, timeout) for split in splits}
        )

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns all streams, each with the reason: servers do not report which offsets contain messages."""
        return dict.fromkeys(self.named_topics(options), _OFFSETS_OF_CONSUMERS)

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Maps each stream to the time at which the server stored the message at the given offset, in milliseconds
        since 1970.

        The result lacks each stream that has no message at its offset. If a request fails or exceeds a short timeout,
        the result also lacks the stream of this request and all streams after it.
        """
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        found = {}
        try:
            for split, offset in offsets.items():
                found[split] = reader.time_of(address, stream_of(split), offset, _TIMES_SECONDS)
        except rabbit_client.RabbitError:
            pass
        return {split: at for split, at in found.items() if at is not None}

    def group_offsets(
        self,
        options: Mapping[str, str],
        group: str,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> GroupOffsets:
        """Returns the position of the consumer ``group`` in each stream: the stored offset plus 1.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if a stream does not exist.
        """
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        stored = _asked(
            lambda: {split: reader.stored_offset(address, stream_of(split), group, timeout) for split in splits}
        )
        return GroupOffsets(offsets={split: at + 1 for split, at in stored.items() if at is not None})

    def terms(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The terms of the streams: see :func:`rw_sql.connectors.rabbitmq.reader.term_of`. Raises OSError."""
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        try:
            found = {split: reader.last_of(address, stream_of(split), timeout) for split in splits}
        except rabbit_client.RabbitError as error:
            raise OSError(_told(error)) from error
        return {split: reader.term_of(last) for split, last in found.items() if last is not None}

    def diverged(
        self, options: Mapping[str, str], states: Mapping[str, SplitState], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, int]:
        """The streams that were deleted and created again, or that lost messages before these positions. Each stream
        has the first offset that may have changed. Raises OSError."""
        from rw_sql.connectors.rabbitmq import reader

        address = rabbit_client.address_of(options)
        found = {}
        try:
            for split, state in states.items():
                if state.term is not None:
                    found[split] = reader.diverged_at(address, stream_of(split), state.offset, state.term, timeout)
        except rabbit_client.RabbitError as error:
            raise OSError(_told(error)) from error
        return {split: at for split, at in found.items() if at is not None}

    def watch(self, options: Mapping[str, str]) -> UpstreamWatch | None:
        """Returns a :class:`RabbitWatch`, which sends its requests over pooled connections."""
        return RabbitWatch(options=options)

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which ``scan.startup.mode`` begins to read a stream that has no stored state."""
        return first_offset(self.spec, options, split, at_times)

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time of ``scan.startup.mode = 'timestamp'``, in milliseconds since 1970; None for other modes."""
        return startup_time(self.spec, options)

    def split_topic(self, split: str) -> str:
        """Returns the super stream for a partition of a super stream, and the stream itself for any other stream."""
        return part_of(split)

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the super stream, or else the streams in the option ``stream``."""
        return tuple(map(split_of, _names(options)))

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split for a stream's name.

        In a source with one stream, ``'0'`` names this stream. For a super stream, a number ``n`` names the partition
        ``<super stream>-n``, because servers name partitions in this way by default. Raises SqlError UNKNOWN_SPLIT.
        """
        names, text = _names(options), written.strip()
        if _is_super(options):
            name = names[0]
            if text.startswith(f"{split_of(name)}:"):
                return text
            if text and ":" not in text:
                return partition_split(name, f"{name}-{text}" if text.isascii() and text.isdecimal() else text)
        elif text in ("", "0") and len(names) == 1:
            return split_of(names[0])
        elif text:
            return text if text not in names and is_split(text) else split_of(text)
        raise SqlError(
            UNKNOWN_SPLIT,
            f'"{written}" is not a split of a RabbitMQ source',
            hint=f"a split is named as its stream: '{names[0]}{'-0' if _is_super(options) else ''}'",
        )

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
        """Returns the messages in these ranges.

        A batch of at most :data:`SMALL_OFFSETS` offsets and :data:`SMALL_BYTES` bytes is read in this process, as Arrow
        tables. A larger batch is read in Spark's processes.
        """
        from rw_sql.connectors.support.records.record_columns import RECORDS
        from rw_sql.connectors.support.table_reader import read_parts

        parts = [(split, start, end) for split, (start, end) in ranges.items() if end > start]
        reads = RabbitPartReader(with_headers=with_headers)
        if sum(end - start for _, start, end in parts) <= SMALL_OFFSETS:
            table = reads.few(options, parts)
            if table is not None:
                return local_frame(spark, table)
        cut = [
            (split, at, min(at + _PART_OFFSETS, end))
            for split, start, end in parts
            for at in range(start, end, _PART_OFFSETS)
        ]
        return read_parts(spark, reads, options, cut, RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitWatch:
    """See :class:`rw_sql.connectors.base.UpstreamWatch`. The incarnation of a super stream is always None."""

    options: Mapping[str, str]

    def incarnations(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """Returns the incarnation of each existing stream: the time of the chunk at offset 0, or None if this chunk
        does not exist. Raises OSError."""
        from rw_sql.connectors.rabbitmq import reader

        if _is_super(self.options):
            return dict.fromkeys(topics)
        address = rabbit_client.address_of(self.options)
        found: dict[str, str | None] = {}
        for topic in topics:
            try:
                found[topic] = reader.birth_of(address, stream_of(topic), RESOLVE_TIMEOUT_SECONDS)
            except rabbit_client.StreamMissingError:
                continue
            except rabbit_client.RabbitError as error:
                raise OSError(str(error)) from error
        return found

    def close(self) -> None:
        """Does nothing: the connections belong to the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitPartReader:
    """Reads parts of the form ``(split, start, end)``. See
    :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    with_headers: bool = False

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the messages of one part, in tables of limited size."""
        from rw_sql.connectors.rabbitmq import reader

        split, at, end = part
        address = rabbit_client.address_of(options)
        while at < end:
            try:
                table, at = reader.read_range(
                    address, stream_of(split), at, end, split=split, with_headers=self.with_headers
                )
            except rabbit_client.RabbitError as error:
                raise OSError(_told(error)) from error
            yield table

    def few(self, options: Mapping[str, str], parts: Sequence[tuple[str, int, int]]) -> pa.Table | None:
        """The messages of all parts; None if they exceed :data:`SMALL_BYTES`."""
        from rw_sql.connectors.rabbitmq.reader import whole_table

        tables, left = [], SMALL_BYTES
        for part in parts:
            for table in self.read(options, part):
                tables.append(table)
                left -= table.nbytes
                if left < 0:
                    return None
        return whole_table(tables)


def _asked(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Calls ``ask``, which sends requests to the servers, and returns its result. Raises SqlError UPSTREAM_MISSING
    or UPSTREAM_UNREACHABLE."""
    try:
        return ask()
    except rabbit_client.StreamMissingError as error:
        raise SqlError(UPSTREAM_MISSING, f"the stream does not exist: {error}", hint=_AGAIN) from error
    except rabbit_client.RabbitError as error:
        raise SqlError(UPSTREAM_UNREACHABLE, f"the servers do not answer: {error}", hint=_AGAIN) from error


def _told(error: rabbit_client.RabbitError) -> str:
    return f"MISSING stream {error}" if isinstance(error, rabbit_client.StreamMissingError) else str(error)


def _is_super(options: Mapping[str, str]) -> bool:
    return _SUPER in options


def _names(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the streams that a source's options name. If the options name a super stream, returns only the name of
    the super stream."""
    return (options[_SUPER].strip(),) if _is_super(options) else listed(options.get(_STREAM, ""))


def _splits(options: Mapping[str, str], timeout: float) -> tuple[str, ...]:
    """The splits of a source. If the options name no stream, as in CREATE CONNECTION, the function only checks that a
    server accepts the connection, and the result is empty. Raises StreamMissingError or RabbitError."""
    from rw_sql.connectors.rabbitmq.reader import partitions_of

    address, names = rabbit_client.address_of(options), _names(options)
    if _is_super(options):
        found = rabbit_client.anywhere(address, timeout, lambda client: partitions_of(client, names[0]))
        return tuple(partition_split(names[0], stream) for stream in found)
    if not names:
        rabbit_client.anywhere(address, timeout, lambda client: None)
    return tuple(map(split_of, names))


def _check_servers(options: Mapping[str, str]) -> None:
    try:
        servers = rabbit_client.servers_of(options["url"])
    except ValueError:
        raise OptionError(
            INVALID_PROPERTY,
            # An address may contain a password.
            'property "url" must be a list of rabbitmq-stream://host:port or rabbitmq-stream+tls://host:port'
            + ("" if "@" in options["url"] else f", not '{options['url']}'"),
            key="url",
            hint="url = 'rabbitmq-stream://host:5552'; write a login as username and password, and the virtual host as "
            "vhost",
        ) from None
    if len({scheme for scheme, _, _ in servers}) > 1:
        raise OptionError(
            INVALID_PROPERTY,
            'property "url" names servers with TLS and servers without it',
            key="url",
            hint="use one scheme for all servers",
        )
    for key in _TLS_KEYS:
        if key in options and servers[0][0] != rabbit_client.TLS:
            raise OptionError(
                INVALID_PROPERTY,
                f'property "{key}" has no meaning without TLS',
                key=key,
                hint="url = 'rabbitmq-stream+tls://host:5551'",
            )


def _check_names(options: Mapping[str, str]) -> None:
    if _STREAM in options and _SUPER in options:
        raise OptionError(
            INVALID_PROPERTY,
            f'property "{_STREAM}" has no meaning together with "{_SUPER}"',
            key=_STREAM,
            hint=f"omit {_STREAM} or {_SUPER}",
        )
    if _STREAM not in options and _SUPER not in options:
        raise OptionError(
            MISSING_PROPERTY,
            f'missing property "{_STREAM}"',
            key="url",
            hint=f"a RabbitMQ source needs {_STREAM} or {_SUPER}",
        )
    key = _SUPER if _is_super(options) else _STREAM
    for name in _names(options) or ("",):
        if not name or len(name.encode()) > MOST_BYTES:
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"{key}\" names '{name}', which is not a stream",
                key=key,
                hint=f"a stream's name has 1 to {MOST_BYTES} bytes",
            )


def _check_login(options: Mapping[str, str]) -> None:
    for one, other in (("username", "password"), ("password", "username"), ("tls.client_key", "tls.client_cert")):
        if one in options and other not in options:
            raise OptionError(MISSING_PROPERTY, f'missing property "{other}"', key=one, hint=f"{one} needs {other}")
