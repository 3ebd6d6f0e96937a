"""The limits, rates, ends and tasks of the generator's reader. Without Spark's JVM."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.datagen.plan import plan_rows
from rw_sql.connectors.datagen.reader import DatagenStreamReader, ReadLimit, ReadMaxRows, UnaskedStreamReader, share_out
from rw_sql.connectors.spec import load_spec

SPEC = load_spec("datagen")


def reader_options(
    options: dict[str, str], positions: dict[str, int], *, rate: str = "", tasks: int = 4
) -> dict[str, str]:
    return {
        "plan": plan_rows(SPEC, options, None).to_json(),
        "positions": json.dumps(positions),
        "rate": rate,
        "maxrows": "100",
        "tasks": str(tasks),
    }


def reader(
    options: dict[str, str], positions: dict[str, int], *, rate: str = "", tasks: int = 4
) -> DatagenStreamReader:
    return DatagenStreamReader(reader_options(options, positions, rate=rate, tasks=tasks))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(0, 5000))
def test_a_limit_is_shared_out_fairly(left: list[int], most: int) -> None:
    shared = share_out(np.array(left, dtype=np.int64), most)
    assert int(shared.sum()) == min(most, sum(left))
    assert all(0 <= got <= had for got, had in zip(shared, left, strict=True))
    full = max((int(got) for got in shared), default=0)
    assert all(got == had or got >= full - 1 for got, had in zip(shared, left, strict=True))


def test_a_reader_reads_to_the_end_and_stays_there() -> None:
    one = reader({"datagen.rows.total": "250", "datagen.split.num": "2"}, {"2-0": 0, "2-1": 100})
    at, seen = one.initialOffset(), []
    limit = one.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 100
    while (end := one.latestOffset(at, one.getDefaultReadLimit())) != at:
        assert sum(end.values()) - sum(at.values()) <= 100
        at = end
        seen.append(end)
    assert at == {"2-0": 125, "2-1": 125}
    assert seen == [{"2-0": 75, "2-1": 125}, {"2-0": 125, "2-1": 125}]
    assert one.latestOffset(one.initialOffset(), ReadLimit()) == at


def test_without_limits_from_spark_each_batch_starts_where_the_planned_one_ends() -> None:
    one = UnaskedStreamReader(reader_options({"datagen.rows.total": "250"}, {"1-0": 0}))
    at, ends = one.initialOffset(), []
    while (end := one.latestOffset()) != at:
        assert one.latestOffset() == end
        assert one.initialOffset() == {"1-0": 0}
        one.partitions(at, end)
        ends.append(end["1-0"])
        at = end
    assert ends == [100, 200, 250]


def test_a_position_beyond_the_end_stays() -> None:
    one = reader({"datagen.rows.total": "10"}, {"1-0": 12})
    assert one.latestOffset({"1-0": 12}, ReadMaxRows(5)) == {"1-0": 12}


def test_only_the_given_splits_are_read() -> None:
    one = reader({"datagen.rows.total": "9", "datagen.split.num": "3"}, {"3-1": 1})
    assert one.latestOffset(one.initialOffset(), ReadLimit()) == {"3-1": 3}


def test_a_rate_counts_from_the_position_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("rw_sql.connectors.datagen.reader.time.monotonic", lambda: now[0])
    one = reader({"datagen.split.num": "2"}, {"2-0": 50, "2-1": 10}, rate="10")
    at = one.initialOffset()
    assert one.latestOffset(at, ReadLimit()) == {"2-0": 50, "2-1": 10}
    now[0] += 0.1
    assert one.latestOffset(at, ReadLimit()) == {"2-0": 51, "2-1": 10}
    now[0] += 0.9
    assert one.latestOffset(at, ReadLimit()) == {"2-0": 55, "2-1": 15}
    one.prepareForTriggerAvailableNow()
    now[0] += 60
    assert one.latestOffset({"2-0": 55, "2-1": 15}, ReadLimit()) == {"2-0": 55, "2-1": 15}


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_tasks_share_the_rows_without_gap_or_overlap(tasks: int) -> None:
    one = reader({"datagen.rows.total": "300000", "datagen.split.num": "3"}, {}, tasks=tasks)
    start, end = {"3-0": 0, "3-1": 99_000, "3-2": 5}, {"3-0": 100_000, "3-1": 100_000, "3-2": 5}
    parts = one.partitions(start, end)
    assert len(parts) == min(tasks, 3)
    offsets: dict[str, list[int]] = {"3-0": [], "3-1": []}
    for part in parts:
        for batch in one.read(part):
            for split, offset in zip(batch["_rw_split"].to_pylist(), batch["_rw_offset"].to_pylist(), strict=True):
                offsets[split].append(offset)
    assert offsets == {"3-0": list(range(100_000)), "3-1": list(range(99_000, 100_000))}


def test_nothing_new_needs_no_task() -> None:
    one = reader({"datagen.rows.total": "3"}, {"1-0": 3})
    assert one.partitions({"1-0": 3}, {"1-0": 3}) == []
