"""The ranges that batches of a stream stand for, distributed in this process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.base import SplitState, Stretch
from rw_sql.connectors.support.records.range_stream import RangeFeed, take
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Upstream:
    """Two splits, whose ends a test moves."""

    def __init__(self) -> None:
        self.ends = {"a": 5, "b": 9}
        self.error: Exception | None = None
        self.looks = 0

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return tuple(
            Stretch(split=split, start=positions[split].offset, end=end)
            for split, end in self.ends.items()
            if end > positions[split].offset
        )


BEGIN = {split: SplitState(split=split, offset=0, cluster="c") for split in ("a", "b")}


class Feed:
    """A feed, and the entries that it added."""

    def __init__(self, upstream: Upstream, poll_seconds: float | None, most: int = 8) -> None:
        self.entries: list[str] = []
        left = upstream.stretches({}, BEGIN)
        self.feed = RangeFeed(upstream, {}, BEGIN, left, most_offsets=most, poll_seconds=poll_seconds)
        self.feed.begin(lambda: self.entries.append(str(len(self.entries))))

    def next(self) -> dict[str, tuple[int, int]]:
        """The ranges of the newest entry, once there is one more than were taken."""
        wait_until(lambda: len(self.entries) > self.taken, "an entry is added")
        self.taken = len(self.entries)
        return self.feed.take(self.entries[-1])

    taken = 0


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture(params=[None, 0.01], ids=["what there is", "what comes too"])
def fed(request: pytest.FixtureRequest, upstream: Upstream) -> Iterator[Feed]:
    made = Feed(upstream, request.param)
    yield made
    made.feed.close()


def test_each_batch_has_ranges_of_its_own_and_one_waits_ahead(fed: Feed) -> None:
    assert fed.entries == ["0"]
    assert fed.next() == {"a": (0, 5), "b": (0, 3)}
    wait_until(lambda: fed.entries == ["0", "1"], "the next entry waits for its batch")
    assert fed.next() == {"b": (3, 9)}


def test_a_batch_of_two_entries_has_the_ranges_of_both(upstream: Upstream) -> None:
    fed = Feed(upstream, None)
    assert fed.feed.take("0") == {"a": (0, 5), "b": (0, 3)}
    wait_until(lambda: len(fed.entries) == 2, "the second entry is added")
    upstream.ends["b"] = 12
    assert fed.feed.take("1") == {"b": (3, 9)}
    # Nothing more is looked for, and the thread ends.
    wait_until(lambda: not any(t.name == "rw_sql-ranges" for t in threading.enumerate()), "its thread has ended")
    assert upstream.looks == 1


def test_later_records_are_found_from_the_position(upstream: Upstream) -> None:
    fed = Feed(upstream, 0.01, most=100)
    assert fed.next() == {"a": (0, 5), "b": (0, 9)}
    wait_until(lambda: upstream.looks > 2, "it looks again and again")
    assert fed.entries == ["0"]
    upstream.ends["a"] = 7
    assert fed.next() == {"a": (5, 7)}
    fed.feed.close()
    wait_until(lambda: not any(t.name == "rw_sql-ranges" for t in threading.enumerate()), "its thread has ended")


def test_a_look_that_fails_fails_the_batch_that_is_added_for_it(upstream: Upstream) -> None:
    fed = Feed(upstream, 0.01, most=100)
    fed.next()
    upstream.error = OSError("version 3 of orders changes existing rows")
    with pytest.raises(OSError, match="version 3 of orders changes existing rows"):
        fed.next()
    wait_until(lambda: not any(t.name == "rw_sql-ranges" for t in threading.enumerate()), "its thread has ended")
    assert len(fed.entries) == 2


def test_several_ranges_of_one_split_are_all_read() -> None:
    left = [("a", 0, 3, True), ("a", 3, 5, True), ("b", 0, 2, False), ("a", 7, 9, False)]
    assert take(left, 100) == {"a": (0, 5), "b": (0, 2)}
    assert take(left, 100) == {"a": (7, 9)}
    assert left == []
