"""A wait of one thread is ended by another thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rw_sql.connectors.support.connections.interruption import ended_by, interruptible
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


def test_an_interruption_ends_the_wait_that_is_in_progress() -> None:
    ended: list[str] = []
    with interruptible() as interrupt:
        interrupt()
        with ended_by(lambda: ended.append("outer")), ended_by(lambda: ended.append("inner")):
            interrupt()
        assert ended == ["outer", "inner"]
        with ended_by(lambda: ended.append("next")):
            interrupt()
        interrupt()
    assert ended == ["outer", "inner", "next"]


def test_a_wait_that_fails_is_not_ended_afterwards() -> None:
    ended: list[str] = []
    with interruptible() as interrupt:
        try:
            with ended_by(lambda: ended.append("wait")):
                raise OSError("gone")
        except OSError:
            interrupt()
    assert ended == []


def test_only_the_waits_of_the_thread_that_is_interrupted_end() -> None:
    ended: list[int] = []
    are_waiting = threading.Barrier(3)
    may_end = threading.Event()

    def work(number: int) -> None:
        with interruptible() as interrupt:
            interrupts[number] = interrupt
            with ended_by(lambda: ended.append(number)):
                are_waiting.wait(LAST_RESORT_SECONDS)
                assert may_end.wait(LAST_RESORT_SECONDS)

    interrupts: dict[int, Callable[[], None]] = {}
    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(work, number) for number in (1, 2)]
        are_waiting.wait(LAST_RESORT_SECONDS)
        interrupts[2]()
        may_end.set()
        for each in works:
            each.result()
    assert ended == [2]


def test_without_a_caller_that_interrupts_a_wait_just_runs() -> None:
    with ended_by(lambda: None):
        pass
