"""Lists of replaced files that a kill has left unfinished, or that a power cut has emptied: upkeep goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rw_sql.runtime.delta import table_files
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.upkeep.table_upkeep import EVERY_SECONDS, Upkeep
from tests.runtime.maintained_log import MaintainedLog

pytestmark = pytest.mark.long

DAY = 24 * 3600
ROWS = 180
"""The number of rows in the log, two in each batch."""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


def folder_of_lists(log: MaintainedLog) -> Path:
    return Path(log.warehouse.replaced_files(log.source.id, 1))


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def with_a_list(log: MaintainedLog) -> Path:
    """Makes upkeep write a list of replaced files, beside a view that has read two thirds of the log; returns the path
    of the list."""
    view = log.view("v")
    for turn in range(3):
        log.append(ROWS // 6)
        log.turn()
        if turn < 2:
            for batch in (0, 1):
                log.read(view, 2 * turn + batch, log.output.table.version() + 1)
    (written,) = folder_of_lists(log).iterdir()
    return written


def test_a_list_that_a_kill_has_left_unfinished_goes_after_a_day(log: MaintainedLog) -> None:
    written = with_a_list(log)
    left = written.with_name(f"{written.name}.0a1b2c.writing")
    left.write_text('{"at_ms":1,"fil')
    log.turn()
    assert left.exists()
    age(left, DAY + 60)
    log.turn()
    assert not left.exists()
    assert written.exists()
    assert log.ids() == list(range(ROWS))


def test_a_list_that_a_power_cut_has_emptied_goes_when_no_query_needs_its_files(log: MaintainedLog) -> None:
    written = with_a_list(log)
    written.write_text("")
    replaced = log.unexplained()
    assert len(replaced) > 20
    for path in log.on_disk():
        age(Path(log.output.path) / path, 2 * DAY)
    needed = {version: log.ids(version) for version in log.versions()}
    log.turn()
    # A query that has begun before the commits were cleaned up may still read these files.
    assert written.exists()
    assert log.unexplained() == replaced
    age(written, table_files.GRACE_SECONDS + 60)
    log.turn()
    assert not written.exists()
    assert log.unexplained() == set()
    kept = [version for version in log.versions() if version in needed]
    assert len(kept) > ROWS // 6
    assert [log.ids(version) for version in kept] == [needed[version] for version in kept]


@pytest.mark.parametrize("content", ["", '{"at_ms":17', "\0\0\0"])
def test_a_job_goes_on_beside_an_unreadable_list(log: MaintainedLog, content: str) -> None:
    written = with_a_list(log)
    written.write_text(content)
    upkeep = log.upkeep()
    upkeep.run_if_due()
    log.later_seconds += EVERY_SECONDS
    upkeep.run_if_due()
    log.append(3)
    assert log.ids() == list(range(ROWS + 6))


def test_an_unreadable_file_fails_upkeep_and_not_the_job(log: MaintainedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(1)
    problem: Exception = ValueError("Expecting value: line 1 column 1 (char 0)")

    def run(self: Upkeep, *, searches_orphans: bool = True, **_: bool) -> None:
        del self, searches_orphans
        raise problem

    monkeypatch.setattr(Upkeep, "run", run)
    upkeep = log.upkeep()
    upkeep.run_if_due()
    log.later_seconds += EVERY_SECONDS
    upkeep.run_if_due()
    problem = FencedError("another run has taken over")
    log.later_seconds += EVERY_SECONDS
    with pytest.raises(FencedError):
        upkeep.run_if_due()
