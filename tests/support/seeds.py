"""What the crash tests draw their share of the kills by: ``--seed``, or the commit that is tested.

``make test`` is to end while somebody waits for it, and a process that is killed costs it half a minute. So each commit
draws a few of the kills, of every kind one; a commit draws the same ones wherever it is tested. ``make proof`` goes
through them all.
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
_DIGITS = 8

T = TypeVar("T")


@cache
def commit_seed() -> int:
    """The number that the commit's name begins with; 0 outside of a repository."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(told.stdout[:_DIGITS], 16)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """``--seed`` where it is given, else the commit's; a test that fails shows it among its arguments."""
    given: int | None = request.config.getoption("--seed")
    return commit_seed() if given is None else given


def one_of(kinds: Sequence[Sequence[T]], seed: int) -> list[T]:
    """One of every kind. As many seeds in a row as the least common multiple of their numbers draw every one."""
    return [kind[seed % len(kind)] for kind in kinds]
