"""Hours of commits to a source's log. Neither the number of files after upkeep nor the time of a commit grows."""

from __future__ import annotations

import time
from pathlib import Path

from proof.course import Course, resident_mb
from proof.harness import Facts, Proof
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.upkeep.table_upkeep import Retention
from tests.runtime.maintained_log import MaintainedLog

COMMITS = 20_000
_AN_HOUR = 1_000
_KEPT_HOURS = 5
_A_MINUTE_SECONDS = 0.25  # about as many commits as in a minute of _AN_HOUR
_SAMPLE_EVERY = 20
_ROWS = 50


def _check(seed: int, folder: Path) -> Facts:
    log = MaintainedLog.open(str(folder))
    view = log.view("v")
    log.retention = Retention(seconds=_KEPT_HOURS * 3600.0)
    upkeep = log.upkeep()
    table_files.COMMITS_GRACE_SECONDS = _A_MINUTE_SECONDS
    upkeep.clock = lambda: (log.hour + 1) * 3600.0
    course = Course()
    began = time.monotonic()
    spent = time.process_time()
    for commit in range(COMMITS):
        log.hour = 1_000 + commit // _AN_HOUR
        log.append(rows=_ROWS)
        log.read(view, commit, log.output.table.version() + 1)
        log.forget(view, commit - 3)
        upkeep.run_if_due()
        if commit % _SAMPLE_EVERY == 0:
            cpu = (time.process_time() - spent) * 1000 / _SAMPLE_EVERY
            commits = log.log_sizes()
            course.note(
                commit,
                files=log.files(),
                commits=len(commits),
                log_bytes=sum(commits),
                cpu_ms=cpu,
                resident_mb=resident_mb(),
            )
            spent = time.process_time()
    kept = log.ids()
    assert kept[-1] == COMMITS * _ROWS - 1, "the newest row is there"
    assert kept == list(range(kept[0], kept[-1] + 1)), "no row is missing or there twice"
    hours = len(kept) / _ROWS / _AN_HOUR
    assert hours <= _KEPT_HOURS + 1, f"{hours} hours are kept"
    return {"commits": COMMITS, "seconds": round(time.monotonic() - began), **course.require_level(COMMITS)}


PROOF = Proof(
    name="day-of-commits",
    claim="A source's log takes 20,000 small commits over 20 hours and stays as large as after the first ones.",
    method=f"The job's own writer and upkeep work on a real Delta table, without Spark: {_ROWS} rows per commit, "
    f"{_AN_HOUR:,} commits per hour, log.retention of {_KEPT_HOURS} hours, and a reader that reads each commit. The "
    "means of the last quarter and of the third quarter are compared for these figures: live files, files and bytes "
    "of the Delta log, CPU time per commit with its share of upkeep, and memory.",
    seeds=range(1),
    check=_check,
)
