"""The preparation of executors on a cluster that has none."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rw_sql.runtime.spark import executors
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class ClusterContext:
    """Stands in for the SparkContext of a cluster."""

    master = "yarn"


def test_starts_wait_once_for_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_executors", lambda _: set())
    monkeypatch.setattr(executors, "_FIRST_SECONDS", 0.2)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        threading.Event().wait(seconds)

    monkeypatch.setattr("rw_sql.runtime.spark.executors.time.sleep", sleep)
    spark = cast("Any", SimpleNamespace(sparkContext=ClusterContext()))
    warehouse = Warehouse.at(str(tmp_path / "w"))
    require_executors(warehouse, spark)
    waited = len(slept)
    assert waited > 0
    for _ in range(8):
        require_executors(warehouse, spark)
    assert len(slept) == waited
    # Executors that come later are checked.
    monkeypatch.setattr(executors, "_executors", lambda _: {"1"})
    asked: list[object] = []

    def ask(*given: object) -> tuple[str, float]:
        asked.append(given)
        return "", 60.0

    monkeypatch.setattr(executors, "_asked", ask)
    require_executors(warehouse, spark)
    assert len(asked) == 1
