"""Loading an upstream: the settings of its Spark session, and the thread that monitors Spark's jobs."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.runtime.refresh import loading
from rw_sql.runtime.spark.sessions import SHUFFLE_PARTITIONS
from tests.support.waits import LAST_RESORT_SECONDS


class Spark:
    """A session without a JVM: its settings, and the groups whose jobs were cancelled."""

    def __init__(self) -> None:
        self.settings = {SHUFFLE_PARTITIONS: "4"}
        self.cancelled = threading.Event()
        self.conf = SimpleNamespace(get=self.settings.__getitem__, set=self.settings.__setitem__)
        self.sparkContext = SimpleNamespace(
            setLocalProperty=lambda key, value: None,
            setJobGroup=lambda *given, **options: None,
            cancelJobGroup=lambda group: self.cancelled.set(),
            statusTracker=lambda: SimpleNamespace(getJobIdsForGroup=lambda group: []),
        )


@pytest.mark.parametrize("fails", [False, True])
def test_a_comparison_leaves_the_number_of_shuffle_partitions_as_it_was(*, fails: bool) -> None:
    """The sessions that are used again are kept by this number."""
    spark: Any = Spark()
    try:
        with loading._shuffling_into(spark, 64):
            assert spark.settings[SHUFFLE_PARTITIONS] == "64"
            if fails:
                raise OSError("connection refused")
    except OSError:
        assert fails
    assert spark.settings[SHUFFLE_PARTITIONS] == "4"


def test_a_load_can_be_cancelled_after_its_progress_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_WATCH_SECONDS", 0.01)
    spark: Any = Spark()
    looks: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> bool:
        looks.append((done, total))
        if len(looks) < 3:
            raise OSError("no space left on device")
        return False

    with loading.watched(spark, "mv-2 refresh 1, run 1", tell):
        assert spark.cancelled.wait(LAST_RESORT_SECONDS)
    assert looks[:3] == [(0, 0)] * 3
