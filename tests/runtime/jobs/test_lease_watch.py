"""The renewals of a lease that a process observes with its own clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.jobs.lease import GONE_SECONDS, LeaseWatch
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.facts import Lease


class Watched:
    """A lease of an owner on another machine, and a watch of it at a simulated time."""

    def __init__(self, lease: Lease) -> None:
        self.seconds = 0.0
        self._watch = LeaseWatch(clock=lambda: self.seconds)
        self._lease = replace(lease, owner="other", host="another machine")

    def has_renewed(self, *, at: float, written: float) -> bool:
        """Whether the owner counts as present at a look at the time ``at``. The owner has written the heartbeat at the
        time ``written``, 130 s late by its own clock."""
        self.seconds = at
        lease = replace(self._lease, heartbeat_ms=self._lease.heartbeat_ms + int(written * 1000) - 130_000)
        self._watch.is_renewed(lease, self._lease.heartbeat_ms + int(at * 1000))
        return self._watch.has_seen_renewal(lease)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(WrittenWarehouse(tmp_path / "warehouse").lease())


def test_a_renewal_long_before_the_look_at_it_does_not_count_from_the_look(watched: Watched) -> None:
    assert not watched.has_renewed(at=0, written=-2)
    assert not watched.has_renewed(at=2900, written=2300)
    assert not watched.has_renewed(at=2901, written=2300)
    assert watched.has_renewed(at=2903, written=2902)


def test_rare_looks_at_an_owner_whose_clock_is_behind_find_it_present(watched: Watched) -> None:
    assert not watched.has_renewed(at=0, written=-2)
    for at in (600, 1200, 1800):
        assert watched.has_renewed(at=at, written=at - 3)
    assert not watched.has_renewed(at=1800 + GONE_SECONDS, written=1797)


def test_a_heartbeat_that_is_read_late_is_no_renewal(watched: Watched) -> None:
    assert not watched.has_renewed(at=600, written=598)
    assert not watched.has_renewed(at=600, written=596)
