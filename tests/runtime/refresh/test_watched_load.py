"""A load that is watched: it ends if the refresh must not continue."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.connectors.support.connections.interruption import ended_by
from rw_sql.runtime.refresh import loading
from rw_sql.runtime.refresh.loading import watched
from tests.support.waits import LAST_RESORT_SECONDS


class Spark:
    """Replaces a Spark session: records the cancelled job groups."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.sparkContext = SimpleNamespace(
            setLocalProperty=lambda key, value: None,
            setJobGroup=lambda group, text, **given: None,
            cancelJobGroup=self.cancelled.append,
            statusTracker=lambda: SimpleNamespace(getJobIdsForGroup=lambda group: []),
        )


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_load_that_waits_for_its_upstream_ends(monkeypatch: pytest.MonkeyPatch, is_stopped: bool) -> None:
    """Either the job is stopped, or CANCEL JOBS has removed the refresh from the catalog."""
    monkeypatch.setattr(loading, "_WATCH_SECONDS", 0.01)
    made: Any = Spark()
    is_ended, is_waiting = threading.Event(), threading.Event()
    with watched(made, "g", lambda done, total: is_stopped or not is_waiting.is_set()) as cancel:

        def stop() -> None:
            assert is_waiting.wait(LAST_RESORT_SECONDS)
            cancel()

        stopping = threading.Thread(target=stop if is_stopped else lambda: None)
        stopping.start()
        with ended_by(is_ended.set):
            is_waiting.set()
            assert is_ended.wait(LAST_RESORT_SECONDS)
        stopping.join()
    assert "g" in made.cancelled
