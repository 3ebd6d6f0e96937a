"""The Kinesis connector. A split is a shard. A position is the sequence number of the next record, or one more than the
sequence number of the last record that was read."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream, UpstreamSplit
from rw_sql.connectors.kinesis import client as kinesis_client
from rw_sql.connectors.kinesis import shards
from rw_sql.connectors.ranged import MOST_RECORDS, RangedConnector
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.connectors.support import split_state_json as codec
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.connectors.support.startup_mode import check_startup, first_offset, startup_time
from rw_sql.connectors.support.wide_offsets import MOST
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
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.ranged import Encoding
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.connectors.support.records.range_stream import RangeFeed

_KEY_ID, _SECRET = "aws.credentials.access_key_id", "aws.credentials.secret_access_key"
_STREAM = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_SHARD = re.compile(r"(shardId-)?([0-9]{1,12})")
_AGAIN = "run the statement again once the service answers"
_UNKNOWN = "sequence numbers do not count records"
_TIMES_SECONDS = 2.0


class KinesisConnector(RangedConnector):
    """See :class:`rw_sql.connectors.base.Connector`."""

    executor_packages = ("rw_sql", "boto3", "pyarrow")

    other_targets = "TO EARLIEST, TO LATEST or TO TIMESTAMP"
    has_wide_offsets = True
    # The difference of two sequence numbers is not a number of records. With this value, every range counts as one
    # record.
    offsets_per_record = MOST

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/kinesis.toml``."""
        return load_spec("kinesis")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that the client is installed. Makes no request."""
        require_package("kinesis", "boto3")
        check_option_values(self.spec, options)
        if _STREAM.fullmatch(options["stream"]) is None:
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"stream\" names '{options['stream']}', which is not a stream",
                key="stream",
                hint="a stream's name has up to 128 letters, digits, dots, hyphens and underscores",
            )
        for one, other in ((_KEY_ID, _SECRET), (_SECRET, _KEY_ID)):
            if one in options and other not in options:
                raise OptionError(
                    MISSING_PROPERTY,
                    f'missing property "{other}"',
                    key=one,
                    hint="set both, or omit both to use the credentials of the machine",
                )
        check_startup(self.spec, options)

    def reconnect(self, options: Mapping[str, str]) -> None:
        """Discards the open client. Later requests use a new client with new connections."""
        kinesis_client.CLIENTS.renew(kinesis_client.address_of(options))

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The shards, each with the offset of its first record and the offset after its last record. A closed shard
        ends at the greatest possible offset."""
        address, name = kinesis_client.address_of(options), options.get("stream", "")
        deadline = time.monotonic() + timeout
        try:
            if not name or name == "unset":  # The options of a connection name no stream.
                kinesis_client.stream_names(address, timeout)
                return Upstream()
            try:
                stream = kinesis_client.stream_of(address, name, timeout)
            except kinesis_client.StreamMissingError:
                present = kinesis_client.stream_names(address, timeout)
                return Upstream(missing=(name,), present=present, part="stream", remedy=_CREATE)
            splits = shards.bounds(address, name, stream, max(0.1, deadline - time.monotonic()))
        except kinesis_client.KinesisError as error:
            return Upstream(error=str(error))
        return Upstream(splits=splits, cluster=stream.arn)

    def range_feed(
        self, options: Mapping[str, str], positions: Mapping[str, SplitState], *, max_records: int | None
    ) -> RangeFeed:
        """Returns a feed of the ranges of offsets that a run reads. The feed finds these ranges by reading records."""
        from rw_sql.connectors.kinesis.poller import Poller
        from rw_sql.connectors.support.records.range_stream import RangeFeed

        poller = Poller(max_records=max_records or MOST_RECORDS)
        first = poller.stretches(options, positions)
        seconds = int(self.spec.value(options, "kinesis.reader.eof_retry_interval_ms") or 1000) / 1000
        return RangeFeed(poller, options, positions, first, most_offsets=MOST**2, poll_seconds=seconds)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The next range of each shard, which a new poller finds. A run uses :meth:`range_feed` instead, which keeps
        one poller for the run."""
        from rw_sql.connectors.kinesis.poller import Poller

        return Poller(max_records=MOST_RECORDS).stretches(options, positions)

    def is_finished(self, state: SplitState) -> bool:
        """True if the shard is closed and all its records have been read."""
        return bool(state.offset == shards.ENDED)

    def record_count(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int:
        """The number of records in these ranges, if this process has the records of all ranges in memory; otherwise
        MOST_RECORDS."""
        from rw_sql.connectors.kinesis.reader import FETCHED

        count = 0
        for split, (start, end) in ranges.items():
            found = FETCHED.count(self._fetched_key(options, split), start, end)
            if found is None:
                return MOST_RECORDS
            count += found
        return count

    def _fetched_key(self, options: Mapping[str, str], split: str) -> Hashable:
        return kinesis_client.address_of(options), options["stream"], split

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """Returns, for each shard, the sequence number of the first record at or after ``milliseconds``. If a shard has
        no such record, returns the shard's end.

        Raises SqlError UPSTREAM_UNREACHABLE, or UPSTREAM_MISSING if the stream does not exist.
        """
        address, name = kinesis_client.address_of(options), options["stream"]

        def act() -> Mapping[str, int]:
            deadline = time.monotonic() + timeout
            stream = kinesis_client.stream_of(address, name, timeout)
            asked = [stream.shards[split] for split in splits if split in stream.shards]
            found = shards.found_in(asked, lambda shard: shards.first_at(address, name, shard, milliseconds, deadline))
            known = {split: offset for split, offset in found.items() if offset is not None}
            if len(known) == len(splits):
                return known
            ends = shards.bounds(address, name, stream, max(0.1, deadline - time.monotonic()))
            return {split: known.get(split, ends[split].end if split in ends else shards.ENDED) for split in splits}

        return self._asked(act)

    def _asked(self, act: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        try:
            return act()
        except kinesis_client.StreamMissingError as error:
            raise SqlError(UPSTREAM_MISSING, f"the stream does not exist: {error}", hint=_AGAIN) from error
        except kinesis_client.KinesisError as error:
            raise SqlError(UPSTREAM_UNREACHABLE, f"Kinesis does not answer: {error}", hint=_AGAIN) from error

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns one entry for all shards, because sequence numbers do not count records."""
        return {"": _UNKNOWN}

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the time when the first record at or after each shard's offset arrived. The result omits a shard
        without such a record, and shards for which the service does not respond within _TIMES_SECONDS."""
        address, name = kinesis_client.address_of(options), options["stream"]
        deadline = time.monotonic() + _TIMES_SECONDS
        found: dict[str, int] = {}
        try:
            stream = kinesis_client.stream_of(address, name, _TIMES_SECONDS)
            for split, offset in offsets.items():
                shard = stream.shards.get(split)
                if shard is not None and offset != shards.ENDED:
                    at = shards.time_of(address, name, shard, offset, deadline)
                    found |= {} if at is None else {split: at}
        except kinesis_client.KinesisError:
            pass
        return found

    def start_offset(self, options: Mapping[str, str], split: UpstreamSplit, at_times: Mapping[str, int]) -> int:
        """The offset at which reading begins in a shard without a state, as ``scan.startup.mode`` determines."""
        return first_offset(self.spec, options, split, at_times)

    def startup_time(self, options: Mapping[str, str]) -> int | None:
        """The time of ``scan.startup.mode = 'timestamp'``, in milliseconds since 1970; None for other modes."""
        return startup_time(self.spec, options)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The shard's id. ``written`` is this id or the shard's number. Raises SqlError UNKNOWN_SPLIT."""
        match = _SHARD.fullmatch(written.strip())
        if match is None:
            raise SqlError(
                UNKNOWN_SPLIT,
                f'"{written}" is not a split of a Kinesis source',
                hint="a split is named as its shard: 'shardId-000000000000', or '0' for short",
            )
        return f"shardId-{match[2].zfill(12)}"

    def decode_state(self, split: str, text: str) -> SplitState:
        """Decodes a state from JSON or from a bare number of up to 60 digits."""
        return codec.decode_state(split, text, MOST)

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
        """The records of these ranges. If this process no longer has all of these records in memory, Spark's processes
        read them from Kinesis again."""
        import pyarrow as pa

        from rw_sql.connectors.kinesis import reader
        from rw_sql.connectors.support.table_reader import read_parts

        kept = {split: bounds for split, bounds in ranges.items() if bounds[1] > bounds[0]}
        tables = [
            reader.FETCHED.get(self._fetched_key(options, split), start, end, (lives or {}).get(split))
            for split, (start, end) in kept.items()
        ]
        known = [table for table in tables if table is not None]
        if len(known) == len(tables):
            return local_frame(spark, pa.concat_tables([reader.SCHEMA.empty_table(), *known]))
        parts = [(split, str(start), str(end), (lives or {}).get(split)) for split, (start, end) in kept.items()]
        return read_parts(spark, KinesisPartReader(), options, parts, reader.RECORDS)


@dataclass(frozen=True, slots=True)
class KinesisPartReader:
    """Reads parts of the form ``(shard, start, end, created)``. The numbers in a part are strings. See
    :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads the records of one part."""
        from rw_sql.connectors.kinesis import reader

        split, start, end, created = part
        address = kinesis_client.address_of(options)
        try:
            yield from reader.read_range(address, options["stream"], split, int(start), int(end), created)
        except kinesis_client.KinesisError as error:
            raise OSError(str(error)) from error


_CREATE = "create it: aws kinesis create-stream --stream-name {name}"
