"""A sink compares what its target has with what it has written."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.delta.sink import DeltaSink
from rw_sql.metastore import Metastore
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.sinks.job import _PROGRESS, _require_marks
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import batch, shape, sink_spec

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.sink import SinkWriter


def test_a_target_with_fewer_batches_than_were_sent_is_an_older_copy(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path / "w"))
    context = Context(
        warehouse=warehouse,
        metastore=Metastore.open(warehouse.uri),
        sessions=None,  # type: ignore[arg-type]  # nothing here asks Spark
        owner="me",
    )
    target, copy = tmp_path / "target", tmp_path / "copy"
    options = {"location": str(target)}
    spec = sink_spec(shape(), "deltalake", **options)

    def start(run: int) -> tuple[JobOutput, SinkWriter]:
        _require_marks(context, spec, options)
        progress = JobOutput.open(
            warehouse, warehouse.data(2, 1), _PROGRESS, job=spec.job, run=run, epoch=1, generation=1
        )
        writer = DeltaSink().open(options, shape(), "me")
        writer.fence(run, 1)
        return progress, writer

    def send(number: int, rows: pa.Table | None) -> None:
        if rows is not None:
            writer.write(rows, number)
            progress.sent = number
        progress.mark(number)

    progress, writer = start(1)
    send(0, batch((1, "a")))
    shutil.copytree(target, copy)
    # The target gets nothing of an empty batch.
    send(1, None)
    progress, writer = start(2)
    assert (progress.done, progress.sent) == (1, 0)
    send(2, batch((2, "b")))
    send(3, None)
    progress, writer = start(3)
    shutil.rmtree(target)
    shutil.copytree(copy, target)
    with pytest.raises(StalledError) as stalled:
        start(4)
    assert stalled.value.is_final
    assert stalled.value.reason.startswith(
        "REPLACED the target has only batches up to 0, but this sink wrote batch 2: the target was replaced by an "
        "older copy of it: DROP SINK k and create it again"
    )
