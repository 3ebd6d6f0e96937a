"""The garbage collector pauses while large plans are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rw_sql.runtime.support import gc_pause as collector
from rw_sql.runtime.support.gc_pause import gc_paused


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_the_collector_pauses_until_the_last_block_ends() -> None:
    gc.enable()
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_does_not_pause_long_among_endless_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    monkeypatch.setattr(collector, "MOST_SECONDS", 0.0)
    with gc_paused():
        with gc_paused():
            assert gc.isenabled()
        assert gc.isenabled()
    assert gc.isenabled()


def test_an_error_wakes_it() -> None:
    gc.enable()
    with pytest.raises(ValueError, match="broken"), gc_paused():
        raise ValueError("broken")
    assert gc.isenabled()


def test_one_that_somebody_switched_off_stays_off() -> None:
    gc.disable()
    with gc_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()
