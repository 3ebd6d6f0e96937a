"""The number of rows that a batch should have, from its offsets and its input, and the refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.connectors.registry import connector
from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.row_counts import ANY, MISCOUNT, RowCount, at_most, exactly, expected_of
from rw_sql.runtime.delta.row_counts import MiscountError as Miscount
from rw_sql.runtime.positions.planned_rows import Planned, planned_rows
from rw_sql.runtime.spark.shared_folder import is_on_one_machine
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.delta.test_counts import SCHEMA
from tests.runtime.positions.test_progress import offset, write

if TYPE_CHECKING:
    from pathlib import Path

TEN = {"t:0": (5, 11), "t:1": (0, 4), "t:2": (9, 9)}


def said(count: RowCount, *, kind: str, is_row_by_row: bool = True) -> str:
    """The reason why a batch of ten offsets is refused; empty if it is not."""
    try:
        expected_of(connector(kind), TEN, is_row_by_row=is_row_by_row).require(count)
    except Miscount as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("kind", "count", "is_refused"),
    [
        ("datagen", RowCount(written=10), False),
        ("datagen", RowCount(written=9), True),
        ("datagen", RowCount(written=11), True),
        ("kafka", RowCount(written=10, read=10), False),
        ("kafka", RowCount(written=3), False),  # compacted, or the ends of transactions
        ("kafka", RowCount(written=11, read=11), True),  # read twice
        ("kafka", RowCount(written=9, read=10), True),  # lost on the way
        ("posix_fs", RowCount(written=1_000), False),  # its offsets count bytes
        ("delta", RowCount(written=1_000), False),  # its offsets count commits
    ],
)
def test_rows_and_offsets_are_compared_as_far_as_the_connector_allows(
    kind: str, count: RowCount, is_refused: bool
) -> None:
    found = said(count, kind=kind)
    assert bool(found) == is_refused
    assert not found or (found.startswith(MISCOUNT) and "no row of the batch is committed" in found)


@pytest.mark.parametrize(("written", "bound"), [(5, "at least 6"), (7, "at most 6"), (0, "at least 6")])
def test_a_batch_has_as_many_rows_as_the_log_of_its_delta_table(tmp_path: Path, written: int, bound: str) -> None:
    for rows in (3, 2, 4):
        write_deltalake(str(tmp_path), pa.table({"id": list(range(rows))}), mode="append")
    options, kind = {"delta.path": str(tmp_path)}, connector("delta")
    expected = expected_of(kind, {"t": (1, 3)}, options, is_row_by_row=True)
    expected.require(RowCount(written=6, read=9))  # Spark reads the whole table, and filters it.
    with pytest.raises(Miscount, match=f"{written} rows are to be written, but the log of its input has {bound}"):
        expected.require(RowCount(written=written))
    assert expected_of(kind, {"t": (0, 3)}, options, is_row_by_row=True) == ANY


def test_both_numbers_are_reported() -> None:
    assert "9 rows are to be written, but the range of 10 offsets has at least 10" in said(
        RowCount(written=9), kind="datagen"
    )
    assert "10 rows were read and 9 are to be written" in said(RowCount(written=9, read=10), kind="kafka")


def test_of_records_that_describe_changes_the_records_read_count() -> None:
    assert said(RowCount(written=25, read=10), kind="kafka", is_row_by_row=False) == ""
    assert "11 rows were read" in said(RowCount(written=0, read=11), kind="kafka", is_row_by_row=False)
    assert said(RowCount(written=25), kind="kafka", is_row_by_row=False) == ""


def test_a_query_may_leave_rows_out_and_not_make_more() -> None:
    ten = expected_of(connector("datagen"), TEN, is_row_by_row=True)
    at_most(ten).require(RowCount(written=0, read=10))
    with pytest.raises(Miscount):
        at_most(ten).require(RowCount(written=11))
    assert at_most(expected_of(connector("kafka"), TEN, is_row_by_row=False)) == ANY


def test_rows_that_were_counted_come_as_they_were() -> None:
    exactly(3).require(RowCount(written=3))
    for rows in (2, 4):
        with pytest.raises(Miscount):
            exactly(3).require(RowCount(written=rows))


def test_what_an_input_committed_is_what_a_batch_reads(tmp_path: Path) -> None:
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "log")
    output = JobOutput.open(warehouse, path, SCHEMA, job="ingest-1", run=1, epoch=1)
    schema = pa.schema([("id", pa.int32()), (ERROR, pa.string())])
    begin = output.table.version() + 1
    for batch in range(2):
        rows = pa.Table.from_pydict({"id": [1, None, 3], ERROR: [None, "not JSON", None]}, schema)
        output.append_rows(rows, batch, {})
    checkpoint = tmp_path / "checkpoint"
    for batch, at in enumerate((offset("t", begin), offset("t", begin + 2), offset("t", begin + 2, index=1))):
        write(checkpoint, batch, at)

    def planned(batch: int, *, is_log: bool, is_all_read: bool = True) -> Planned:
        return planned_rows(warehouse, path, str(checkpoint), batch, is_log=is_log, is_all_read=is_all_read)

    # The first batch reads what the table's first commits added.
    assert planned(0, is_log=True) == Planned(most=0, exact=0)
    assert planned(1, is_log=True) == Planned(most=6, exact=4)
    assert planned(1, is_log=False) == Planned(most=6, exact=6)
    assert planned(1, is_log=True, is_all_read=False) == Planned(most=6)
    write(checkpoint, 0, offset("t", begin + 1))
    assert planned(0, is_log=True) == Planned(most=3, exact=2)
    for at in (offset("t", begin, is_first_read=True), offset("t", begin, index=0), offset("t", begin + 3)):
        write(checkpoint, 0, at)
        assert planned(0, is_log=True) == Planned()
    write(checkpoint, 0, offset("t", begin + 1))
    output.table.delete("id = 1")  # The first batch reads the rows of a snapshot now.
    assert planned(0, is_log=True) == Planned()


def test_a_batch_reads_the_rows_of_one_upstream_table(tmp_path: Path) -> None:
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "log")
    output = JobOutput.open(warehouse, path, SCHEMA, job="ingest-1", run=1, epoch=1)
    begin = output.table.version() + 1
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), ERROR: pa.nulls(3, pa.string())})
    for batch, told in enumerate(({"public.a": 1, "public.b": 2}, {"public.b": 3}, None)):
        output.rows = told
        output.append_rows(rows, batch, {})
    output.mark(3)
    checkpoint = tmp_path / "checkpoint"

    def planned(first: int, end: int, upstream: str) -> int | None:
        write(checkpoint, 0, offset("t", begin + first))
        write(checkpoint, 1, offset("t", begin + end))
        return planned_rows(warehouse, path, str(checkpoint), 1, is_log=True, upstream=upstream).most

    assert [planned(0, 2, f"public.{name}") for name in "abc"] == [1, 5, 0]
    assert planned(1, 2, "public.a") == 0
    assert planned(1, 3, "public.a") == 3, "an earlier version did not write the numbers"
    assert planned(3, 4, "public.a") == 0, "a commit without rows"


def test_a_local_master_has_no_executors_elsewhere() -> None:
    assert [is_on_one_machine(master) for master in ("local", "local[*]", "local[2,3]")] == [True] * 3
    assert [
        is_on_one_machine(master) for master in ("spark://h:7077", "yarn", "k8s://h", "local-cluster[2,1,1024]")
    ] == ([False] * 4)
