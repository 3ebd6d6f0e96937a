"""A table gets its upkeep although no run of its job lasts for long."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from rw_sql.runtime.delta import compaction
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep import table_upkeep
from rw_sql.runtime.upkeep.last_upkeep import LastUpkeep
from rw_sql.runtime.upkeep.table_upkeep import EVERY_SECONDS, ORPHANS_EVERY_SECONDS, Upkeep
from tests.runtime.maintained_log import MaintainedLog

HOUR = 3600.0


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The runs of upkeep: True for each that searches for files of killed writers."""
    found: list[bool] = []

    def run(self: Upkeep, *, searches_orphans: bool = True, **_: bool) -> None:
        del self
        found.append(searches_orphans)

    monkeypatch.setattr(Upkeep, "run", run)
    return found


def next_run(log: MaintainedLog, run: int, *, is_new_process: bool) -> MaintainedLog:
    """Another run of the log's job, in this process or in a new one."""
    opened = MaintainedLog.open(log.warehouse.uri, run=run)
    context = opened.context if is_new_process else log.context
    return replace(opened, context=context, later_seconds=log.later_seconds)


@pytest.mark.parametrize("is_new_process", [False, True], ids=["rests", "processes"])
def test_upkeep_comes_after_enough_commits_of_short_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new_process: bool
) -> None:
    monkeypatch.setattr(table_upkeep, "EVERY_VERSIONS", 6)
    monkeypatch.setattr(compaction, "MOST_SMALL_FILES", 2)
    log, most = MaintainedLog.open(str(tmp_path)), 0
    for run in range(2, 14):
        log = next_run(log, run, is_new_process=is_new_process)
        log.append()
        log.upkeep().run_if_due()
        most = max(most, log.files())
    # Each run makes two commits (a fence and a batch) and one file; the upkeep makes one more commit.
    assert most <= 6
    assert log.ids() == list(range(24))


@pytest.mark.parametrize("is_new_process", [False, True], ids=["rests", "processes"])
def test_upkeep_comes_with_the_first_batch_after_ten_minutes(
    tmp_path: Path, began: list[bool], is_new_process: bool
) -> None:
    log, seen = MaintainedLog.open(str(tmp_path)), []
    for run in range(2, 8):
        log = next_run(log, run, is_new_process=is_new_process)
        log.append()
        log.upkeep().run_if_due()
        seen.append(len(began))
        log.later_seconds += 0.4 * EVERY_SECONDS
    assert seen == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("is_new_process", [False, True], ids=["rests", "processes"])
def test_files_of_killed_writers_are_searched_once_a_day(
    tmp_path: Path, began: list[bool], is_new_process: bool
) -> None:
    log = MaintainedLog.open(str(tmp_path))
    for run in range(2, 8):
        log = next_run(log, run, is_new_process=is_new_process)
        log.append()
        log.upkeep().run_if_due()
        log.later_seconds += 0.4 * ORPHANS_EVERY_SECONDS
    assert began == [True, False, False, True, False]


def test_a_failed_upkeep_is_repeated_later_and_not_with_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def run(self: Upkeep, **_: bool) -> None:
        calls.append(self.output.table.version())
        raise OSError("the store refuses")

    monkeypatch.setattr(Upkeep, "run", run)
    monkeypatch.setattr(table_upkeep, "EVERY_VERSIONS", 3)
    log = MaintainedLog.open(str(tmp_path))
    upkeep = log.upkeep()
    for _ in range(5):
        log.append()
        upkeep.run_if_due()
    assert [after - before for before, after in itertools.pairwise(calls)] == [3]
    # Another process does not know of the failure.
    later = next_run(log, 2, is_new_process=True)
    later.append()
    later.upkeep().run_if_due()
    assert calls[2:] == [later.output.table.version()]


@pytest.mark.parametrize("content", ["", "[]"])
def test_upkeep_does_not_depend_on_the_file_of_the_last_one(tmp_path: Path, began: list[bool], content: str) -> None:
    log = MaintainedLog.open(str(tmp_path))
    path = Path(Warehouse.at(str(tmp_path)).last_upkeep(log.source.id, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    log.append()
    log.upkeep().run_if_due()
    log.later_seconds += EVERY_SECONDS
    log.append()
    log.upkeep().run_if_due()
    assert len(began) == 1


def test_a_clock_that_was_set_back_does_not_delay_upkeep() -> None:
    last = LastUpkeep(version=7, at=10 * HOUR)
    assert not last.is_due(8, 10 * HOUR + 1, every_versions=100, every_seconds=600)
    assert last.is_due(8, 9 * HOUR, every_versions=100, every_seconds=600)
