"""The ranges that a process has read, and that sources of one split share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.support.records.fetched_ranges import FetchedRanges

if TYPE_CHECKING:
    import pytest

SCHEMA = pa.schema([("n", pa.int64())])


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers)}, schema=SCHEMA)


def numbers(found: pa.Table | None) -> list[int] | None:
    return None if found is None else found.column("n").to_pylist()


def test_two_sources_that_read_different_numbers_of_records_keep_their_ranges() -> None:
    kept = FetchedRanges(SCHEMA, 1_000_000)
    kept.put("s", 0, 2, table(0, 1))
    kept.put("s", 0, 3, table(0, 1, 2))
    assert numbers(kept.get("s", 0, 2)) == [0, 1]
    assert numbers(kept.get("s", 0, 3)) == [0, 1, 2]
    kept.put("s", 2, 5, table(2, 3, 4))
    assert numbers(kept.get("s", 0, 5)) == [0, 1, 2, 3, 4], "the range [0, 3) is not followed by another range"
    assert kept.get("s", 0, 4) is None
    assert numbers(kept.get("s", 4, 4)) == []
    assert kept.get("other", 0, 2) is None


def test_the_number_of_records_stays_known_when_the_records_are_dropped() -> None:
    kept = FetchedRanges(SCHEMA, table(0, 1).nbytes)
    for start in range(0, 10, 2):
        kept.put("s", start, start + 2, table(start, start + 1))
    assert kept.get("s", 0, 2) is None
    assert numbers(kept.get("s", 8, 10)) == [8, 9]
    assert kept.count("s", 0, 2) == 2
    assert kept.count("s", 0, 10) == 10
    assert kept.count("s", 0, 11) is None


def test_records_of_another_incarnation_are_not_returned() -> None:
    kept = FetchedRanges(SCHEMA, 1_000_000)
    kept.put("s", 0, 2, table(0, 1), "a")
    assert kept.get("s", 0, 2, "b") is None
    assert numbers(kept.get("s", 0, 2, "a")) == numbers(kept.get("s", 0, 2)) == [0, 1]
    kept.put("s", 0, 2, table(7, 8), "b")
    assert numbers(kept.get("s", 0, 2, "b")) == [7, 8]
    assert kept.get("s", 0, 2, "a") is None


def test_few_ranges_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.connectors.support.records.fetched_ranges._MOST_RANGES", 3)
    kept = FetchedRanges(SCHEMA, 1_000_000)
    for start in range(5):
        kept.put("s", start, start + 1, table(start))
    assert kept.count("s", 1, 2) is None
    assert kept.count("s", 2, 5) == 3
