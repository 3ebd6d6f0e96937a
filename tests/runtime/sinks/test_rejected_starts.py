"""What a starting sink does with the rejected rows of the batch that it repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rw_sql.connectors.sink import Refusal
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.delta.rejected_rows import RejectedRows, rejected_count
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.sinks.job import _PROGRESS, Sink
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import batch, shape, sink_spec


def test_only_the_newest_run_removes_the_rejected_rows_of_the_batch_that_it_repeats(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path / "w"))
    unused: Any = None
    spec = sink_spec(shape("upsert", "id"))
    planned = Path(warehouse.sink_checkpoint(2, 1)) / "offsets" / "0"
    planned.parent.mkdir(parents=True)
    planned.write_text("v1\n{}\n")
    rejected = RejectedRows.open(warehouse.rejected(2, 1), spec.shape)

    def start(run: int) -> Sink:
        progress = JobOutput.open(
            warehouse, warehouse.data(2, 1), _PROGRESS, job=spec.job, run=run, epoch=1, generation=1
        )
        return Sink(
            context=Context(warehouse=warehouse, metastore=unused, sessions=unused, owner="me"),
            spec=spec,
            run=run,
            progress=progress,
            writer=unused,
            checkpoint=warehouse.sink_checkpoint(2, 1),
            done=progress.done,
            upkeep=unused,
            streaming=unused,
        )

    def reject() -> None:
        rejected.begin()
        rejected.put(batch((1, "a")), [Refusal(index=0, reason="no")], 0)

    first = start(1)
    reject()
    second = start(2)
    second._discard_unfinished(rejected.path)
    assert rejected_count(rejected.path) == 0
    reject()
    with pytest.raises(FencedError, match="taken over from run 1"):
        first._discard_unfinished(rejected.path)
    assert rejected_count(rejected.path) == 1
    second.progress.mark(0)
    start(3)._discard_unfinished(rejected.path)
    assert rejected_count(rejected.path) == 1
