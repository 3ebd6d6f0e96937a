"""Of a failure that repeats, the beginning, the end and ever fewer repetitions are logged."""

from __future__ import annotations

from itertools import pairwise

from rw_sql.runtime.support.failure_log import FIRST_SECONDS, MOST_SECONDS, FailureLog


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def told_in(log: FailureLog, clock: Clock, seconds: float, step: float = 0.5) -> list[float]:
    """The times, from now, at which a failure that repeats for a while is logged."""
    began, told = clock.now, []
    while clock.now < began + seconds:
        if log.failed("full"):
            told.append(clock.now - began)
        clock.now += step
    return told


def test_a_day_of_failures_has_few_lines_at_growing_intervals() -> None:
    clock = Clock()
    told = told_in(FailureLog(clock), clock, 86_400)
    gaps = [after - before for before, after in pairwise(told)]
    assert told[0] == 0
    assert gaps[0] == FIRST_SECONDS
    assert gaps == sorted(gaps)
    assert gaps[-1] == MOST_SECONDS
    assert len(told) < 32


def test_the_end_is_told_once_with_the_duration() -> None:
    clock = Clock()
    log = FailureLog(clock)
    assert log.ended() is None
    told_in(log, clock, 90)
    assert log.seconds == 90
    assert (log.ended(), log.ended(), log.seconds) == (90, None, 0)


def test_another_cause_is_told_at_once() -> None:
    clock = Clock()
    log = FailureLog(clock)
    assert [log.failed("full"), log.failed("full"), log.failed("read-only")] == [True, False, True]


def test_a_failure_that_comes_and_goes_does_not_fill_the_log() -> None:
    clock = Clock()
    log = FailureLog(clock)
    lines = 0
    for _ in range(1800):
        lines += log.failed("full") + (log.ended() is not None)
        clock.now += 2
    assert lines < 20
    clock.now += 3600
    assert log.failed("full")
