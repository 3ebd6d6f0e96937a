"""The size of a log and the number of its undecodable records, from its files' statistics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from deltalake import Schema

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import Operation, PutObject, SourceRecord
from rw_sql.model.definitions import definition_of
from rw_sql.plan.ports.tables import LogSize
from rw_sql.runtime.decoding.decoder import BUCKET, ERROR, log_statistics
from rw_sql.runtime.delta.delta_log import column_count, read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.table_settings import add_settings
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.log_size import measure_logs
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.spark.sessions import SparkSessions

COLUMNS = 40


@pytest.fixture
def context(tmp_path: Path) -> Context:
    warehouse = Warehouse.at(str(tmp_path))
    nothing = cast("SparkSessions", None)
    return Context(warehouse=warehouse, metastore=Metastore.open(warehouse.uri), sessions=nothing, owner="a test")


def put_source(context: Context) -> SourceRecord:
    """A source with more columns than a file has statistics of by default."""
    columns = ", ".join(f"c{number} INT" for number in range(COLUMNS))
    snapshot = context.metastore.snapshot()
    record = SourceRecord(
        id=snapshot.next_id,
        name="wide",
        definition=f"CREATE SOURCE wide ({columns}) WITH (connector = 'datagen')",
        connector="datagen",
        options=(),
        is_shared=True,
    )
    change = PutObject(record=record)
    context.metastore.commit(
        Operation(kind="TEST", statement="", objects=(), changes=(change,)), based_on=context.metastore.snapshot()
    )
    return record


def log_schema() -> str:
    """The log's columns, without Spark's help."""
    fields = [pa.field(f"c{number}", pa.int32()) for number in range(COLUMNS)]
    hidden = {
        "_rw_split": pa.string(),
        "_rw_offset": pa.int64(),
        "_rw_run": pa.int64(),
        "_rw_since": pa.int64(),
        ERROR: pa.string(),
    }
    hidden |= {"_rw_raw": pa.binary(), BUCKET: pa.int32()}
    fields += [pa.field(name, kind) for name, kind in hidden.items()]
    return Schema.from_arrow(pa.schema(fields)).to_json()


def open_log(context: Context, source: SourceRecord) -> JobOutput:
    return JobOutput.open(
        context.warehouse,
        context.log_path(source),
        log_schema(),
        job=f"ingest-{source.id}",
        run=1,
        epoch=1,
        partition_by=(BUCKET,),
        statistics=log_statistics(definition_of(source)),
    )


def rows(output: JobOutput, bucket: int, reasons: list[str | None]) -> pa.Table:
    """Rows of one hour, each with the reason why it did not decode."""
    schema = pa.schema(output.table.schema().to_arrow())
    columns = {name: pa.nulls(len(reasons), schema.field(name).type) for name in schema.names}
    columns[ERROR] = pa.array(reasons, pa.string())
    columns[BUCKET] = pa.array([bucket] * len(reasons), pa.int32())
    return pa.table(columns, schema=schema)


def test_a_log_is_measured_however_many_columns_it_has(context: Context) -> None:
    source = put_source(context)
    snapshot = context.metastore.snapshot()
    assert measure_logs(context, snapshot, (source.id, 99)) == {}
    output = open_log(context, source)
    assert measure_logs(context, snapshot, (source.id,)) == {source.id: LogSize()}
    output.append_rows(rows(output, 100, [None, "not JSON", None]), 0)
    output.append_rows(rows(output, 101, ["no value", "not JSON"]), 1)
    newest = read_actions(context.warehouse, output.path, output.table.version())
    assert column_count(newest, ERROR) == 2
    (size,) = measure_logs(context, snapshot, (source.id,)).values()
    assert (size.rows, size.errors, size.files, size.since_ms) == (5, 3, 2, 100 * 3_600_000)
    assert size.bytes > 0
    (again,) = measure_logs(context, snapshot, (source.id,)).values()
    assert again is size  # Without a new version, the log is not opened.
    output.table.optimize.compact()
    assert measure_logs(context, snapshot, (source.id,))[source.id].errors == 3


def test_columns_that_no_record_has_a_value_of_are_named(context: Context) -> None:
    source = put_source(context)
    snapshot = context.metastore.snapshot()
    output = open_log(context, source)

    def empty() -> tuple[str, ...]:
        return measure_logs(context, snapshot, (source.id,))[source.id].empty

    output.append_rows(rows(output, 100, ["not JSON"]), 0)
    assert empty() == ()
    some = rows(output, 100, [None, None])
    for name in ("c0", "c7"):
        some = some.set_column(some.schema.get_field_index(name), name, pa.array([None, 1], pa.int32()))
    output.append_rows(some, 1)
    # The file of errors has no value in these columns.
    assert empty() == tuple(sorted(f"c{number}" for number in range(COLUMNS) if number not in (0, 7)))
    output.table.optimize.compact()
    assert "c0" not in empty()
    assert "c1" in empty()


def test_a_log_that_was_made_without_them_gets_its_statistics(context: Context) -> None:
    source = put_source(context)
    JobOutput.open(context.warehouse, context.log_path(source), log_schema(), job="j", run=1, epoch=1)
    output = open_log(context, source)
    configuration = output.table.metadata().configuration
    assert configuration["delta.dataSkippingStatsColumns"] == "_rw_split,_rw_offset,_rw_run,_rw_since,_rw_error"
    version = output.table.version()
    assert not add_settings(output.table, statistics=("_rw_split", "_rw_offset", "_rw_run", "_rw_since", "_rw_error"))
    assert output.table.version() == version


def test_the_watermark_s_column_has_statistics_too() -> None:
    record = SourceRecord(
        id=1,
        name="s",
        definition="CREATE SOURCE s (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5 minutes') "
        "WITH (connector = 'datagen')",
        connector="datagen",
        options=(),
        is_shared=True,
    )
    assert log_statistics(definition_of(record)) == (
        "_rw_split",
        "_rw_offset",
        "_rw_run",
        "_rw_since",
        "_rw_error",
        "at",
    )
