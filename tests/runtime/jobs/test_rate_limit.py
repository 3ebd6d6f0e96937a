"""The limits that follow from a rate and an interval, and a rate that holds over any number of batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from rw_sql.runtime.jobs.rate_limit import BATCH_RECORDS, BatchLimits, Throttle, pace_of
from rw_sql.runtime.spark.sessions import polling_delay_ms
from tests.support.waits import LAST_RESORT_SECONDS


@pytest.mark.parametrize(
    ("options", "pace"),
    [
        ({}, BatchLimits(interval_ms=0, batch_records=BATCH_RECORDS)),
        ({"barrier_interval_ms": "250"}, BatchLimits(interval_ms=250, batch_records=BATCH_RECORDS)),
        ({"source_rate_limit": "10"}, BatchLimits(interval_ms=1000, batch_records=10, per_second=10)),
        (
            {"source_rate_limit": "10", "barrier_interval_ms": "2500"},
            BatchLimits(interval_ms=2500, batch_records=25, per_second=10),
        ),
        (
            {"source_rate_limit": "2000000000"},
            BatchLimits(interval_ms=1000, batch_records=BATCH_RECORDS, per_second=2_000_000_000),
        ),
    ],
)
def test_pace(options: dict[str, str], pace: BatchLimits) -> None:
    assert pace_of(options) == pace


def test_where_batches_start_seldom_they_hold_what_came_meanwhile() -> None:
    assert pace_of({"barrier_interval_ms": "500"}).batch_records == BATCH_RECORDS
    assert pace_of({"barrier_interval_ms": "4000"}).batch_records == 4 * BATCH_RECORDS
    assert pace_of({"barrier_interval_ms": "3600000"}).batch_records == 10_000_000
    assert pace_of({"barrier_interval_ms": "4000", "source_rate_limit": "1000"}).batch_records == 4000
    both = {"barrier_interval_ms": "60000", "source_rate_limit": "100000"}
    assert pace_of(both).batch_records == 6_000_000


def test_a_batch_has_more_records_where_more_cores_read_them() -> None:
    assert pace_of({}, 1).batch_records == pace_of({}, 2).batch_records == BATCH_RECORDS
    assert pace_of({}, 64).batch_records == 32 * BATCH_RECORDS
    assert pace_of({"barrier_interval_ms": "3600000"}, 16).batch_records == 80_000_000
    assert pace_of({"source_rate_limit": "1000"}, 64).batch_records == 1000


@dataclass(slots=True)
class _Clock:
    """A time that a test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_batch_waits_until_those_before_it_have_had_their_time() -> None:
    clock = _Clock()
    throttle = Throttle(1000, clock)
    assert throttle.take(20)
    began = threading.Event()
    taken: list[bool] = []

    def take() -> None:
        began.set()
        taken.append(throttle.take(20))

    # 20 ms are due; the clock does not advance, so the wait itself is measured.
    waiting = threading.Thread(target=take)
    waiting.start()
    assert began.wait(LAST_RESORT_SECONDS)
    waiting.join(LAST_RESORT_SECONDS)
    assert taken == [True]
    clock.now += 0.04
    assert throttle.take(1)


def test_a_stop_ends_the_wait() -> None:
    throttle = Throttle(1)
    assert throttle.take(1000)
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(throttle.take(1)))
    waiting.start()
    throttle.end()
    waiting.join(LAST_RESORT_SECONDS)
    assert taken == [False]


def test_without_a_rate_nothing_waits() -> None:
    throttle = Throttle(None)
    assert all(throttle.take(10**9) for _ in range(3))
    throttle.end()
    assert not throttle.take(1)


def test_the_more_queries_wait_the_less_often_each_looks() -> None:
    assert [polling_delay_ms(running) for running in (0, 1, 40, 10_000)] == [20, 30, 420, 500]
    assert [polling_delay_ms(running, 100) for running in (0, 40)] == [100, 420]
    assert polling_delay_ms(0, 2_000) == 2_000
