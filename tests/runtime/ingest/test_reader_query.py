"""A query that starts before its run: its first batch waits for the run, or for the query's end."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from rw_sql.runtime.ingest.query import SpeculativeQuery
from rw_sql.runtime.jobs.streaming_run import BrokenOffError
from rw_sql.runtime.support.background import prepare


@dataclass(slots=True)
class _Query:
    """A query whose thread ends together with its batch."""

    isActive: bool = True  # noqa: N815 - as Spark calls it
    batch: Future[None] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.isActive = False
        if self.batch is not None:
            self.batch.exception()
        self.stopped.set()


class _Reader:
    """Starts a :class:`_Query`, and gives it a batch."""

    run = 7

    def __init__(self) -> None:
        self.query = _Query()
        self.positions: dict[str, int] = {}
        self.write: Any = None

    def start(self, _: object, positions: dict[str, int], write: object) -> _Query:
        self.positions, self.write = positions, write
        return self.query

    def has_batch(self) -> Future[None]:
        self.query.batch = prepare(lambda: self.write("rows", 0), "batch")
        return self.query.batch


@dataclass(frozen=True)
class _State:
    offset: int


STATES: Any = {"t:0": _State(3), "t:1": _State(5)}


@pytest.fixture
def reader() -> _Reader:
    return _Reader()


def _early(reader: Any) -> SpeculativeQuery:
    return SpeculativeQuery.start(reader, "records", STATES)  # type: ignore[arg-type]


def test_its_first_batch_waits_for_the_run(reader: _Reader) -> None:
    early, written = _early(reader), []
    assert reader.positions == {"t:0": 3, "t:1": 5}
    batch = reader.has_batch()
    assert not batch.done()
    going_on: Any = early.go_on(lambda *of: written.append(of))
    assert going_on is reader.query
    assert batch.result(20) is None
    assert written == [("rows", 0)]
    early.abandon()  # it is the run's by now
    assert reader.query.isActive


@pytest.mark.parametrize("has_batch", [True, False])
def test_one_that_no_run_comes_for_ends(reader: _Reader, has_batch: bool) -> None:
    early = _early(reader)
    batch = reader.has_batch() if has_batch else None
    early.abandon()
    assert reader.query.stopped.is_set()
    if batch is not None:
        assert isinstance(batch.exception(20), BrokenOffError)
    early.abandon()


def test_a_query_fits_the_run_for_which_it_was_started(reader: _Reader) -> None:
    early = _early(reader)
    assert early.fits(7, dict(STATES))
    assert not early.fits(8, STATES)
    moved: Any = {**STATES, "t:0": _State(4)}
    assert not early.fits(7, moved)
