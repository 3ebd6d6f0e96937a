"""A view or sink whose checkpoint is gone or older than its rows does not start, nor does one whose table is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from rw_sql.metastore import Metastore
from rw_sql.model.job_specs import ViewSpec
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.progress import REWOUND
from rw_sql.runtime.positions.whole_outputs import require_whole
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import shape, sink_spec

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}]})
SPEC = ViewSpec(
    job="mv-1", view_id=1, name="counts", query="SELECT 1", schema=SCHEMA, keys=("id",), generation=1, inputs=()
)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    warehouse = Warehouse.at(str(tmp_path))
    metastore = Metastore.open(warehouse.uri)
    return Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")


def write_batches(context: Context, count: int, run: int = 1) -> None:
    table = context.warehouse.data(SPEC.view_id, SPEC.generation)
    output = JobOutput.open(context.warehouse, table, SCHEMA, job=SPEC.job, run=run, epoch=1)
    for batch in range(count):
        output.append_rows(pa.table({"id": pa.array([batch], pa.int32())}), batch)


def plan_batches(checkpoint: Path, count: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True)
    for batch in range(count):
        (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n{}")


def test_a_view_without_rows_needs_no_checkpoint(context: Context, tmp_path: Path) -> None:
    require_whole(context, SPEC, str(tmp_path / "checkpoint"))
    write_batches(context, 0)
    require_whole(context, SPEC, str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("planned", [0, 2])
def test_a_checkpoint_that_is_behind_the_rows_stalls_the_view(context: Context, tmp_path: Path, planned: int) -> None:
    write_batches(context, 3)
    plan_batches(tmp_path / "checkpoint", planned)
    with pytest.raises(StalledError, match=r"counts has written batch 2, but its checkpoint (is empty|ends at 1)"):
        require_whole(context, SPEC, str(tmp_path / "checkpoint"))


def test_a_checkpoint_behind_the_rows_stalls_even_after_a_later_fence(context: Context, tmp_path: Path) -> None:
    write_batches(context, 3)
    write_batches(context, 0, run=2)
    with pytest.raises(StalledError, match="has written batch 2"):
        require_whole(context, SPEC, str(tmp_path / "checkpoint"))


def test_a_checkpoint_that_planned_more_than_was_written_is_whole(context: Context, tmp_path: Path) -> None:
    write_batches(context, 3)
    plan_batches(tmp_path / "checkpoint", 4)
    require_whole(context, SPEC, str(tmp_path / "checkpoint"))


def test_a_table_that_is_gone_stalls_the_view_and_stays_away(context: Context, tmp_path: Path) -> None:
    plan_batches(tmp_path / "checkpoint", 3)
    with pytest.raises(StalledError, match=r"TABLE lost: .* counts has batch 2, .*REBUILD MATERIALIZED VIEW counts$"):
        require_whole(context, SPEC, str(tmp_path / "checkpoint"))
    assert not (tmp_path / "data").exists()
    write_batches(context, 0)
    require_whole(context, SPEC, str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("mark", ['{"rewind": 12, "operation": 10, "batch": 2}', '{"rewind": 12, "operation": 10}'])
def test_a_sink_starts_after_a_rewind_although_its_new_generation_has_no_table_yet(context: Context, mark: str) -> None:
    """A REWIND gives a sink a new generation, and restores only its checkpoint."""
    spec = replace(sink_spec(shape()), generation=2)
    checkpoint = context.warehouse.sink_checkpoint(spec.sink_id, spec.generation)
    plan_batches(Path(checkpoint), 3)
    with pytest.raises(StalledError, match="TABLE lost"):
        require_whole(context, spec, checkpoint)
    context.warehouse.write_text(f"{checkpoint}/{REWOUND}", mark)
    require_whole(context, spec, checkpoint)


def test_the_table_of_a_sink_that_has_written_since_a_rewind_is_missed(context: Context) -> None:
    spec = replace(sink_spec(shape()), generation=2)
    checkpoint = context.warehouse.sink_checkpoint(spec.sink_id, spec.generation)
    plan_batches(Path(checkpoint), 4)
    context.warehouse.write_text(f"{checkpoint}/{REWOUND}", '{"rewind": 12, "operation": 10, "batch": 2}')
    with pytest.raises(StalledError, match="TABLE lost"):
        require_whole(context, spec, checkpoint)
