"""The NATS connector. A split is a stream of JetStream, and a position is the sequence number of the next message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import (
    AT_MOST,
    RESOLVE_TIMEOUT_SECONDS,
    GroupOffsets,
    Stretch,
    Upstream,
    UpstreamSplit,
)
from rw_sql.connectors.nats import client as nats_client
from rw_sql.connectors.nats.subjects import common, is_covered, is_valid
from rw_sql.connectors.ranged import RangedConnector
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
from rw_sql.packages import require_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.nats.client import StreamInfo
    from rw_sql.connectors.ranged import Encoding
    from rw_sql.connectors.spec import ConnectorSpec

SMALL_OFFSETS = 10_000
"""The maximum number of offsets of a read that runs in this process, over a pooled connection. Larger reads run in
Spark's processes."""

SMALL_BYTES = 32 * 1024 * 1024
"""The maximum size in bytes of the messages of a read that runs in this process. This process holds the messages in
memory. Larger reads run in Spark's processes."""

_PART_OFFSETS = 50_000
_PART_BYTES = 32 * 1024 * 1024
_TIMES_SECONDS = 2.0
_STREAM = re.compile(r"[^\s.*>/\\]+")
_SERVER = re.compile(r"((nats|tls)://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]@]+)(:([0-9]{1,5}))?")
_LOGIN = {"user_and_password": ("username", "password"), "credential": ("jwt", "nkey")}
_AGAIN = "run the statement again once the servers answer"
_SEED = "the seed is the line of the .creds file that begins with SU"


class NatsConnector(RangedConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    executor_packages = ("rw_sql", "nats", "pyarrow")

    other_targets = "TO EARLIEST, TO LATEST, TO OFFSET or TO TIMESTAMP"
    # Deleted messages and messages of other subjects have sequence numbers too.
    offsets_count = AT_MOST
    poll_seconds = 0.05

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/nats.toml``."""
        return load_spec("nats")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that the client is installed. Contacts no server."""
        require_package("nats", "nats")
        check_option_values(self.spec, options)
        check_servers(options)
        check_names(options)
        self._check_login(options)
        check_startup(self.spec, options)

    def _check_login(self, options: Mapping[str, str]) -> None:
        mode = (self.spec.value(options, "connect_mode") or "plain").strip().lower()
        for key in _LOGIN.get(mode, ()):
            if key not in options:
                raise OptionError(
                    MISSING_PROPERTY,
                    f'missing property "{key}"',
                    key="connect_mode",
                    hint=f"connect_mode = '{mode}' needs {' and '.join(_LOGIN[mode])}",
                )
        for other, keys in _LOGIN.items():
            for key in keys if other != mode else ():
                if key in options:
                    raise OptionError(
                        INVALID_PROPERTY,
                        f"property \"{key}\" has no meaning with connect_mode = '{mode}'",
                        key=key,
                        hint=f"set connect_mode to {other}, or omit {key}",
                    )

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Replaces the pooled connections with new connections."""
        address = nats_client.address_of(options)
        nats_client.POOL.renew(lambda other: other == address)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The streams, each with the offset of its first message and the offset after its last message."""
        try:
            infos, missing, present = _look(options, timeout)
        except nats_client.SeedRefusedError as error:
            return Upstream(error=str(error), refused_key="nkey", hint=_SEED)
        except nats_client.NatsError as error:
            return Upstream(error=str(error))
        for info in infos:
            if info.retention != nats_client.LIMITS:
                return Upstream(
                    error=f"stream {info.name} has the retention {info.retention}, which removes messages that its "
                    "consumers acknowledge: let a stream with the retention limits mirror it"
                )
        splits = {
            info.name: UpstreamSplit(split=info.name, start=info.first, end=info.end, incarnation=info.created)
            for info in infos
        }
        if missing:
            return Upstream(splits=splits, missing=missing, present=present, part="stream", remedy=_CREATE)
        unknown = _unknown_subjects(infos, subjects_of(options))
        return Upstream(splits=splits, missing=unknown, present=_subjects(infos), part="subject", remedy=_ADD)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The unread range of each stream. Raises OSError if a stream is missing, was recreated, has lost unread
        messages, or ends before its position."""
        upstream = self.look(options)
        if upstream.error is not None:
            raise OSError(upstream.error)
        found = []
        for split, state in sorted(positions.items()):
            seen = upstream.splits.get(split)
            if seen is None:
                raise OSError(f"MISSING stream {split}")
            # Each of these errors ends the run. When the reader starts again, it makes the same checks and reports the
            # statement that fixes the problem.
            if state.incarnation is not None and seen.incarnation != state.incarnation:
                raise OSError(
                    f"RECREATED {split}: the stream was deleted, and created again at {seen.incarnation}. "
                    f"The source has read the stream that was created at {state.incarnation}"
                )
            if state.offset < seen.start:
                raise OSError(
                    f"EXPIRED {split}: the stream's first message is {seen.start}, after the position {state.offset}"
                )
            if state.offset > seen.end:
                raise OSError(f"AHEAD {split}: the stream's end is {seen.end}, before the position {state.offset}")
            if seen.end > state.offset:
                found.append(Stretch(split=split, start=state.offset, end=seen.end))
        return tuple(found)

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The offset of each split's first message that was stored at or after ``milliseconds``, whatever its subject;
        the split's end if there is no such message.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if a stream does not exist.
        """
        from rw_sql.connectors.nats import reader

        address = nats_client.address_of(options)
        try:
            return {split: reader.first_at(address, split, milliseconds, timeout) for split in splits}
        except nats_client.StreamMissingError as error:
            raise SqlError(UPSTREAM_MISSING, f"the stream does not exist: {error}", hint=_AGAIN) from error
        except nats_client.NatsError as error:
            raise SqlError(UPSTREAM_UNREACHABLE, f"the servers do not answer: {error}", hint=_AGAIN) from error

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns the streams whose sequence numbers do not count the source's messages, each with the reason. If the
        servers do not respond, returns all streams with the error as the reason."""
        try:
            infos, _, _ = _look(options, timeout)
        except nats_client.NatsError as error:
            return dict.fromkeys(streams_of(options), str(error))
        found = {info.name: _sparse_reason(info, subjects_of(options)) for info in infos}
        return {name: reason for name, reason in found.items() if reason}

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time when the message at each stream's offset was stored.

        The result omits a stream that has no message at the offset, and streams for which the server does not respond
        within _TIMES_SECONDS.
        """
        from rw_sql.connectors.nats import reader

        address = nats_client.address_of(options)
        found = {}
        try:
            for split, offset in offsets.items():
                found[split] = reader.time_of(address, split, offset, _TIMES_SECONDS)
        except nats_client.NatsError:
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
        """Returns, for each stream, the number after the last message up to which the durable consumer ``group`` has
        acknowledged all messages. If no stream has this consumer, returns the names of the streams' consumers.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if a stream does not exist.
        """
        address = nats_client.address_of(options)

        async def ask(nc: Any) -> GroupOffsets:
            offsets: dict[str, int] = {}
            known: set[str] = set()
            members = 0
            for split in splits:
                try:
                    found = await nats_client.api(nc, f"CONSUMER.INFO.{split}.{group}", None, timeout)
                except nats_client.StreamMissingError:
                    listed = await nats_client.api(nc, f"CONSUMER.NAMES.{split}", {"offset": 0}, timeout)
                    known.update(listed.get("consumers") or ())
                    continue
                offsets[split] = int(found["ack_floor"]["stream_seq"]) + 1
                members += int(found.get("num_waiting") or 0) + int(bool(found.get("push_bound")))
            return GroupOffsets(offsets=offsets, members=members, groups=() if offsets else tuple(sorted(known)))

        try:
            return nats_client.POOL.use(address, lambda client: client.run(ask, timeout))
        except nats_client.StreamMissingError as error:
            raise SqlError(UPSTREAM_MISSING, f"the stream does not exist: {error}", hint=_AGAIN) from error
        except nats_client.NatsError as error:
            raise SqlError(UPSTREAM_UNREACHABLE, f"the servers do not answer: {error}", hint=_AGAIN) from error

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which reading begins in a stream without a state, as ``scan.startup.mode`` determines."""
        return first_offset(self.spec, options, split, at_times)

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time of ``scan.startup.mode = 'timestamp'``, in milliseconds since 1970; None for other modes."""
        return startup_time(self.spec, options)

    def split_topic(self, split: str) -> str:
        """Returns ``split``, because a split is a stream, and the stream is its own topic."""
        return split

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The streams in the option ``stream``."""
        return streams_of(options)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The stream's name. If the source has only one stream, ``'0'`` and the empty string stand for this stream.
        Raises SqlError UNKNOWN_SPLIT."""
        streams, text = streams_of(options), written.strip()
        if text in ("", "0") and len(streams) == 1:
            return streams[0]
        if _STREAM.fullmatch(text) is None:
            raise SqlError(
                UNKNOWN_SPLIT,
                f'"{written}" is not a split of a NATS source',
                hint=f"a split is named as its stream: '{streams[0]}'",
            )
        return text

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
        """The messages of these ranges.

        Ranges of at most SMALL_OFFSETS offsets, with messages of at most SMALL_BYTES, are read through Arrow in this
        process. Larger ranges are read in Spark's processes.
        """
        from rw_sql.connectors.nats import reader
        from rw_sql.connectors.support.table_reader import read_parts

        kept = {split: bounds for split, bounds in ranges.items() if bounds[1] > bounds[0]}
        known = {split: (lives or {}).get(split) for split in kept}
        parts = [(split, start, end, known[split]) for split, (start, end) in kept.items()]
        reads = NatsPartReader(with_headers=with_headers)
        if sum(end - start for start, end in kept.values()) <= SMALL_OFFSETS:
            table = reads.few(options, parts)
            if table is not None:
                return local_frame(spark, table)
        infos, _, _ = _look(options, RESOLVE_TIMEOUT_SECONDS)
        lengths = {info.name: _part_length(info) for info in infos}
        cut = [
            (split, at, min(at + lengths.get(split, _PART_OFFSETS), end), created)
            for split, start, end, created in parts
            for at in range(start, end, lengths.get(split, _PART_OFFSETS))
        ]
        return read_parts(spark, reads, options, cut, reader.RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsPartReader:
    """Reads parts of the form ``(stream, start, end, created)``. See
    :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    with_headers: bool = False

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the messages of one part."""
        yield self._table(options, part, None)

    def few(self, options: Mapping[str, str], parts: Sequence[tuple[str, int, int, str | None]]) -> pa.Table | None:
        """The messages of all parts; None if the messages exceed SMALL_BYTES."""
        import pyarrow as pa

        from rw_sql.connectors.nats import reader

        tables, left = [], SMALL_BYTES
        for part in parts:
            try:
                table = self._table(options, part, left)
            except reader.TooLargeError:
                return None
            tables.append(table)
            left -= table.nbytes
        return pa.concat_tables(tables) if tables else reader.SCHEMA.empty_table()

    def _table(self, options: Mapping[str, str], part: Any, most_bytes: int | None) -> pa.Table:
        from rw_sql.connectors.nats import reader

        stream, start, end, created = part
        try:
            return reader.read_range(
                nats_client.address_of(options),
                reader.StreamRange(stream=stream, start=start, end=end, created=created),
                subjects_of(options),
                with_headers=self.with_headers,
                most_bytes=most_bytes,
            )
        except nats_client.NatsError as error:
            raise OSError(str(error)) from error


def check_servers(options: Mapping[str, str]) -> None:
    """Checks that ``server_url`` is a list of addresses. Raises INVALID_PROPERTY."""
    for server in options["server_url"].split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[5] or 4222) < 65536:
            raise OptionError(
                INVALID_PROPERTY,
                # An address may contain a password.
                'property "server_url" must be a list of host:port, nats://host:port or tls://host:port'
                + ("" if "@" in server else f", not '{server.strip()}'"),
                key="server_url",
                hint="server_url = 'nats://host:4222'; write a login with connect_mode = 'user_and_password'",
            )


def check_names(options: Mapping[str, str]) -> None:
    """Checks that the names of streams and subjects are valid. Raises INVALID_PROPERTY."""
    for stream in streams_of(options) or ("",):
        if _STREAM.fullmatch(stream) is None:
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"stream\" names '{stream}', which is not a stream",
                key="stream",
                hint="a stream's name has no spaces, dots, slashes or wildcards",
            )
    for subject in subjects_of(options) or ("",):
        if not is_valid(subject):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"subject\" names '{subject}', which is not a subject",
                key="subject",
                hint="dots separate the parts of a subject; * matches one part, and > at the end matches all further "
                "parts",
            )


def streams_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The streams that a source's options name, each once, in the order in which the options name them."""
    return _listed(options.get("stream", ""))


def subjects_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The subjects that a source's options name, each once, in the order in which the options name them."""
    return _listed(options.get("subject", ""))


_BLANKS = " \t\r\n"


def _listed(text: str) -> tuple[str, ...]:
    parts = (part.strip(_BLANKS) for part in text.split(","))  # Other whitespace may belong to a subject.
    return tuple(dict.fromkeys(part for part in parts if part))


def _look(
    options: Mapping[str, str], timeout: float
) -> tuple[tuple[StreamInfo, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the streams of a source, the names of missing streams and, if a stream is missing, the names of the
    existing streams. Raises NatsError."""
    streams = streams_of(options)

    async def ask(nc: Any) -> tuple[tuple[StreamInfo, ...], tuple[str, ...], tuple[str, ...]]:
        infos, missing = [], []
        for stream in streams:
            try:
                infos.append(await nats_client.info_of(nc, stream, timeout))
            except nats_client.StreamMissingError:
                missing.append(stream)
        # For CREATE CONNECTION, whose options name no stream, the list of streams shows whether the servers respond.
        present = await nats_client.stream_names(nc, timeout) if missing or not streams else ()
        return tuple(infos), tuple(missing), present

    return nats_client.POOL.use(nats_client.address_of(options), lambda client: client.run(ask, timeout))


def _unknown_subjects(infos: Sequence[StreamInfo], subjects: Sequence[str]) -> tuple[str, ...]:
    """Returns those subjects of the source that none of the source's streams can contain."""
    if any(info.is_copy for info in infos) or not infos:
        return ()
    known = _subjects(infos)
    return tuple(each for each in subjects if all(common(each, other) is None for other in known))


def _subjects(infos: Sequence[StreamInfo]) -> tuple[str, ...]:
    return tuple(subject for info in infos for subject in info.subjects)


def _sparse_reason(info: StreamInfo, subjects: tuple[str, ...]) -> str:
    """The reason why the stream's offsets do not count the source's records; empty if every offset has a record."""
    others = [each for each in info.subjects if not any(is_covered(each, subject) for subject in subjects)]
    if others or ((info.is_copy or not info.subjects) and ">" not in subjects):
        return "messages of other subjects have offsets too"
    if info.most_per_subject:
        return f"the stream keeps {info.most_per_subject} messages per subject"
    return "messages were deleted" if info.deleted else ""


def _part_length(info: StreamInfo) -> int:
    """The number of offsets in each part that a task of Spark reads. The number depends on the mean size of the
    stream's messages."""
    mean = max(1, info.bytes // max(1, info.messages))
    return max(1, min(_PART_OFFSETS, _PART_BYTES // mean))


_CREATE = "create it: nats stream add {name}"
_ADD = "add it to the stream: nats stream edit --subjects"
