"""The order in which the workers of a run import the test modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shared_imports import in_turn

FILES = [Path(f"test_{number}.py") for number in range(10)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 12])
def test_each_worker_imports_every_module_once(workers: int) -> None:
    for worker in range(workers):
        assert sorted(in_turn(FILES, worker, workers)) == sorted(FILES)


def test_the_workers_begin_at_places_with_equal_distances() -> None:
    assert [in_turn(FILES, worker, 2)[0] for worker in range(2)] == [FILES[0], FILES[5]]
    assert [in_turn(FILES, worker, 3)[0] for worker in range(3)] == [FILES[0], FILES[3], FILES[6]]
