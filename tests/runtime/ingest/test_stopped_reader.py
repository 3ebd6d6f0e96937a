"""A source's reader that is stopped: the rest of Spark's query ends in parallel with the next steps, if possible."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any

import pytest

import rw_sql.runtime.ingest.job as module
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.ingest.stopped_reader import StoppedReader, end_for_good
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failures import StalledError
from tests.support.waits import LAST_RESORT_SECONDS


class _Query:
    """A query; stopping it cancels its running batch."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def stop(self) -> None:
        self.cancelled.set()


class _Client:
    is_open = True

    def close(self) -> None:
        self.is_open = False


class _Opening:
    """The clients of a stream."""

    def __init__(self) -> None:
        self.fetcher, self.feed = _Client(), _Client()
        self.has_session = True

    def close(self) -> None:
        self.fetcher.close()
        self.feed.close()

    def release_session(self) -> None:
        self.has_session = False


class _Throttle:
    def end(self) -> None:
        pass


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of a reader, as far as its stop has to do with it."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(module, "note_positions", lambda *_, **__: None)
    made: Any = Ingest.__new__(Ingest)
    made.streaming, made.throttle = StreamingRun("ingest-1"), _Throttle()
    made.streaming.query = _Query()
    made.watch, made.opening = _Client(), _Opening()
    made.mode = SimpleNamespace(cancel=made.streaming.cancel)
    made.capture = None
    made.context = made.source = made.run = made.epoch = None
    return made


def test_where_no_batch_is_under_way_the_query_may_end_later(reader: Any) -> None:
    end = reader.stop_async()
    assert reader.streaming.is_over
    assert not reader.streaming.query.cancelled.is_set()
    # A batch that Spark begins in that moment meets a closed gate and not a closed client.
    assert reader.opening.fetcher.is_open
    end()
    assert reader.streaming.query.cancelled.is_set()
    assert reader.opening.has_session, "the next run uses it"
    assert not reader.opening.fetcher.is_open
    assert not reader.watch.is_open


@pytest.mark.parametrize("is_known", [True, False], ids=["in its gate", "just begun"])
def test_a_batch_that_takes_long_is_cancelled_before_the_stop_returns(reader: Any, is_known: bool) -> None:
    begun, held = threading.Event(), reader.streaming.batch()

    def write() -> None:
        with reader.streaming.turn():
            begun.set()
            reader.streaming.query.cancelled.wait(20)

    if is_known:
        held.__enter__()
    batch = threading.Thread(target=write)
    batch.start()
    assert begun.wait(LAST_RESORT_SECONDS)
    assert reader.stop_async() is None
    assert reader.streaming.query.cancelled.is_set()
    assert reader.streaming.is_over
    assert not reader.opening.fetcher.is_open
    assert not reader.opening.has_session
    batch.join(LAST_RESORT_SECONDS)


def test_a_stop_ends_all(reader: Any) -> None:
    reader.stop()
    assert reader.streaming.query.cancelled.is_set()
    assert not reader.opening.fetcher.is_open
    assert not reader.opening.has_session


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_reader_without_a_next_run_releases_its_session(reader: Any, is_sound: bool) -> None:
    end = reader.stop_async()
    assert end is not None
    if is_sound:
        left = StoppedReader(query=run_in_background(end, "end"), reader=reader, since=0.0)
        wait([left.query], LAST_RESORT_SECONDS)
        assert reader.opening.has_session
        left.close()
    else:
        end_for_good(reader, end)
    assert reader.streaming.query.cancelled.is_set()
    assert not reader.opening.has_session


def test_a_reader_whose_end_fails_releases_its_session_too(reader: Any) -> None:
    def end() -> None:
        raise TimeoutError("its thread did not end")

    with pytest.raises(TimeoutError):
        end_for_good(reader, end)
    assert not reader.opening.has_session


def test_a_reader_whose_warm_start_cannot_be_abandoned_releases_its_session_too(reader: Any) -> None:
    def abandon() -> None:
        raise OSError("connection reset")

    ready: Future[Any] = Future()
    ready.set_result(SimpleNamespace(abandon=abandon))
    left = StoppedReader(query=ready, reader=reader, since=0.0, prepared=ready)
    with pytest.raises(OSError, match="reset"):
        left.discard()
    assert not reader.opening.has_session


def test_a_warm_start_that_no_run_uses_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    made = SimpleNamespace(abandon=lambda: told.append("let go"), start_early=lambda _: None)
    monkeypatch.setattr(WarmStart, "of", lambda *_, **__: made)
    opening = SimpleNamespace(release_session=lambda: None)
    left: Any = SimpleNamespace(session=None, run=4, opening=opening, note=lambda: told.append("noted"))
    ended = run_in_background(lambda: None, "end")
    ending, nothing = StoppedReader(query=ended, reader=left, since=0.0), SimpleNamespace()
    ending.prepare(nothing, nothing)  # type: ignore[arg-type]
    ending.close()
    assert told == ["let go", "noted"]

    def fails(*_: object, **__: object) -> None:
        raise StalledError("UNREACHABLE")

    monkeypatch.setattr(made, "start_early", fails)
    ending.prepare(nothing, nothing)  # type: ignore[arg-type]
    assert ending.take_prepared() is None
    assert told == ["let go", "noted", "let go"]
    monkeypatch.setattr(WarmStart, "of", fails)
    ending.prepare(nothing, nothing)  # type: ignore[arg-type]
    assert ending.take_prepared() is None
