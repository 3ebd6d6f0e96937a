"""A seed that draws the cases of one run of the tests: ``--seed``, or the day of the tested commit.

A developer waits for the end of ``make test``, and each killed process costs half a minute of CPU time. Therefore, each
day draws only a part of the tests that are marked ``long``, and only one kill of every kind. For one commit, the same
tests are drawn on every machine. Commits of the following days draw the other tests. ``make test-all`` runs every test,
and ``make proof`` kills at every point.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).parents[2]
_DAY_SECONDS = 86_400

T = TypeVar("T")


@cache
def commit_seed() -> int:
    """The day of the commit, counted from 1970; 0 outside of a repository."""
    try:
        told = subprocess.run(
            ["git", "show", "--no-patch", "--format=%ct", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(told.stdout) // _DAY_SECONDS


def seed_of(config: pytest.Config) -> int:
    """The value of ``--seed`` if given, else the commit's seed."""
    given: int | None = config.getoption("--seed")
    return commit_seed() if given is None else given


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed. A failed test shows the seed among its arguments. For a long test, the result is the number of
    the draw, because only one in ``--draw`` seeds draws a long test. All seeds that draw the test have the same
    remainder, so the seeds themselves would not draw every kill."""
    drawn = request.config.getoption("--draw") if request.node.get_closest_marker("long") is not None else 0
    return seed_of(request.config) // (drawn or 1)


def draw_long(items: Sequence[pytest.Item], one_in: int, seed: int) -> list[pytest.Item]:
    """All short tests, and one in ``one_in`` of the long tests. ``one_in`` consecutive seeds draw each long test once.

    The tests that take minutes (``alone``) are numbered first, so that these tests are distributed evenly among the
    seeds.
    """
    drawn = [item for item in items if item.get_closest_marker("long") is not None]
    drawn.sort(key=lambda item: item.get_closest_marker("alone") is None)
    long = [item.nodeid for item in drawn]
    left_out = {name for number, name in enumerate(long) if (number + seed) % one_in}
    return [item for item in items if item.nodeid not in left_out]


def one_of(kinds: Sequence[Sequence[T]], seed: int) -> list[T]:
    """One case of every kind. Consecutive seeds draw every case if their number is at least the least common multiple
    of the kinds' sizes."""
    return [kind[seed % len(kind)] for kind in kinds]
