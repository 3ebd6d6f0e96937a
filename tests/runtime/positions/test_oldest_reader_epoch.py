"""The start epoch of the oldest run that may still commit to a source's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.job_store import JobStore
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.runtime.positions.shared import oldest_reader_epoch
from tests.runtime.maintained_log import MaintainedLog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rw_sql.metastore.facts import Run


def test_only_the_last_run_of_each_process_since_the_last_fence_counts(tmp_path: Path) -> None:
    log = MaintainedLog.open(str(tmp_path))
    jobs, job = log.context.metastore.jobs, ingest_fragment(log.source.id)

    def oldest() -> int | None:
        return oldest_reader_epoch(log.warehouse, log.context.metastore, log.source)

    assert oldest() is None
    jobs.claim_run(job, 3, "first")
    assert oldest() == 3
    jobs.claim_run(job, 4, "second")
    jobs.claim_run(job, 5, "second")
    assert oldest() == 3
    MaintainedLog.open(str(tmp_path), run=2)
    assert oldest() == 5


def test_if_runs_since_the_last_fence_are_not_kept_any_run_may_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MaintainedLog.open(str(tmp_path))
    jobs, job = log.context.metastore.jobs, ingest_fragment(log.source.id)
    jobs.claim_run(job, 3, "first")
    for epoch in (4, 5, 6):
        jobs.claim_run(job, epoch, "second")
    runs = JobStore.runs

    def last_two(self: JobStore, job: str) -> tuple[Run, ...]:
        return runs(self, job)[-2:]

    monkeypatch.setattr(JobStore, "runs", last_two)
    assert oldest_reader_epoch(log.warehouse, log.context.metastore, log.source) == 0
