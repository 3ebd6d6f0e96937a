"""How much of a shard's read capacity the Kinesis connector uses to find the shard's bounds. A fake of the service with
its documented limits, and a clock that does not wait."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.kinesis import client, poller, reader, shards, source
from rw_sql.connectors.support.records.range_stream import LostRecordsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KINESIS = source.KinesisConnector()
OPTIONS = {"stream": "s", "aws.region": "r"}
DAY = 86_400
MIB = 2**20
_NOW = 1_800_000_000.0
_FIRST = 2_000


class Clock:
    """The module ``time``, of which only the fake's requests take any."""

    now = _NOW

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Shard:
    """A shard with ``count`` records that arrived evenly within ``span`` seconds; the newest is ``age`` seconds old."""

    def __init__(self, count: int, size: int, age: float, span: float) -> None:
        self.times = [_NOW - age - span * (count - 1 - at) / count for at in range(count)]
        self.data = b"x" * size
        self.read_at: list[tuple[float, int]] = []
        self.bytes = 0

    def page(self, now: float, at: int, limit: int) -> int:
        """The number of records in a response; -1 if the limits refuse the request."""
        recent = [size for then, size in self.read_at if now - then < 1.0]
        blocked = any(size >= 10 * MIB and now - then < 5.0 for then, size in self.read_at)
        if blocked or len(recent) >= 5 or sum(recent) >= 2 * MIB:
            return -1
        count = max(0, min(limit, len(self.times) - at, 10 * MIB // len(self.data)))
        self.read_at.append((now, count * len(self.data)))
        self.bytes += count * len(self.data)
        return count


class Service:
    """The requests of boto3's client that the connector makes."""

    def __init__(self, clock: Clock, known: dict[str, Shard]) -> None:
        self.clock, self.known = clock, known
        self.threads = 0

    def describe_stream_summary(self, **_: Any) -> dict[str, Any]:
        created = datetime.fromtimestamp(_NOW - 90 * DAY, UTC)
        return {
            "StreamDescriptionSummary": {
                "StreamARN": "arn",
                "StreamCreationTimestamp": created,
                "RetentionPeriodHours": 24,
            }
        }

    def list_shards(self, **_: Any) -> dict[str, Any]:
        hashes = {"StartingHashKey": "0", "EndingHashKey": "9"}
        number = {"StartingSequenceNumber": "1000"}
        return {
            "Shards": [{"ShardId": id_, "SequenceNumberRange": number, "HashKeyRange": hashes} for id_ in self.known]
        }

    def get_shard_iterator(self, *, ShardId: str, ShardIteratorType: str, **given: Any) -> dict[str, str]:  # noqa: N803
        self.clock.now += 0.02
        at = 0
        if ShardIteratorType == "AT_TIMESTAMP":
            moment = given["Timestamp"].timestamp()
            times = self.known[ShardId].times
            at = next((index for index, then in enumerate(times) if then >= moment), len(times))
        elif ShardIteratorType != "TRIM_HORIZON":
            at = int(given["StartingSequenceNumber"]) - _FIRST + ShardIteratorType.startswith("AFTER")
        return {"ShardIterator": f"{ShardId}/{at}"}

    def get_records(self, *, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803
        self.clock.now += 0.02
        id_, _, text = ShardIterator.partition("/")
        shard, at = self.known[id_], int(text)
        count = shard.page(self.clock.now, at, Limit)
        if count < 0:
            code = "ProvisionedThroughputExceededException"
            raise ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "GetRecords")
        end = at + count
        behind = 0 if end >= len(shard.times) else 1 + int(1000 * (self.clock.now - shard.times[end]))
        records = [
            {
                "SequenceNumber": str(_FIRST + index),
                "PartitionKey": "k",
                "Data": shard.data,
                "ApproximateArrivalTimestamp": datetime.fromtimestamp(shard.times[index], UTC),
            }
            for index in range(at, end)
        ]
        return {"Records": records, "NextShardIterator": f"{id_}/{end}", "MillisBehindLatest": behind}


class OneByOne:
    """A ThreadPoolExecutor without threads, because the clock is shared."""

    most = 0

    def __init__(self, threads: int) -> None:
        OneByOne.most = max(OneByOne.most, threads)

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, act: Any, each: Iterable[Any]) -> Iterator[Any]:
        return map(act, each)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (client, shards, source, reader, poller):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(shards, "ThreadPoolExecutor", OneByOne)
    monkeypatch.setattr(OneByOne, "most", 0)
    shards.TAILS.forget()
    return made


@pytest.fixture
def serve(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the connector use a fake with these shards."""

    def begin(*known: Shard) -> None:
        service = Service(clock, {f"shardId-{at:012}": shard for at, shard in enumerate(known)})
        monkeypatch.setattr(client, "CLIENTS", SimpleNamespace(of=lambda address: service, renew=lambda address: None))

    return begin


@pytest.mark.parametrize(
    "shard",
    [
        Shard(20_000, 1_024, age=1, span=0.99 * DAY),
        Shard(20_000, 1_024, age=3_600, span=0.9 * DAY),
        Shard(20_000, 4_096, age=7_200, span=4 * 3_600),
        Shard(2_000, 100_000, age=7_200, span=4 * 3_600),
        Shard(50, 1_000_000, age=40_000, span=3_600),
        Shard(1, 1_024, age=80_000, span=1),
    ],
    ids=["busy", "quiet for an hour", "busy until two hours ago", "large records", "few huge records", "one record"],
)
@pytest.mark.parametrize("timeout", [8.0, 2.0])
def test_a_look_at_an_old_stream_leaves_the_shards_capacity_to_its_readers(
    clock: Clock, serve: Any, shard: Shard, timeout: float
) -> None:
    serve(shard)
    shard.read_at.clear()
    last = _FIRST + len(shard.times) - 1
    first = KINESIS.look(OPTIONS)
    assert first.error is None
    for _ in range(3):
        clock.now += 1.0
        shard.bytes, began = 0, clock.now
        seen = KINESIS.look(OPTIONS, timeout=timeout)
        assert seen.error is None
        assert (seen.splits["shardId-000000000000"].start, seen.splits["shardId-000000000000"].end) == (
            _FIRST,
            last + 1,
        )
        assert shard.bytes <= len(shard.data)
        assert clock.now - began < 0.5


def test_the_first_look_of_a_process_reads_little(clock: Clock, serve: Any) -> None:
    shard = Shard(20_000, 4_096, age=7_200, span=4 * 3_600)
    serve(shard)
    assert KINESIS.look(OPTIONS).error is None
    assert shard.bytes < MIB
    assert clock.now - _NOW < 6.0


def test_a_position_is_checked_and_timed_with_one_record(clock: Clock, serve: Any) -> None:
    shard = Shard(20_000, 1_024, age=60, span=0.99 * DAY)
    serve(shard)
    split = "shardId-000000000000"
    offset = _FIRST + 10_000
    assert KINESIS.record_times(OPTIONS, {split: offset}) == {split: int(shard.times[10_000] * 1000)}
    assert KINESIS.offsets_at(OPTIONS, int(shard.times[15_000] * 1000), [split]) == {split: _FIRST + 15_000}
    address = client.address_of(OPTIONS)
    stream = client.stream_of(address, "s", 5)
    reader.require_whole(address, "s", stream, stream.shards[split], offset)
    assert shard.bytes <= 4 * len(shard.data)


def test_the_shards_of_a_large_stream_are_searched_for_a_time_in_several_threads(clock: Clock, serve: Any) -> None:
    serve(*(Shard(10, 100, age=60, span=600) for _ in range(30)))
    found = KINESIS.offsets_at(OPTIONS, int((_NOW - 300) * 1000), [f"shardId-{at:012}" for at in range(30)])
    assert len(found) == 30
    assert OneByOne.most == shards.THREADS


def test_a_run_at_an_emptied_shard_ends_with_the_shard(clock: Clock, serve: Any) -> None:
    serve(Shard(10, 100, age=60, span=600), Shard(0, 1, age=0, span=0))
    one, empty = KINESIS.look(OPTIONS).splits.values()
    assert (one.is_empty, empty.is_empty) == (False, True)
    states = {each.split: SplitState(split=each.split, offset=_FIRST + 5) for each in (one, empty)}
    with pytest.raises(LostRecordsError, match="the shard has no records now") as caught:
        KINESIS.range_feed(OPTIONS, states, max_records=None)
    assert (caught.value.split, caught.value.is_certain) == (empty.split, True)


def test_the_first_look_at_a_short_burst_is_quick(clock: Clock, serve: Any) -> None:
    shard = Shard(300, 200, age=1_700, span=3)
    serve(shard)
    seen = KINESIS.look(OPTIONS, timeout=2.0)
    assert seen.error is None
    assert seen.splits["shardId-000000000000"].end == _FIRST + 300
    assert len(shard.read_at) <= 5


def test_a_client_that_sends_times_in_whole_seconds_needs_few_requests(
    clock: Clock, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As old versions of botocore do. The first records are then older than the time."""
    exact = Service.get_shard_iterator

    def rounded(service: Service, **given: Any) -> dict[str, str]:
        if "Timestamp" in given:
            given["Timestamp"] = given["Timestamp"].replace(microsecond=0)
        return exact(service, **given)

    monkeypatch.setattr(Service, "get_shard_iterator", rounded)
    shard = Shard(20_000, 100, age=60, span=200)
    serve(shard)
    at = next(index for index, then in enumerate(shard.times) if then > _NOW - 100 and then % 1 >= 0.9)
    assert KINESIS.offsets_at(OPTIONS, int(shard.times[at] * 1000), ["shardId-000000000000"])
    assert len(shard.read_at) <= 5
