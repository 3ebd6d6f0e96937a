"""Views that a thread creates, and a statement first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from rw_sql.runtime.sql.late_views import AT_ONCE, LateViews
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from rw_sql.metastore.records import MaterializedViewRecord


class Slow:
    """Creates views: the thread only once ``go`` is set, everybody else at once."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.go = threading.Event()
        self.views = LateViews(self.create)

    def create(self, name: str, _view: object) -> None:
        self.created.append(name)
        if threading.current_thread().name == "rw_sql-views":
            self.views.lock.release()
            self.go.wait()
            self.views.lock.acquire()


def due(count: int) -> dict[str, MaterializedViewRecord]:
    return {f"v{number}": cast("MaterializedViewRecord", number) for number in range(count)}


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_few_views_are_left_to_the_caller(slow: Slow) -> None:
    assert slow.views.take(due(AT_ONCE)) == due(AT_ONCE)
    assert slow.created == []


def test_a_statement_creates_what_it_mentions_before_the_thread_does(slow: Slow) -> None:
    assert slow.views.take(due(AT_ONCE + 1)) == {}
    wait_until(lambda: slow.created == ["v0"], "the thread is at its first view")
    slow.views.create_mentioned("SELECT * FROM `V77` JOIN other")
    assert sorted(slow.created) == ["v0", "v7", "v77"]
    slow.go.set()
    wait_until(lambda: len(slow.created) == AT_ONCE + 1, "all are created")
    assert len(set(slow.created)) == AT_ONCE + 1


@pytest.mark.parametrize("text", ["SHOW TABLES", "show  views in default", "SHOW TABLE EXTENDED LIKE 'v*'"])
def test_a_list_needs_them_all(slow: Slow, text: str) -> None:
    slow.views.take(due(AT_ONCE + 1))
    wait_until(lambda: slow.created == ["v0"], "the thread is at its first view")
    slow.views.create_mentioned(text)
    assert sorted(slow.created) == sorted(due(AT_ONCE + 1))
    slow.go.set()


def test_a_new_view_is_left_to_the_caller_while_the_thread_works(slow: Slow) -> None:
    slow.views.take(due(AT_ONCE + 1))
    wait_until(lambda: slow.created == ["v0"], "the thread is at its first view")
    new = cast("MaterializedViewRecord", 1_000)
    assert slow.views.take({**due(AT_ONCE + 1), "new": new}) == {"new": new, "v0": due(1)["v0"]}
    slow.go.set()


def test_a_closed_one_creates_nothing_more(slow: Slow) -> None:
    slow.views.take(due(AT_ONCE + 1))
    wait_until(lambda: slow.created == ["v0"], "the thread is at its first view")
    slow.views.close()
    slow.go.set()
    slow.views.create_mentioned("SHOW TABLES")
    assert slow.created == ["v0"]


def test_a_view_that_cannot_be_created_does_not_end_the_thread() -> None:
    created: list[str] = []

    def create(name: str, _view: object) -> None:
        if name == "v3":
            raise OSError("the store does not respond")
        created.append(name)

    LateViews(create).take(due(AT_ONCE + 1))
    wait_until(lambda: len(created) == AT_ONCE, "all others are created")
