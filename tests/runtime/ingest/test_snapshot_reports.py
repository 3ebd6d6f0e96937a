"""The reports about snapshots, for SHOW JOBS and WAIT, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rw_sql.connectors.changes import TableProgress
from rw_sql.model.source_readers import CdcTableSpec, TableRead
from rw_sql.runtime.ingest.capture import Capture


def reported(progress: TableProgress, *reads: TableRead) -> dict[int, bool]:
    """For each table with a report: whether its snapshot is over."""
    reports: list[Any] = []
    jobs = SimpleNamespace(write_backfill=reports.append)
    capture = Capture(
        context=cast("Any", SimpleNamespace(metastore=SimpleNamespace(jobs=jobs))),
        source=cast("Any", None),
        split="d",
        specs={"public.t": CdcTableSpec(upstream="public.t", reads=reads, columns=("id",), key_columns=("id",))},
        feed=cast("Any", None),
        tables={},
        made=cast("Any", None),
        columns={},
        adds_columns=False,
        _written={},
    )
    capture._report({"public.t": ("1.0", progress)})
    return {report.object_id: report.is_over for report in reports}


def test_the_end_of_a_snapshot_is_reported_for_tables_that_need_none() -> None:
    both = TableRead(table=1), TableRead(table=2, has_snapshot=False)
    reading, done = TableProgress(table="public.t"), TableProgress(table="public.t", is_done=True)
    assert reported(reading, *both) == {1: False}
    assert reported(done, *both) == {1: True, 2: True}
    assert reported(done, both[1]) == {2: True}
