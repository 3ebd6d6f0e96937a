"""The rows of unread commits that stay in memory: which are kept, and which are forgotten."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rw_sql.runtime.observe import row_counts
from rw_sql.runtime.observe.row_counts import CommitRows, Kind, RowCounts, RowSum

KIND: Kind = ("/w/data/3/1", "", None, False)
OTHER: Kind = ("/w/data/5/1", "", None, False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the counts see."""
    now = [0.0]
    monkeypatch.setattr("rw_sql.runtime.observe.row_counts.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def rows(number: int | None, at_ms: int | None = 7) -> CommitRows:
    return CommitRows(rows=number, at_ms=at_ms)


def test_the_sum_ends_at_the_first_commit_that_is_not_known() -> None:
    counts = RowCounts()
    assert counts.sum_from(KIND, 5, 9) == RowSum(end=5, passed=5)
    for version, number, at_ms in ((5, 0, 50), (6, 3, None), (7, 2, 70), (9, 1, 90)):
        assert counts.put(KIND, version, rows(number, at_ms))
    assert counts.sum_from(KIND, 5, 9) == RowSum(end=8, passed=6, rows=5, since_ms=70)
    assert counts.sum_from(KIND, 5, 6) == RowSum(end=7, passed=6, rows=3, since_ms=None)
    assert counts.get(KIND, 8) is None
    assert counts.put(KIND, 8, rows(None))
    assert counts.sum_from(KIND, 7, 9) == RowSum(end=10, passed=7, rows=None, since_ms=70)
    assert counts.sum_from(KIND, 5, 5) == RowSum(end=6, passed=6)


def test_a_sum_over_commits_equals_the_sum_of_what_is_kept() -> None:
    counts, summed = RowCounts(), RowSum(end=5, passed=5)
    for version, found in enumerate((rows(0), rows(2, None), rows(0), rows(4, 40), rows(1, 50)), 5):
        counts.put(KIND, version, found)
        summed = summed.plus(found)
        assert counts.sum_from(KIND, 5, 99) == summed


def test_a_rewound_reader_reads_only_the_commits_that_were_forgotten() -> None:
    counts = RowCounts()
    counts.put(KIND, 8, rows(1))
    counts.put(KIND, 5, rows(2))
    assert counts.sum_from(KIND, 5, 9) == RowSum(end=6, passed=5, rows=2, since_ms=7)
    assert counts.get(KIND, 8) == rows(1)


def test_commits_that_no_reader_needs_for_a_while_are_forgotten(clock: list[float]) -> None:
    counts = RowCounts()
    for version in range(20):
        counts.put(KIND, version, rows(1))
    for _ in range(6):
        clock[0] += 200
        counts.sum_from(KIND, 12, 19)
        counts.sum_from(KIND, 4, 19)  # another reader
    assert counts.get(KIND, 3) is None
    assert counts.sum_from(KIND, 4, 19).rows == 16
    for _ in range(6):
        clock[0] += 200
        counts.sum_from(KIND, 12, 19)
    assert counts.get(KIND, 11) is None
    assert counts.sum_from(KIND, 12, 19).rows == 8


def test_counts_that_are_needed_are_never_forgotten_for_others(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(row_counts, "_MOST_COUNTED", 10)
    counts = RowCounts()
    for version in range(7):
        assert counts.put(KIND, version, rows(1))
    assert [counts.put(OTHER, version, rows(1)) for version in range(4)] == [True, True, True, False]
    assert counts.put(OTHER, 1, rows(2)), "it has a place already"
    assert counts.sum_from(KIND, 0, 6).rows == 7
    clock[0] += 2000
    counts.sum_from(OTHER, 0, 6)
    assert counts.put(OTHER, 3, rows(1)), "the first reader has ended"
    assert counts.get(KIND, 0) is None
