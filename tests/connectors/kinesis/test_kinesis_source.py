"""The Kinesis connector on moto's server with Amazon's rules, without Spark: exact ranges, shards, expired records."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.kinesis import client as kinesis_client
from rw_sql.connectors.kinesis import poller, reader, shards
from rw_sql.connectors.kinesis.aggregation import MAGIC, hash_of
from rw_sql.connectors.kinesis.client import CLIENTS, address_of, stream_of
from rw_sql.connectors.kinesis.source import KinesisConnector, KinesisPartReader
from rw_sql.connectors.support.wide_offsets import MOST, offset_text
from rw_sql.errors import SqlError
from rw_sql.model.split_status import AHEAD, EXPIRED, OK, RECREATED, beginning, split_status
from tests.support.kinesis_server import KinesisServer, new_name, now_ms, records, stream_options
from tests.support.packed_records import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINESIS = KinesisConnector()
FIRST = "shardId-000000000000"


@pytest.fixture
def stream(kinesis_server: KinesisServer) -> Iterator[str]:
    """A stream of one shard."""
    name = new_name()
    kinesis_server.create(name)
    yield name
    kinesis_server.delete(name)


@pytest.fixture(autouse=True)
def _as_a_new_process() -> None:
    shards.TAILS.forget()


def options(server: KinesisServer, stream: str, **more: str) -> dict[str, str]:
    made = stream_options(server, stream, **more)
    KINESIS.check_options(made)
    CLIENTS.of(address_of(made))  # boto3 reads its models for seconds on a busy machine; a look has eight of them.
    return made


def read(
    given: Mapping[str, str], split: str, start: int, end: int, created: str | None = None
) -> list[dict[str, Any]]:
    tables = KinesisPartReader().read(given, (split, str(start), str(end), created))
    return [row for table in tables for row in table.to_pylist()]


def values(given: Mapping[str, str], split: str, start: int, end: int) -> list[bytes]:
    return [row["value"] for row in read(given, split, start, end)]


class Run:
    """A run of a source: it polls until nothing is left, and keeps what it read."""

    def __init__(self, given: Mapping[str, str], states: Mapping[str, SplitState], max_records: int = 400_000) -> None:
        self.given, self.states = given, dict(states)
        self.poller = poller.Poller(max_records=max_records)
        self.rows: list[dict[str, Any]] = []
        self.ranges: list[tuple[str, int, int]] = []

    def poll(self, *, is_read_again: bool = True) -> int:
        """One request per shard; the number of new ranges. Each range is read again from the server too."""
        found = self.poller.stretches(self.given, self.states)
        for one in found:
            state = self.states[one.split]
            assert one.start == state.offset
            kept = reader.FETCHED.get(KINESIS._fetched_key(self.given, one.split), one.start, one.end)
            assert kept is not None
            again = read(self.given, one.split, one.start, one.end, state.incarnation) if is_read_again else None
            assert again in (None, kept.to_pylist())
            self.rows += kept.to_pylist()
            self.ranges.append((one.split, one.start, one.end))
            self.states[one.split] = SplitState(
                split=one.split, offset=one.end, cluster=state.cluster, incarnation=state.incarnation
            )
        return len(found)

    def run(self) -> None:
        """Polls until nothing is new; then adopts new shards, as discovery does."""
        while self.poll() or self.discover():
            pass

    def discover(self) -> int:
        """Adopts shards that were made since."""
        seen = KINESIS.look(self.given).splits
        new = {split: beginning(found) for split, found in seen.items() if split not in self.states}
        self.states |= new
        return len(new)

    @property
    def values(self) -> list[bytes]:
        return [row["value"] for row in self.rows]


def begun(given: Mapping[str, str]) -> dict[str, SplitState]:
    return {split: beginning(found) for split, found in KINESIS.look(given).splits.items()}


@pytest.mark.kinesis
def test_a_range_is_read_exactly_and_again(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    split = KINESIS.look(given).splits[FIRST]
    assert (split.start, split.is_empty) == (split.end, True)
    sent = [b'{"n": %d}' % number for number in range(301)]
    numbers = [number for _, number in kinesis_server.put(stream, *records(sent))]
    assert len(str(numbers[0])) == 56
    # No float and no 64-bit integer tells them apart.
    assert len({float(number) for number in numbers[:100]}) < 100
    split = KINESIS.look(given).splits[FIRST]
    assert (split.start < numbers[0], split.end) == (True, numbers[-1] + 1)
    for first, last in ((0, 300), (0, 0), (300, 300), (99, 203), (7, 8)):
        for start in {numbers[first], (numbers[first - 1] + 1) if first else split.start}:
            rows = read(given, FIRST, start, numbers[last] + 1)
            assert [row["value"] for row in rows] == sent[first : last + 1]
            assert [int(row["_rw_offset"]) for row in rows] == numbers[first : last + 1]
            assert rows == read(given, FIRST, start, numbers[last] + 1)
    row = read(given, FIRST, numbers[3], numbers[3] + 1)[0]
    assert (row["_rw_split"], row["partition"], row["key"], row["headers"]) == (FIRST, FIRST, b"k", None)
    assert row["_rw_offset"] == offset_text(numbers[3])
    assert sorted(map(offset_text, numbers)) == [offset_text(number) for number in numbers]


@pytest.mark.kinesis
def test_a_range_may_end_at_any_record(kinesis_server: KinesisServer, stream: str) -> None:
    """After INJECT, the position is a record's own number, not one more than that of the record before it."""
    given = options(kinesis_server, stream)
    sent = [str(number).encode() for number in range(6)]
    numbers = [number for _, number in kinesis_server.put(stream, *records(sent))]
    for start in range(6):
        for end in range(start + 1, 6):
            assert values(given, FIRST, numbers[start], numbers[end]) == sent[start:end]
            assert values(given, FIRST, numbers[start] + 1, numbers[end]) == sent[start + 1 : end]
    # A record that the service does not have yet is not left out.
    with pytest.raises(OSError, match="EXPIRED"):
        values(given, FIRST, numbers[3], numbers[5] + 2)


def test_a_position_has_all_its_digits() -> None:
    offset = 49546986683135544286507457936321625675700192471156785154
    state = SplitState(split=FIRST, offset=offset, cluster="arn:x", incarnation="2026-01-01T00:00:00Z")
    text = KINESIS.encode_state(state)
    assert str(offset) in text
    assert KINESIS.decode_state(FIRST, text) == state
    assert KINESIS.decode_state(FIRST, str(offset)).offset == offset
    assert KINESIS.decode_state(FIRST, str(MOST)).offset == MOST
    for wrong in (str(MOST + 1), "9" * 500, "-1", "1e55", "4.9e55", '{"offset": 4.9e55}', '{"offset": "1"}'):
        with pytest.raises(SqlError, match="invalid state"):
            KINESIS.decode_state(FIRST, wrong)


@pytest.mark.kinesis
def test_a_run_reads_everything_once(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    run = Run(given, begun(given), max_records=10)
    sent = [b"%d" % number for number in range(37)]
    kinesis_server.put(stream, *records(sent))
    run.run()
    assert run.values == sent
    # At most the wanted number of records in each range, and one range follows the other.
    assert len(run.ranges) == 4
    assert all(one[2] == other[1] for one, other in zip(run.ranges, run.ranges[1:], strict=False))
    # A new process continues at the same place.
    again = Run(given, run.states)
    assert again.poll() == 0
    kinesis_server.put(stream, *records([b"x"]))
    again.run()
    assert again.values == [b"x"]
    assert KINESIS.look(given).splits[FIRST].end == again.states[FIRST].offset


@pytest.mark.kinesis
def test_children_are_read_after_their_parents(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    run = Run(given, begun(given), max_records=7)
    sent: list[bytes] = []

    def send(count: int) -> None:
        some = [(f"key{number % 5}", b"%d" % (len(sent) + number)) for number in range(count)]
        kinesis_server.put(stream, *some)
        sent.extend(value for _, value in some)

    send(20)
    run.poll()
    kinesis_server.split(stream, FIRST)
    send(20)
    run.poll()
    one, other = kinesis_server.open_shards(stream)
    kinesis_server.split(stream, one)
    send(20)
    kinesis_server.merge(stream, kinesis_server.open_shards(stream)[1], other)
    send(20)
    run.run()
    assert sorted(run.values, key=int) == sent
    assert len(run.rows) == len(sent)
    for key in {row["key"] for row in run.rows}:
        of_key = [int(row["value"]) for row in run.rows if row["key"] == key]
        assert of_key == sorted(of_key)
    closed = {split for split, state in run.states.items() if KINESIS.is_finished(state)}
    assert closed == set(run.states) - set(kinesis_server.open_shards(stream))
    assert all(split_status(run.states[split], found) == OK for split, found in KINESIS.look(given).splits.items())
    # A removed shard that was read completely lacks no record.
    kinesis_server.remove(stream, FIRST)
    assert Run(given, run.states).poll() == 0
    assert FIRST not in KINESIS.look(given).splits
    with pytest.raises(OSError, match=f"EXPIRED {FIRST}: the shard was removed before it was read completely"):
        Run(given, {**run.states, FIRST: SplitState(split=FIRST, offset=5)}).poll()


@pytest.mark.kinesis
def test_shards_made_later_begin_at_their_first_record(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream, **{"scan.startup.mode": "latest"})
    kinesis_server.put(stream, *records([b"old"]))
    split = KINESIS.look(given).splits[FIRST]
    run = Run(given, {FIRST: SplitState(split=FIRST, offset=KINESIS.start_offset(given, split, {}))})
    kinesis_server.split(stream, FIRST)
    kinesis_server.put(stream, *records([b"new"]))
    # Discovery takes the beginning, also if the stream is much older than its retention.
    kinesis_server.age(stream)
    run.run()
    assert run.values == [b"new"]


@pytest.mark.kinesis
def test_expired_records_are_reported(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    numbers = [number for _, number in kinesis_server.put(stream, *records([b"%d" % at for at in range(10)]))]
    here = beginning(KINESIS.look(given).splits[FIRST])
    life = here.incarnation

    def state(offset: int) -> SplitState:
        return SplitState(split=FIRST, offset=offset, cluster=here.cluster, incarnation=life)

    kinesis_server.expire(stream, FIRST, upto=numbers[5])
    split = KINESIS.look(given).splits[FIRST]
    assert (split.start, split.end) == (numbers[5], numbers[9] + 1)
    for lost in (here, state(numbers[3]), state(numbers[3] + 1), state(numbers[4])):
        assert split_status(lost, split) == EXPIRED
        with pytest.raises(OSError, match=f"EXPIRED {FIRST}"):
            Run(given, {FIRST: lost}).poll()
        with pytest.raises(OSError, match=f"EXPIRED {FIRST}"):
            read(given, FIRST, lost.offset, numbers[9] + 1)
    with pytest.raises(OSError, match=f"EXPIRED {FIRST}: the shard's first record is {numbers[5]}"):
        read(given, FIRST, numbers[1], numbers[2] + 1)
    for kept in (state(numbers[5]), state(numbers[5] + 1), state(numbers[9])):
        assert split_status(kept, split) == OK
        Run(given, {FIRST: kept}).run()
    # All of them are gone: nobody can tell whether there were more.
    running = Run(given, {FIRST: state(numbers[9] + 1)})
    assert running.poll() == 0
    kinesis_server.expire(stream, FIRST, upto=MOST)
    shards.TAILS.forget()
    split = KINESIS.look(given).splits[FIRST]
    assert split.is_empty
    assert split_status(state(numbers[9] + 1), split) == OK
    with pytest.raises(OSError, match="the shard has no records now"):
        Run(given, {FIRST: state(numbers[9] + 1)}).poll()
    # A run that has been reading all the time knows that it missed nothing.
    assert running.poll() == 0
    kinesis_server.put(stream, *records([b"later"]))
    running.poll(is_read_again=False)
    assert running.values == [b"later"]
    # The statement that helps, INJECT … TO EARLIEST, gives the beginning of the shard.
    earliest = beginning(KINESIS.look(given).splits[FIRST])
    run = Run(given, {FIRST: earliest})
    run.run()
    assert run.values == [b"later"]


@pytest.mark.kinesis
def test_an_idle_shard_is_continued_in_the_same_process(kinesis_server: KinesisServer, stream: str) -> None:
    """As after a rest, a statement or an error: all records are gone, and this process has seen that it had them."""
    given = options(kinesis_server, stream)
    kinesis_server.put(stream, *records([b"first"]))
    run = Run(given, begun(given))
    run.run()
    kinesis_server.expire(stream, FIRST, upto=MOST)
    again = Run(given, run.states)
    assert again.poll() == 0
    kinesis_server.put(stream, *records([b"later"]))
    again = Run(given, run.states)
    again.run()
    assert again.values == [b"later"]
    # So long ago, records that came since may be gone too.
    kinesis_server.expire(stream, FIRST, upto=MOST)
    address, offset = address_of(given), again.states[FIRST].offset
    shards.TAILS.forget()
    shards.TAILS.note_end(address, stream_of(address, stream, 10), FIRST, offset, now_ms() / 1000 - 24 * 3600)
    with pytest.raises(OSError, match="the shard has no records now"):
        Run(given, again.states).poll()


@pytest.mark.kinesis
def test_a_retention_that_was_raised_brings_nothing_back(kinesis_server: KinesisServer, stream: str) -> None:
    kinesis_server.keep(stream, hours=24, age_hours=72)
    given = options(kinesis_server, stream)
    numbers = [number for _, number in kinesis_server.put(stream, *records([b"%d" % at for at in range(10)]))]
    kinesis_server.expire(stream, FIRST, upto=numbers[5])
    kinesis_server.keep(stream, hours=168, age_hours=0)
    here = beginning(KINESIS.look(given).splits[FIRST])
    shards.TAILS.forget()
    with pytest.raises(OSError, match=f"EXPIRED {FIRST}: the shard's first record is {numbers[5]}"):
        Run(given, {FIRST: replace(here, offset=numbers[3])}).poll()
    run = Run(given, {FIRST: replace(here, offset=numbers[6])})
    run.run()
    assert run.values == [b"6", b"7", b"8", b"9"]


@pytest.mark.kinesis
@pytest.mark.parametrize("newest", [0, 60, 2_000, 9_000, 40_000])
def test_the_end_of_a_shard_is_found_without_reading_all_of_it(
    kinesis_server: KinesisServer, stream: str, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    """A shard returns 2 MB per second: what came in the hours before an idle time is far more than a look can read."""
    kinesis_server.keep(stream, hours=48, age_hours=40)
    given = options(kinesis_server, stream)
    count = 2_000
    numbers = [number for _, number in kinesis_server.put(stream, *records([b"x"] * count))]
    kinesis_server.date(stream, FIRST, [newest + 8 * (count - 1 - at) for at in range(count)])
    monkeypatch.setattr(shards, "AT_ONCE", 10)
    pages = []

    def counted(*args: Any) -> Any:
        pages.append(kinesis_client.next_page(*args))
        return pages[-1]

    monkeypatch.setattr(shards, "next_page", counted)
    split = KINESIS.look(given).splits[FIRST]
    assert split.end == numbers[-1] + 1
    assert len(pages) < 30, "instead of two hundred"


@pytest.mark.kinesis
def test_a_shard_that_is_written_to_all_the_time_has_an_end(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    kinesis_server.put(stream, *records([b"first"]))
    kinesis_server.busy.add(stream)
    try:
        for _ in range(2):
            seen = KINESIS.look(given)
            assert seen.error is None
            assert not seen.splits[FIRST].is_empty
    finally:
        kinesis_server.busy.discard(stream)


@pytest.mark.kinesis
def test_a_stream_that_was_created_again(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    kinesis_server.put(stream, *records([b"1"]))
    run = Run(given, begun(given))
    run.run()
    kinesis_server.delete(stream)
    assert KINESIS.look(given).missing == (stream,)
    kinesis_server.create(stream)
    kinesis_server.put(stream, *records([b"2"]))
    seen = KINESIS.look(given)
    assert split_status(run.states[FIRST], seen.splits[FIRST]) == RECREATED
    with pytest.raises(OSError, match=f"RECREATED {stream}"):
        Run(given, run.states).poll()
    state = run.states[FIRST]
    with pytest.raises(OSError, match=f"RECREATED {stream}"):
        read(given, FIRST, state.offset - 1, state.offset, state.incarnation)


@pytest.mark.kinesis
def test_a_position_behind_the_end(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    ((_, number),) = kinesis_server.put(stream, *records([b"1"]))
    split = KINESIS.look(given).splits[FIRST]
    assert split_status(SplitState(split=FIRST, offset=number + 2), split) == AHEAD


@pytest.mark.kinesis
def test_errors_that_pass_are_retried(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream, **{"kinesis.sdk.init_backoff_ms": "1"})
    run = Run(given, begun(given))
    kinesis_server.put(stream, *records([b"1"]))
    kinesis_server.faults.extend(["ProvisionedThroughputExceededException"] * 2)
    run.run()
    kinesis_server.put(stream, *records([b"2"]))
    kinesis_server.faults.append("ExpiredIteratorException")
    run.run()
    assert run.values == [b"1", b"2"]
    split = KINESIS.look(given).splits[FIRST]
    kinesis_server.faults.append("ExpiredIteratorException")
    assert values(given, FIRST, split.start, split.end) == [b"1", b"2"]
    # More of them than max_retry_limit end the run, which the job starts again.
    kinesis_server.faults.extend(["ProvisionedThroughputExceededException"] * 4)
    with pytest.raises(OSError, match="ProvisionedThroughputExceededException"):
        run.poll()
    assert run.poll() == 0


@pytest.mark.kinesis
def test_times(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    before = now_ms()
    ((_, first),) = kinesis_server.put(stream, *records([b"1"]))
    assert KINESIS.offsets_at(given, before - 1000, [FIRST]) == {FIRST: first}
    assert KINESIS.offsets_at(given, before + 3_600_000, [FIRST]) == {FIRST: first + 1}
    assert abs(KINESIS.record_times(given, {FIRST: first})[FIRST] - before) < 60_000
    assert KINESIS.record_times(given, {FIRST: first + 1}) == {}
    kinesis_server.split(stream, FIRST)
    found = KINESIS.offsets_at(given, before + 3_600_000, list(KINESIS.look(given).splits))
    assert found[FIRST] == shards.ENDED


@pytest.mark.kinesis
def test_what_the_service_answers(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    assert KINESIS.look({key: value for key, value in given.items() if key != "stream"}).is_reachable
    missing = KINESIS.look({**given, "stream": "nothing"})
    assert (missing.missing, missing.part) == (("nothing",), "stream")
    assert stream in missing.present
    nobody = {**given, "endpoint": "http://127.0.0.1:1", "kinesis.sdk.max_retry_limit": "0"}
    error = KINESIS.look(nobody, timeout=5).error
    assert error is not None
    assert "127.0.0.1:1" in error
    assert "tests-secret" not in error


@pytest.mark.kinesis
def test_packed_records_are_unpacked(kinesis_server: KinesisServer, stream: str) -> None:
    given = options(kinesis_server, stream)
    inner = [(f"key{number % 3}", b'{"n": %d}' % number) for number in range(300)]
    kinesis_server.put(stream, ("a", b"plain"), ("b", packed(*inner)), ("c", MAGIC + b"not packed, only so begun"))
    split = KINESIS.look(given).splits[FIRST]
    rows = read(given, FIRST, split.start, split.end)
    assert [row["value"] for row in rows[1:-1]] == [data for _, data in inner]
    assert [row["key"].decode() for row in rows[1:-1]] == [key for key, _ in inner]
    assert rows[-1]["value"].startswith(MAGIC)
    offsets = [row["_rw_offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    # All of a record's parts are in the same ranges as the record.
    number = int(rows[1]["_rw_offset"].partition("/")[0])
    assert all(offset_text(number) <= offset < offset_text(number + 1) for offset in offsets[1:-1])
    # After a split, a record that was packed for the whole is in both children's reach once.
    kinesis_server.split(stream, FIRST)
    for shard in kinesis_server.open_shards(stream):
        kinesis_server.client.put_record(
            StreamName=stream,
            PartitionKey="x",
            ExplicitHashKey=next(
                each["HashKeyRange"]["StartingHashKey"]
                for each in kinesis_server.shards(stream)
                if each["ShardId"] == shard
            ),
            Data=packed(*inner),
        )
    children = KINESIS.look(given).splits
    found = [
        row
        for shard in kinesis_server.open_shards(stream)
        for row in read(given, shard, children[shard].start, children[shard].end)
    ]
    assert sorted(json.loads(row["value"])["n"] for row in found) == list(range(300))
    low = {split: shard.low for split, shard in stream_of(address_of(given), stream, 5).shards.items()}
    assert all(hash_of(row["key"].decode()) >= low[row["_rw_split"]] for row in found)


@pytest.mark.kinesis
def test_a_role_is_assumed(kinesis_server: KinesisServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", kinesis_server.endpoint)
    role = "arn:aws:iam::123456789012:role/reader"
    given = options(
        kinesis_server,
        stream,
        **{"aws.credentials.role.arn": role, "aws.credentials.role.external_id": "x-1"},
    )
    kinesis_server.put(stream, *records([b"1"]))
    seen = KINESIS.look(given)
    assert seen.error is None
    split = seen.splits[FIRST]
    assert values(given, FIRST, split.start, split.end) == [b"1"]
    # The requests have the role's keys, not those of the options.
    credentials = CLIENTS.of(address_of(given))._get_credentials()
    assert credentials.access_key != "tests"
    assert credentials.token
