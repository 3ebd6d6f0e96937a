"""The fixture for the tests of jobs at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.runtime.rested_sources import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An empty warehouse in which jobs rest at once."""
    made = World(tmp_path / "warehouse", monkeypatch)
    made.set_idle_timeout("1ms")
    yield made
    made.reconciler.stop_all()
    made.reconciler.report_stopped()
