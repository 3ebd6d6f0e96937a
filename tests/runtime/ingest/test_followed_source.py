"""The next small batch of a source that is followed: from the records that have arrived, or by asking for the ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.ingest import followed as module
from rw_sql.runtime.ingest.followed import MOST_SPLITS, FollowedSource, may_follow
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.jobs.rate_limit import BatchLimits
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from rw_sql.connectors.base import Connector

PACE = BatchLimits(interval_ms=0, batch_records=100)


@dataclass
class _Upstream:
    """A fetcher and a connector with these answers."""

    answers: list[dict[str, int] | None] = field(default_factory=list)
    ends: dict[str, int] | OSError = field(default_factory=dict)
    asked: int = 0
    followed: list[dict[str, int]] = field(default_factory=list)

    def follow(self, positions: dict[str, int]) -> None:
        self.followed.append(positions)

    def arrived(self, _: float, *, most: int) -> dict[str, int] | None:
        assert most == PACE.batch_records
        return self.answers.pop(0) if self.answers else {}

    def pooled_ends(self, _options: object, splits: tuple[str, ...]) -> dict[str, int]:
        assert splits == ("t:0", "t:1")
        self.asked += 1
        if isinstance(self.ends, OSError):
            raise self.ends
        return self.ends


@dataclass
class _Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def source_of(upstream: _Upstream, same: Any = lambda: None) -> FollowedSource:
    made = FollowedSource(
        kind=cast("Any", upstream),
        options={},
        fetcher=cast("Any", upstream),
        positions={"t:0": 5, "t:1": 7},
        most=PACE.batch_records,
        require_same=same,
    )
    assert made.begin()
    upstream.asked = 0
    return made


def test_arrived_records_are_the_next_batch(clock: _Clock) -> None:
    upstream = _Upstream(answers=[{"t:1": 9}, {}, {"t:0": 5}])
    source = source_of(upstream)
    assert upstream.followed == [{"t:0": 5, "t:1": 7}]
    assert source.has_next()
    assert source.ends == {"t:1": 9}
    assert not source.has_next()
    assert not source.has_next()
    assert upstream.asked == 0


def test_a_backlog_is_not_fetched(clock: _Clock) -> None:
    upstream = _Upstream()
    source = source_of(upstream)
    upstream.followed.clear()
    upstream.ends = {"t:0": 5, "t:1": 7 + SMALL_ROWS + 1}
    assert not source.begin()
    assert upstream.followed == []
    upstream.ends = {"t:0": 0, "t:1": 7 + SMALL_ROWS}
    assert source.begin()
    assert upstream.followed == [{"t:0": 5, "t:1": 7}]


def test_the_ends_are_asked_for_while_nothing_arrives(clock: _Clock) -> None:
    upstream = _Upstream(ends={"t:0": 5, "t:1": 7})
    source = source_of(upstream)
    for second in range(1, 4):
        clock.now += 1
        assert not source.has_next()
        assert not source.has_next()
        assert upstream.asked == second
    upstream.ends = {"t:0": 6, "t:1": 7}
    clock.now += 1
    assert source.has_next()
    assert source.ends == {"t:0": 6}


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ({"t:0": 5}, "the ends of t:1 are unknown"),
        ({"t:0": 5, "t:1": 6}, "the ends of t:1 are before the positions"),
        (ConnectionError("no broker answers"), "no broker answers"),
    ],
)
def test_ends_that_remain_unknown_end_the_run(clock: _Clock, ends: Any, told: str) -> None:
    upstream = _Upstream(ends=ends)
    source = source_of(upstream)
    for _ in range(5):
        clock.now += 1
        assert not source.has_next()
    clock.now += 1
    with pytest.raises(ConnectionError, match=told):
        source.has_next()


def test_a_short_trouble_does_not_end_the_run(clock: _Clock) -> None:
    upstream = _Upstream(ends=ConnectionError("no broker answers"))
    source = source_of(upstream)
    for _ in range(3):
        clock.now += 3
        assert not source.has_next()
        upstream.ends = {"t:0": 5, "t:1": 7}
        clock.now += 1
        assert not source.has_next()
        upstream.ends = {"t:0": 5}


def test_a_deleted_topic_is_reported_as_the_reader_reports_it(clock: _Clock) -> None:
    def gone() -> None:
        raise StalledError("MISSING t: it does not exist now")

    source = source_of(_Upstream(ends={}), gone)
    clock.now += 1
    with pytest.raises(StalledError, match="MISSING t"):
        source.has_next()


def test_what_is_not_small_or_cannot_be_fetched_is_left_to_spark(clock: _Clock) -> None:
    source = source_of(_Upstream(answers=[{"t:0": 5 + SMALL_ROWS}, {"t:0": 5 + SMALL_ROWS, "t:1": 8}, None]))
    assert source.has_next()
    with pytest.raises(LeftToSparkError, match="not small"):
        source.has_next()
    with pytest.raises(LeftToSparkError, match="given up"):
        source.has_next()


def test_which_sources_are_followed() -> None:
    kafka = KafkaConnector()
    fetcher = kafka.fetcher({"topic": "t", "properties.bootstrap.server": "a:1"})
    assert may_follow(kafka, fetcher, MOST_SPLITS, PACE)
    assert not may_follow(kafka, fetcher, MOST_SPLITS + 1, PACE)
    assert not may_follow(kafka, fetcher, 1, BatchLimits(interval_ms=0, batch_records=100, per_second=5))
    assert not may_follow(kafka, None, 1, PACE)
    assert not may_follow(kafka, kafka.fetcher({}, with_headers=True), 1, PACE)
    assert not may_follow(cast("Connector", object()), fetcher, 1, PACE)
