"""The order in which sources are checked for new splits."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.runtime.control import discovery as discovery_module
from rw_sql.runtime.control.discovery import SplitDiscovery
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


class Checks:
    """A discovery at most four of whose checks run at a time, each until the test ends it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.outcomes: dict[int, Callable[[int], None]] = {}
        """What happens at the next check of a source, by its id."""
        self._running: list[tuple[Callable[[], None], Future[None]]] = []
        warehouse = Warehouse.at(str(folder))
        context = Context(
            warehouse=warehouse, metastore=Metastore.open(warehouse.uri), sessions=cast("Any", None), owner="test"
        )
        self._discovery = SplitDiscovery(context, lambda *_: None)
        monkeypatch.setattr(discovery_module, "DISCOVERY_SECONDS", 0.0)
        monkeypatch.setattr(discovery_module, "run_in_background", self._begin)
        monkeypatch.setattr(self._discovery, "_look_after", self._look_after)
        monkeypatch.setattr(self._discovery, "_forget_dropped", lambda: None)

    def look(self, changed: Iterable[int] = (), running: Iterable[int] = ()) -> None:
        self._discovery.look(changed, running)

    def end(self, count: int) -> None:
        """Ends the oldest checks."""
        for _ in range(count):
            work, future = self._running.pop(0)
            work()
            future.set_result(None)

    def meet_another_commit(self, source: int) -> None:
        """As a check whose commit another commit precedes."""
        self._discovery._check_again(source, 0.0)

    def _look_after(self, source: int) -> None:
        self.made.append(source)
        outcome = self.outcomes.pop(source, None)
        if outcome is not None:
            outcome(source)

    def _begin(self, work: Callable[[], None], _name: str) -> Future[None]:
        future: Future[None] = Future()
        self._running.append((work, future))
        return future


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(tmp_path / "w", monkeypatch)


def test_slow_upstreams_do_not_keep_others_from_their_checks(checks: Checks) -> None:
    for _ in range(6):
        checks.look(running=range(10))
        checks.end(4)
    assert {source: checks.made.count(source) for source in range(10)} == dict.fromkeys(range(4), 3) | dict.fromkeys(
        range(4, 10), 2
    )


def test_a_change_of_a_source_at_rest_waits_for_a_slot(checks: Checks) -> None:
    checks.look(changed=range(10))
    for count in (4, 4, 2):
        checks.end(count)
        checks.look()
    assert checks.made == list(range(10))


def test_a_change_during_a_check_is_checked_after_it(checks: Checks) -> None:
    checks.look(changed=[1])
    checks.look(changed=[1])
    checks.end(1)
    checks.look()
    checks.end(1)
    checks.look()
    assert checks.made == [1, 1]


def test_a_change_of_a_source_at_rest_is_checked_again_after_another_commit(checks: Checks) -> None:
    checks.outcomes = dict.fromkeys([2, 3, 4], checks.meet_another_commit)
    checks.look(changed=[1, 2, 3, 4])
    for count in (4, 3):
        checks.end(count)
        checks.look()
    assert checks.made == [1, 2, 3, 4, 2, 3, 4]


def test_a_change_of_a_source_at_rest_is_checked_again_after_an_error(checks: Checks) -> None:
    def fail(_: int) -> None:
        raise OSError("the upstream does not answer")

    checks.outcomes = {1: fail}
    checks.look(changed=[1])
    for _ in range(2):
        checks.end(1)
        checks.look()
    assert checks.made == [1, 1]
