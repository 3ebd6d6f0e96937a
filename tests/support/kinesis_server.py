"""Kinesis servers for tests: moto's server in this process, with the rules of the real service that moto lacks.

moto moves a shard's records into the shard's children, writes to closed shards, counts sequence numbers from 1 and
accepts any number. These servers behave like Amazon's service. Sequence numbers have 56 digits, rise over the whole
stream, and contain the number of their shard. Other numbers are refused. A closed shard keeps its records, ends its
iterators and reports its last sequence number. Expired records and shards are removed. A test can make requests fail.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import moto.kinesis.models as moto_models
import moto.kinesis.utils as moto_utils
import pytest
from moto.core.exceptions import JsonRESTError
from moto.kinesis.exceptions import InvalidArgumentError
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REGION = "eu-central-1"
_FIRST = 49546986683135544286507457936321625675700192471156785154
_STEP = 1 << 96
_VERSION = 2
_LOCK = threading.RLock()
_COUNTER = [_FIRST >> 96]
_FAULTS: deque[str] = deque()
_BUSY: set[str] = set()


def _number(shard: int) -> int:
    """The next sequence number. The number ends with the shard and the version of the format."""
    with _LOCK:
        _COUNTER[0] += 1
        return (_COUNTER[0] << 96) | (shard << 4) | _VERSION


class AmazonsShard(moto_models.Shard):
    """A shard with Amazon's rules."""

    def __init__(self, shard_id: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(shard_id, *args, **kwargs)
        self.start = _number(shard_id)
        self.end: int | None = None

    def close(self) -> None:
        """Closes the shard. It keeps its records."""
        self.is_open = False
        self.end = _number(self._shard_id)

    def put_record(self, partition_key: str, data: str, explicit_hash_key: str) -> str:
        with _LOCK:
            number = _number(self._shard_id)
            self.records[number] = moto_models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)

    def get_records(self, last_sequence_id: str, limit: int | None) -> tuple[list[Any], int, int]:
        with _LOCK:
            after = [record for number, record in self.records.items() if number > int(last_sequence_id)]
            found = after[: limit or 10_000]
            last = found[-1].sequence_number if found else int(last_sequence_id)
            behind = 1 + int((after[-1].created_at - found[-1].created_at) * 1000) if len(after) > len(found) else 0
        return found, last, behind

    def get_sequence_number_at(self, at_timestamp: float) -> int:
        with _LOCK:
            before = [number for number, record in self.records.items() if record.created_at < at_timestamp]
        return max(before, default=0)

    def to_json(self) -> dict[str, Any]:
        told = super().to_json()
        told["SequenceNumberRange"] = {"StartingSequenceNumber": str(self.start)}
        if self.end is not None:
            told["SequenceNumberRange"]["EndingSequenceNumber"] = str(self.end)
        return told


class AmazonsStream(moto_models.Stream):
    """A stream with Amazon's rules."""

    def init_shards(self, shard_count: int) -> None:
        self.shard_count = shard_count
        step = 2**128 // shard_count
        for index in range(shard_count):
            high = 2**128 - 1 if index == shard_count - 1 else (index + 1) * step - 1
            shard = AmazonsShard(index, index * step, high)
            self.shards[shard.shard_id] = shard

    def get_shard_for_key(self, partition_key: str, explicit_hash_key: str) -> Any:
        at = int(explicit_hash_key) if explicit_hash_key else int(md5(partition_key.encode()).hexdigest(), 16)
        return next(
            shard for shard in self.shards.values() if shard.is_open and shard.starting_hash <= at <= shard.ending_hash
        )

    def split_shard(self, shard_to_split: str, new_starting_hash_key: str) -> None:
        with _LOCK:
            shard: Any = self.shards[shard_to_split]
            middle = int(new_starting_hash_key)
            shard.close()
            first = 1 + max(known._shard_id for known in self.shards.values())
            for number, low, high in (
                (first, shard.starting_hash, middle - 1),
                (first + 1, middle, shard.ending_hash),
            ):
                made = AmazonsShard(number, low, high, parent=shard.shard_id)
                self.shards[made.shard_id] = made

    def merge_shards(self, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
        with _LOCK:
            one: Any = self.shards[shard_to_merge]
            other: Any = self.shards[adjacent_shard_to_merge]
            one.close()
            other.close()
            made = AmazonsShard(
                1 + max(known._shard_id for known in self.shards.values()),
                min(one.starting_hash, other.starting_hash),
                max(one.ending_hash, other.ending_hash),
                parent=one.shard_id,
                adjacent_parent=other.shard_id,
            )
            self.shards[made.shard_id] = made


_get_iterator = moto_models.KinesisBackend.get_shard_iterator


def _iterator(self: Any, stream_arn: Any, stream_name: Any, shard_id: str, kind: str, number: Any, at: Any) -> str:
    if kind.endswith("SEQUENCE_NUMBER"):
        given = int(number)
        shard = self.describe_stream(stream_arn=stream_arn, stream_name=stream_name).get_shard(shard_id)
        is_edge = given in (shard.start, shard.end)
        if not is_edge and given & ((1 << 96) - 1) != (shard._shard_id << 4) | _VERSION:
            raise InvalidArgumentError(
                f"StartingSequenceNumber {number} used in GetShardIterator on shard {shard_id} is invalid."
            )
    made: str = _get_iterator(self, stream_arn, stream_name, shard_id, kind, number, at)
    return made


def _records(self: Any, stream_arn: Any, shard_iterator: str, limit: int | None) -> tuple[str | None, list[Any], int]:
    if _FAULTS:
        raise JsonRESTError(_FAULTS.popleft(), "a test lets this request fail")
    name, shard_id, last = moto_utils.decompose_shard_iterator(shard_iterator)
    shard = self.describe_stream(stream_arn=stream_arn, stream_name=name).get_shard(shard_id)
    found, at, behind = shard.get_records(last, limit)
    if name in _BUSY:
        shard.put_record("k", "bW9yZQ==", "")
    if not shard.is_open and not behind:
        return None, found, 0
    return moto_utils.compose_shard_iterator(name, shard, at), found, behind


@dataclass(slots=True, kw_only=True)
class KinesisServer:
    """A running server. ``client`` makes requests as any other program would."""

    endpoint: str
    client: Any
    faults: deque[str] = field(default_factory=lambda: _FAULTS)
    busy: set[str] = field(default_factory=lambda: _BUSY)
    """The names of streams that get another record after each request for records."""

    def create(self, stream: str, shards: int = 1) -> None:
        """Creates a stream."""
        self.client.create_stream(StreamName=stream, ShardCount=shards)

    def delete(self, stream: str) -> None:
        """Deletes a stream."""
        self.client.delete_stream(StreamName=stream)

    def put(self, stream: str, *records: tuple[str, bytes]) -> list[tuple[str, int]]:
        """Sends records with their partition keys; returns the shard and the sequence number of each."""
        found: list[tuple[str, int]] = []
        for first in range(0, len(records), 500):
            some = [{"Data": data, "PartitionKey": key} for key, data in records[first : first + 500]]
            answer = self.client.put_records(StreamName=stream, Records=some)
            found += [(each["ShardId"], int(each["SequenceNumber"])) for each in answer["Records"]]
        return found

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """The shards as the server lists them."""
        listed: list[dict[str, Any]] = self.client.list_shards(StreamName=stream)["Shards"]
        return listed

    def open_shards(self, stream: str) -> list[str]:
        """The ids of the open shards, by their hash keys."""
        listed = [shard for shard in self.shards(stream) if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return [
            shard["ShardId"] for shard in sorted(listed, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))
        ]

    def split(self, stream: str, shard: str) -> None:
        """Splits a shard in the middle."""
        (of,) = (each for each in self.shards(stream) if each["ShardId"] == shard)
        low, high = (int(of["HashKeyRange"][key]) for key in ("StartingHashKey", "EndingHashKey"))
        self.client.split_shard(
            StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(low + (high - low) // 2 + 1)
        )

    def merge(self, stream: str, one: str, other: str) -> None:
        """Merges two adjacent shards."""
        self.client.merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)

    def age(self, stream: str) -> None:
        """Makes the stream look older than its retention period from now on."""
        self._stream(stream).retention_period_hours = 0

    def keep(self, stream: str, *, hours: int, age_hours: int) -> None:
        """Sets the retention, as an operator does, and the age of the stream."""
        of = self._stream(stream)
        of.retention_period_hours = hours
        of.creation_datetime -= timedelta(hours=age_hours)

    def expire(self, stream: str, shard: str, *, upto: int) -> None:
        """Removes a shard's records before a sequence number, as the end of their retention period does. Makes the
        stream look older than this period (:meth:`age`)."""
        self.age(stream)
        with _LOCK:
            of = self._stream(stream).shards[shard]
            of.records = OrderedDict((number, record) for number, record in of.records.items() if number >= upto)

    def date(self, stream: str, shard: str, ages: Sequence[float]) -> None:
        """Sets the arrival times of a shard's records. ``ages`` has, for each record, the number of seconds since its
        arrival."""
        with _LOCK:
            for record, age in zip(self._stream(stream).shards[shard].records.values(), ages, strict=True):
                record.created_at = time.time() - age
                record.created_at_datetime = datetime.fromtimestamp(record.created_at, UTC).replace(tzinfo=None)

    def remove(self, stream: str, shard: str) -> None:
        """Removes a closed shard with all its records, as Kinesis does when the retention period of the records
        ends."""
        self.age(stream)
        with _LOCK:
            del self._stream(stream).shards[shard]

    def _stream(self, name: str) -> Any:
        for of_account in moto_models.kinesis_backends.values():
            for backend in of_account.values():
                if name in backend.streams:
                    return backend.streams[name]
        raise KeyError(name)


@contextmanager
def kinesis_running(port: int = 0) -> Iterator[KinesisServer]:
    """Runs a server in a thread of this process."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moto_models, "Shard", AmazonsShard)
        patch.setattr(moto_models, "Stream", AmazonsStream)
        patch.setattr(moto_models.KinesisBackend, "get_shard_iterator", _iterator)
        patch.setattr(moto_models.KinesisBackend, "get_records", _records)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        server.start()
        try:
            host, found = server.get_host_and_port()
            endpoint = f"http://{host}:{found}"
            client = boto3.client(
                "kinesis",
                endpoint_url=endpoint,
                region_name=REGION,
                aws_access_key_id="tests",
                aws_secret_access_key="tests-secret",
            )
            yield KinesisServer(endpoint=endpoint, client=client)
        finally:
            server.stop()


@pytest.fixture(scope="session")
def kinesis_server() -> Iterator[KinesisServer]:
    """A running server without authentication."""
    with kinesis_running() as running:
        yield running


def stream_options(server: KinesisServer, stream: str, **more: str) -> dict[str, str]:
    """The options of a source that reads a stream."""
    return {
        "stream": stream,
        "aws.region": REGION,
        "endpoint": server.endpoint,
        "aws.credentials.access_key_id": "tests",
        "aws.credentials.secret_access_key": "tests-secret",
        **more,
    }


def new_name() -> str:
    """The name of a stream that no other test uses."""
    return f"s-{uuid4().hex[:10]}"


def records(values: Sequence[bytes], key: str = "k") -> list[tuple[str, bytes]]:
    """Records with the same partition key."""
    return [(key, value) for value in values]


def now_ms() -> int:
    """The time in milliseconds since 1970."""
    return int(time.time() * 1000)
